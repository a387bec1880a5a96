"""Whether the client's requests are traced. By default none is, and nothing of OpenTelemetry is imported.

A program that has set up OpenTelemetry itself keeps its own provider; without one, the standard variables make one for
this process. Spans themselves are in request_spans.py.
"""

from __future__ import annotations

import atexit
import functools
import sys
from typing import TYPE_CHECKING

from kerneldyno.client.item_spans import ItemSpans
from kerneldyno.rpc import tracing
from kerneldyno.v1.evaluation_pb2 import TraceContext

if TYPE_CHECKING:  # imported only where tracing is configured
    from opentelemetry.trace import Tracer


def item_spans(address: str, client_id: str, method: str) -> ItemSpans:
    """Return what takes note of a call of `method`: "SchedulerService/Evaluate", for example."""
    tracer = _tracer()
    if tracer is None:
        return ItemSpans()
    from kerneldyno.client.request_spans import RequestSpans

    return RequestSpans(tracer, address, client_id, method)


def current() -> TraceContext | None:
    """Return the span that the caller's program has open, for an item that another task will send."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry.trace import get_current_span

    from kerneldyno.client.request_spans import context_of

    return context_of(get_current_span())


def _tracer() -> Tracer | None:
    if (api := sys.modules.get("opentelemetry.trace")) is not None:
        provider = api.get_tracer_provider()
        if not isinstance(provider, api.ProxyTracerProvider):  # the program has set up its own
            tracer: Tracer = provider.get_tracer("kerneldyno")
            return tracer
    return _own_tracer()


@functools.cache
def _own_tracer() -> Tracer | None:
    spans = tracing.start("kerneldyno-client")
    if spans is None:
        return None
    atexit.register(spans.close)
    return spans.tracer

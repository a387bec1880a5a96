"""Spans to an OpenTelemetry collector, by OTLP. Imported only where tracing is configured (kerneldyno.rpc.tracing).

Most spans here are sent when they are over, from times that were noted anyway: so nothing is held open, and a span may end
in another process than the one that began it, as after a crash. They go to the SDK's batch processor, which is bounded and
drops what a collector does not take in time; nothing waits for a collector but `close`, and that for a limited time.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision

from kerneldyno.rpc.trace_context import TraceContext
from kerneldyno.rpc.version import VERSION

log = logging.getLogger(__name__)

#: How long a process that ends waits for the collector to take its last spans, in seconds.
CLOSE_SECONDS = 2.0
_INTERRUPTED_SECONDS = 0.5
#: The SDK complains of a collector that is away with every batch; once in this time (seconds) is enough.
_COMPLAINT_SECONDS = 60.0
_COMPLAINERS = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
)
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SCOPE = "kerneldyno"

Attributes = Mapping[str, str | int | float | bool]
Kind = Literal["INTERNAL", "SERVER", "CLIENT"]


class _ChosenIds(RandomIdGenerator):
    """Random ids, but for a span whose ids were chosen before: the SDK has no other way to send one begun elsewhere."""

    chosen: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.chosen is None else self.chosen[0]

    def generate_span_id(self) -> int:
        return super().generate_span_id() if self.chosen is None else self.chosen[1]


class Spans:
    """The way to the collector. `begin`, `child` and `emit` belong to one thread; batches travel in another."""

    def __init__(self, service: str) -> None:
        """Read the OTEL_ variables. Raises ImportError for an exporter that is not installed, ValueError for bad values."""
        _complain_seldom()
        self._exporter = _exporter()
        self._processor = BatchSpanProcessor(self._exporter)
        self._ids = _ChosenIds()
        provider = TracerProvider(resource=_resource(service), id_generator=self._ids, shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        self._sampler = provider.sampler
        #: For spans that end in the process that began them.
        self.tracer = provider.get_tracer(_SCOPE, VERSION)
        # From the beginning, for Python starts no threads any more when it ends, which is when a client closes.
        self._over = threading.Event()
        self._ending = threading.Thread(target=self._end, name="tracing-close", daemon=True)
        self._ending.start()

    def begin(self, name: str, parent: TraceContext | None) -> TraceContext:
        """Choose the ids of a span that will be sent when it is over, and decide whether it will be.

        Without a parent it is the root of a new trace.
        """
        trace_id = self._ids.generate_trace_id() if parent is None else parent.trace_id
        decision = self._sampler.should_sample(_within(parent), trace_id, name).decision
        sampled = decision is Decision.RECORD_AND_SAMPLE
        above, flags, state = (0, 0, "") if parent is None else (parent.span_id, parent.flags, parent.state)
        return TraceContext(trace_id, self._ids.generate_span_id(), flags & ~1 | sampled, state, parent_id=above)

    def child(self, of: TraceContext, span_id: int = 0) -> TraceContext:
        """Choose the ids of a span below `of`, which is sent if that one is."""
        span_id = span_id or self._ids.generate_span_id()
        return TraceContext(of.trace_id, span_id, of.flags, of.state, parent_id=of.span_id)

    def emit(
        self,
        name: str,
        span: TraceContext,
        start: float,
        end: float,
        attributes: Attributes,
        *,
        kind: Kind = "INTERNAL",
        error: str = "",
        links: Sequence[TraceContext] = (),
    ) -> None:
        """Send a span that is over. Times are seconds since 1970; `error` is one word for what failed."""
        if not span.sampled:
            return
        parent = TraceContext(span.trace_id, span.parent_id, span.flags, span.state) if span.parent_id else None
        self._ids.chosen = (span.trace_id, span.span_id)
        try:
            one = self.tracer.start_span(
                name,
                _within(parent),
                trace.SpanKind[kind],
                {**attributes, "error.type": error} if error else attributes,
                [trace.Link(_span_context(link)) for link in links],
                int(start * 1e9),
            )
            if error:
                one.set_status(trace.StatusCode.ERROR)
            one.end(int(max(start, end) * 1e9))
        except Exception:  # a defect here must not be one of whoever is traced
            log.exception("event=span_failed name=%s", name)
        finally:
            self._ids.chosen = None

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Send what is left, for at most so long; what the collector has not taken by then is lost."""
        if not self._ending.is_alive():  # closed before; or this process was forked, and the spans are its parent's
            return
        self._over.set()
        self._ending.join(seconds)
        if self._ending.is_alive():
            self._exporter.shutdown()
            self._ending.join(_INTERRUPTED_SECONDS)

    def _end(self) -> None:
        self._over.wait()
        # It sends what is left, however long that takes; the exporter's interrupts it.
        self._processor.shutdown()  # type: ignore[no-untyped-call]


def _exporter() -> SpanExporter:
    """Return the exporter of the protocol that is asked for; it reads its own variables."""
    protocol = next((value for name in _PROTOCOLS if (value := os.environ.get(name))), "grpc")
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter()
    if protocol == "http/protobuf":  # in a package of its own, which [tracing] does not bring
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

        exporter: SpanExporter = HttpExporter()
        return exporter
    raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: known are grpc and http/protobuf")


def _resource(service: str) -> Resource:
    """Return what this process is called; the environment's own words come first."""
    found = Resource.create()
    missing = {}
    if str(found.attributes[SERVICE_NAME]).startswith("unknown_service"):
        missing[SERVICE_NAME] = service
    if SERVICE_VERSION not in found.attributes:
        missing[SERVICE_VERSION] = VERSION
    return found.merge(Resource(missing))


def _within(parent: TraceContext | None) -> Context:
    # An empty one, where there is no parent: whatever span the surrounding program has open is not above ours.
    if parent is None:
        return Context()
    return trace.set_span_in_context(trace.NonRecordingSpan(_span_context(parent)), Context())


def _span_context(of: TraceContext) -> trace.SpanContext:
    state = trace.TraceState.from_header([of.state]) if of.state else None
    return trace.SpanContext(of.trace_id, of.span_id, True, trace.TraceFlags(of.flags), state)


class _Seldom(logging.Filter):
    """Lets one record through in a while."""

    _next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether it is time again."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _COMPLAINT_SECONDS
        return True


def _complain_seldom() -> None:
    for logger in map(logging.getLogger, _COMPLAINERS):
        if not any(isinstance(one, _Seldom) for one in logger.filters):
            logger.addFilter(_Seldom())

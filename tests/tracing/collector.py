"""An OpenTelemetry collector: OTLP over real gRPC, in this process. It keeps the spans that it receives."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from kerneldyno.client import request_tracing


@dataclass(frozen=True)
class Span:
    """A span as the collector received it."""

    name: str
    service: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    """Both in nanoseconds since 1970."""
    attributes: dict[str, Any]
    failed: bool
    kind: str
    links: tuple[tuple[str, str], ...]
    """Trace id and span id of each."""
    raw: str


class Collector(TraceServiceServicer):
    """A collector. It listens while its `with` block lasts."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.keys: set[str] = set()
        """What exporters showed as `x-key`."""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._server = grpc.server(ThreadPoolExecutor(4))
        add_TraceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:  # noqa: N802
        found = [
            _span(span, _values(of.resource.attributes)["service.name"])
            for of in request.resource_spans
            for scope in of.scope_spans
            for span in scope.spans
        ]
        with self._lock:
            self.keys |= {value for key, value in context.invocation_metadata() if key == "x-key"}
            self.spans += found
        return ExportTraceServiceResponse()

    def trace(self, trace_id: str) -> list[Span]:
        """Return the spans of a trace, sorted by start time."""
        with self._lock:
            return sorted((span for span in self.spans if span.trace_id == trace_id), key=lambda span: span.start)

    def of(self, evaluation_id: str) -> list[Span]:
        """Return the spans of the trace that an evaluation is in."""
        with self._lock:
            traces = {s.trace_id for s in self.spans if s.attributes.get("kerneldyno.evaluation.id") == evaluation_id}
        assert len(traces) <= 1, f"{evaluation_id} is in {len(traces)} traces"
        return self.trace(traces.pop()) if traces else []

    def until(self, met: Callable[[], Any], seconds: float = 15.0) -> Any:
        """Wait until `met()` is true, and return it."""
        deadline = time.monotonic() + seconds
        while not (found := met()):
            assert time.monotonic() < deadline, f"not within {seconds} s; there are {[s.name for s in self.spans]}"
            time.sleep(0.05)
        return found

    def whole(self, evaluation_id: str, *names: str) -> list[Span]:
        """Wait until the trace of an evaluation has spans of all these names and the scheduler's, and return it."""
        wanted = {*names, "kerneldyno.scheduler.evaluation"}
        return self.until(lambda: (found := self.of(evaluation_id)) and wanted <= {s.name for s in found} and found)


def _span(span: trace_pb2.Span, service: str) -> Span:
    return Span(
        span.name,
        service,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _values(span.attributes),
        span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        str(span),
    )


def _values(attributes: Any) -> dict[str, Any]:
    def value(one: KeyValue) -> Any:
        return getattr(one.value, str(one.value.WhichOneof("value")))

    return {one.key: value(one) for one in attributes}


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set environment variables while the block lasts, and remove all other variables of OpenTelemetry."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def settings(endpoint: str, **more: str) -> dict[str, str]:
    """Return the variables of a traced process, which sends spans after 0.1 s instead of 5 s."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100", **more}


@contextmanager
def traced_client(endpoint: str, **more: str) -> Iterator[None]:
    """Trace the clients of this process, as if it had been started with these variables."""
    request_tracing._own_tracer.cache_clear()
    try:
        with environment(**settings(endpoint, **more)):
            assert request_tracing._own_tracer() is not None
        yield
    finally:
        request_tracing._own_tracer.cache_clear()

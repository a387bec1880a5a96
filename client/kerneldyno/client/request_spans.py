"""The client's span of each request: from when it is taken from the caller until its answer is there.

Imported only where tracing is configured (request_tracing.py). The span that is open where evaluate() is iterated, or that
a request names already, is above ours. The context travels inside each request, for many share a stream.
"""

from __future__ import annotations

from opentelemetry.context import get_current
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kerneldyno.client.item_spans import ItemSpans
from kerneldyno.rewards.speedups import NAMES, counted_speedup
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult, TraceContext
from kerneldyno.v1.reward_service_pb2 import StreamRewardsResponse, Turn

_W3C = TraceContextTextMapPropagator()


class RequestSpans(ItemSpans):
    """Spans of one call. As many are open as its window has places."""

    def __init__(self, tracer: Tracer, address: str, client_id: str, method: str) -> None:
        host, _, port = address.removeprefix("dns:///").rpartition(":")
        self._tracer = tracer
        self._name = "kerneldyno.client.reward" if method.endswith("Rewards") else "kerneldyno.client.evaluate"
        self._attributes: dict[str, str | int] = {
            "rpc.system.name": "grpc",
            "rpc.method": f"kerneldyno.v1.{method}",
            "server.address": host.strip("[]") or address,
            "kerneldyno.client.id": client_id,
        }
        if port.isdigit():
            self._attributes["server.port"] = int(port)
        self._open: dict[str, Span] = {}

    def begin(self, item: EvalRequest | Turn) -> None:
        """Open the span of an item, and name it there."""
        request = item.request if isinstance(item, Turn) else item
        named = request.trace_context
        above = _W3C.extract({"traceparent": named.traceparent, "tracestate": named.tracestate}, get_current())
        attributes = {**self._attributes, "kerneldyno.evaluation.id": request.id}
        span = self._tracer.start_span(self._name, above, SpanKind.CLIENT, attributes)
        if (context := context_of(span)) is not None:
            request.trace_context.CopyFrom(context)
        if span.is_recording():
            if isinstance(item, Turn):
                span.set_attribute("kerneldyno.turn.group", item.group)
                span.set_attribute("kerneldyno.turn.sample", item.sample)
                span.set_attribute("kerneldyno.turn.index", item.turn_index)
            self._open[request.id] = span

    def end(self, answer: EvalResult | StreamRewardsResponse) -> None:
        """Close the span of an item with what came of it."""
        if (span := self._open.pop(answer.id, None)) is not None:
            if isinstance(answer, StreamRewardsResponse):
                _describe(span, answer.result)
                if answer.HasField("reward"):
                    span.set_attribute("kerneldyno.reward", answer.reward)
            else:
                _describe(span, answer)
            span.end()

    def drop(self, id: str, error: str = "CANCELLED") -> None:
        """Close the span of an item without an answer."""
        if (span := self._open.pop(id, None)) is not None:
            _fail(span, error)
            span.end()

    def close(self, error: str = "CANCELLED") -> None:
        """Close all that are open."""
        for id in list(self._open):
            self.drop(id, error)


def context_of(span: Span) -> TraceContext | None:
    """Return where a span is; None for one that is in no trace."""
    headers: dict[str, str] = {}
    _W3C.inject(headers, set_span_in_context(span))
    return TraceContext(**headers) if headers else None


def _describe(span: Span, result: EvalResult) -> None:
    """Write down what came of it, but no text of the result: the candidate may have written it."""
    attributes: dict[str, str | int | float] = {
        "kerneldyno.outcome": EvalResult.Outcome.Name(result.outcome),
        "kerneldyno.attempts": result.attempts,
        "kerneldyno.answered_by": "cached" if result.cached else "merged" if result.merged else "run",
    }
    if (counted := counted_speedup(result)).value:
        attributes["kerneldyno.speedup"] = counted.value
        attributes["kerneldyno.speedup.kind"] = NAMES.get(counted.kind, "")
    span.set_attributes(attributes)
    if result.outcome == EvalResult.INFRASTRUCTURE_ERROR:
        _fail(span, result.infrastructure_error.cause)


def _fail(span: Span, error: str) -> None:
    span.set_attribute("error.type", error)
    span.set_status(StatusCode.ERROR)

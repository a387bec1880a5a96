"""The node's spans: one for each attempt, with one child span for each stage, with the times from the judge.

They exist only in the server's process, and only if tracing is configured. Stages come from the result, which the judge
wrote: nothing from a candidate's process gets into a span, and judges and runners do not know about tracing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kerneldyno.rpc.jsonio import stage_name
from kerneldyno.rpc.trace_context import decode
from kerneldyno.v1 import evaluation_pb2 as pb

from .attempt import Attempt

if TYPE_CHECKING:  # imported only where tracing is configured
    from kerneldyno.rpc.span_export import Attributes, Spans

ATTEMPT = "kerneldyno.evaluator.attempt"


class AttemptSpans:
    """Sends the spans of finished attempts. It has no state: each attempt holds its start time."""

    def __init__(self, spans: Spans, node_id: str) -> None:
        self._spans = spans
        self._node_id = node_id

    def finished(self, attempt: Attempt, result: pb.EvalResult) -> None:
        """Send the spans of an attempt."""
        span = self._spans.begin(ATTEMPT, decode(attempt.trace))
        if not span.sampled:
            return
        end = time.time()
        attributes: Attributes = {
            "kerneldyno.attempt.token": attempt.token,
            "kerneldyno.node.id": self._node_id,
            "kerneldyno.device": attempt.snapshot.device,
            "kerneldyno.runs": attempt.runs,
            "kerneldyno.outcome": pb.EvalResult.Outcome.Name(result.outcome),
        }
        failed = result.outcome == pb.EvalResult.INFRASTRUCTURE_ERROR
        error = result.infrastructure_error.cause if failed else ""
        self._spans.emit(ATTEMPT, span, attempt.started_wall, end, attributes, kind="SERVER", error=error)
        for stage in result.stages:
            begin = stage.start_time.ToNanoseconds() / 1e9
            until = begin + stage.duration.ToNanoseconds() / 1e9
            name = stage_name(stage.stage)
            # Keep the stage within the attempt, even if somebody has set the clock meanwhile.
            begin, until = (min(max(moment, attempt.started_wall), end) for moment in (begin, until))
            self._spans.emit(f"kerneldyno.stage.{name}", self._spans.child(span), begin, until, {})

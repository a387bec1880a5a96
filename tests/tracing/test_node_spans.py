"""Tests of a node's spans without a node: which stages of a result become spans, and within which times."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kerneldyno.evaluator.server.attempt import Attempt
from kerneldyno.evaluator.server.tracing import AttemptSpans
from kerneldyno.rpc.trace_context import TraceContext
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure


class Recorded:
    """Spans that are kept instead of being sent."""

    def __init__(self) -> None:
        self.emitted: list[tuple[str, float, float]] = []

    def begin(self, name: str, parent: TraceContext | None) -> TraceContext:
        return TraceContext(1, 2, 1, "")

    def child(self, of: TraceContext) -> TraceContext:
        return TraceContext(of.trace_id, 3, of.flags, "", parent_id=of.span_id)

    def emit(self, name: str, span: TraceContext, start: float, end: float, *_: Any, **__: Any) -> None:
        self.emitted.append((name, start, end))


def test_a_build_is_a_span_before_the_stages_on_the_device() -> None:
    spans = Recorded()
    attempt = Attempt("t1", pb.EvalRequest(), 0.0)
    result = pb.EvalResult(outcome=pb.EvalResult.CORRECT)
    began = attempt.started_wall
    attempt.started_wall -= 100
    for stage, after, seconds in ((pb.STAGE_BUILDING, -90, 20), (pb.STAGE_PREPARING, -60, 5)):
        span = result.stages.add(stage=stage)
        span.start_time.FromNanoseconds(int((began + after) * 1e9))
        span.duration.FromSeconds(seconds)
    AttemptSpans(cast(Any, spans), "node").finished(attempt, result)
    whole, *stages = spans.emitted
    assert whole[0] == "kerneldyno.evaluator.attempt"
    assert [(name, round(start - began), round(end - began)) for name, start, end in stages] == [
        ("kerneldyno.stage.building", -90, -70),
        ("kerneldyno.stage.preparing", -60, -55),
    ]

"""What a builder's answer says about the sources of a request, without a builder."""

from __future__ import annotations

import pytest

from kerneldyno.evaluator.server.attempt import BuildOutcome
from kerneldyno.evaluator.server.build_checks import compilation
from kerneldyno.v1.evaluation_pb2 import Compilation, EvalResult, NativeBuild, StageSpan


def state(found: Compilation) -> str:
    """Return the state, and the reason if there is one."""
    name, reason = Compilation.State.Name(found.state), Compilation.Reason.Name(found.reason)
    return f"{name} {reason}".replace("STATE_", "").replace("REASON_", "").replace(" UNSPECIFIED", "")


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (BuildOutcome(StageSpan()), "NOTHING_TO_COMPILE"),
        (BuildOutcome(StageSpan(), [NativeBuild(name="a")]), "COMPILED"),
        (BuildOutcome(StageSpan(), broken="it died"), "NOT_COMPILED BUILDER_FAILED"),
        (BuildOutcome(StageSpan(), [NativeBuild(name="a")], left=[("b", "a flag")]), "NOT_COMPILED LEFT_TO_LANE"),
        (
            BuildOutcome(
                StageSpan(),
                [NativeBuild(name="a", failed=True)],
                {"failures": {"d": "CUDA_HOME environment variable is not set. Please set it"}},
                EvalResult(outcome=EvalResult.COMPILE_ERROR),
            ),
            "NOT_COMPILED NO_BUILDER",
        ),
        (
            BuildOutcome(StageSpan(), [NativeBuild(name="a", failed=True)], {"failures": {"d": "no\udcff"}}),
            "FAILED",
        ),
        (
            BuildOutcome(
                StageSpan(), [], {"failures": {"d": "x" * 9999}}, EvalResult(outcome=EvalResult.OUT_OF_MEMORY)
            ),
            "FAILED",
        ),
    ],
)
def test_what_a_builders_answer_means(outcome: BuildOutcome, expected: str) -> None:
    found = compilation(outcome)
    assert state(found) == expected
    assert found.HasField("error") == (expected == "FAILED")
    assert len(found.error.message) <= 4096
    assert found.SerializeToString()

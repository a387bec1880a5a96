"""Tests of constructed results: each outcome has its reward, and the words of a script give the same results."""

from __future__ import annotations

import pytest

from kerneldyno.rewards.presets import spec
from kerneldyno.rewards.scoring import score
from kerneldyno.testing import results, script
from kerneldyno.v1.evaluation_pb2 import PROFILE_LEVEL_COUNTERS, EvalRequest, EvalResult

pytestmark = pytest.mark.pure

KEVIN = spec("kevin")
#: Results that depend on the policy, with their rewards under the preset "kevin".
PAID = [
    (results.correct(2.5), 0.3 + 2.5),
    (results.correct(0), 0.3),
    (results.incorrect(), 0.0),
    (results.compile_error(), 0.0),
    (results.runtime_error(), 0.0),
    (results.timeout(), 0.0),
    (results.out_of_memory(), 0.0),
    (results.rejected("S19"), 0.0),
    (results.invalid(), 0.0),
]
#: Results that are not the fault of the policy: they have no reward.
UNPAID = [
    results.reference_error(),
    results.problem_too_large(),
    results.invalid("entry_point"),
    results.infrastructure_error(),
]


def named(result: EvalResult) -> str:
    return EvalResult.Outcome.Name(result.outcome)


@pytest.mark.parametrize(("result", "reward"), PAID, ids=lambda value: getattr(value, "message", None))
def test_what_the_policy_is_to_blame_for_is_paid(result: EvalResult, reward: float) -> None:
    assert score(result, KEVIN)[0] == pytest.approx(reward)


@pytest.mark.parametrize("result", UNPAID, ids=named)
def test_what_it_is_not_to_blame_for_has_no_reward(result: EvalResult) -> None:
    assert score(result, KEVIN)[0] is None


def test_every_outcome_can_be_made() -> None:
    made = {result.outcome for result in [*(result for result, _ in PAID), *UNPAID]}
    assert made == set(EvalResult.Outcome.values()) - {EvalResult.OUTCOME_UNSPECIFIED}
    for outcome in made:
        words = {"outcome": EvalResult.Outcome.Name(outcome)}
        assert script.outcome_of(words) == outcome
        assert script.result(words, outcome, 1.0).outcome == outcome


def test_coverage_is_paid_by_every_definition() -> None:
    result = results.correct(coverage=0.4)
    for preset in ("drkernel", "drkernel_paper"):
        assert score(result, spec(preset))[1].paid_coverage == pytest.approx(0.4)


def test_words_may_stand_in_a_comment() -> None:
    request = EvalRequest(kernel_code="# speedup=3 coverage=0.5 again.speedup=2\nclass ModelNew: ...")
    assert script.read(request) == {"speedup": "3", "again.speedup": "2"}, "no profile is asked for"
    again = EvalRequest(kernel_code=request.kernel_code, salt="~again", enable_profiling=True)
    assert script.read(again) == {"speedup": "2", "again.speedup": "2", "coverage": "0.5"}
    counters = EvalRequest(kernel_code=request.kernel_code, profile_level=PROFILE_LEVEL_COUNTERS)
    assert script.read(counters)["coverage"] == "0.5"


def test_an_end_to_end_speedup_may_differ_or_be_left_out() -> None:
    assert script.result({"end_to_end": "1.5"}, EvalResult.CORRECT, 2.0).end_to_end_speedup == 1.5
    without = script.result({"end_to_end": "none"}, EvalResult.CORRECT, 2.0)
    assert (without.speedup, without.HasField("candidate_end_to_end")) == (2.0, False)


def test_an_unknown_outcome_is_an_error() -> None:
    with pytest.raises(ValueError, match="RIGHT"):
        script.outcome_of({"outcome": "RIGHT"})

"""Tests of rejection by coverage: shares of many draws, and the exceptions."""

from __future__ import annotations

import pytest

from kerneldyno.trainers.episode import EpisodeTurn
from kerneldyno.trainers.rejection import kept, rule_of, void_turns
from kerneldyno.v1.evaluation_pb2 import SPEEDUP_KIND_END_TO_END, EvalResult
from kerneldyno.v1.reward_service_pb2 import RewardSpec, StreamRewardsResponse

DRAWS = 3000


def turn(coverage: float | None, *, outcome: str = "CORRECT", speedup: float = 1.0, reward: float = 1.0) -> EpisodeTurn:
    answer = StreamRewardsResponse(reward=reward)
    answer.result.outcome = EvalResult.Outcome.Value(outcome)
    answer.result.speedup = speedup
    if coverage is not None:
        answer.result.profile.device_time_coverage = coverage
        answer.result.profile.kernelgym_coverage = coverage / 2
    return EpisodeTurn("", answer, 0, 2, 0.1)


def share(one: EpisodeTurn, basis: int = RewardSpec.COVERAGE_BASIS_DEVICE_TIME, **rule: float) -> float:
    return sum(kept([one], rule_of(rule), basis)[0] for _ in range(DRAWS)) / DRAWS


def test_the_speedup_of_a_turn_is_the_one_that_counts_and_the_smaller_of_two() -> None:
    one = turn(0.5, speedup=3.0)
    assert one.speedup == 3.0
    one.answer.result.end_to_end_speedup = 2.0
    one.answer.result.speedup_kind = SPEEDUP_KIND_END_TO_END
    assert one.speedup == 2.0
    one.answer.remeasured.CopyFrom(one.answer.result)
    one.answer.remeasured.speedup, one.answer.remeasured.end_to_end_speedup = 1.0, 1.5
    assert one.speedup == 1.5
    one.answer.remeasured.ClearField("end_to_end_speedup")
    assert one.speedup == 0.0, "not measured, and not the other one"
    assert turn(0.5, outcome="INCORRECT", speedup=3.0).speedup == 0.0


def test_shares_are_those_of_the_rule() -> None:
    # 0.05 is more than five standard deviations of 3000 draws.
    assert share(turn(0.29)) == 0.0
    assert share(turn(0.35)) == pytest.approx(0.5, abs=0.05)
    assert share(turn(0.40)) == 1.0
    assert share(turn(0.64), RewardSpec.COVERAGE_BASIS_KERNELGYM) == pytest.approx(0.2, abs=0.05)
    assert share(turn(0.35), softness=0.0) == 1.0


def test_the_exceptions() -> None:
    assert share(turn(0.0, outcome="INCORRECT")) == 1.0
    assert share(turn(None)) == 1.0, "what was not profiled is not to blame"
    assert share(turn(0.0, speedup=3.0), speedup_threshold=2.0) == 1.0
    assert share(turn(0.0, speedup=1.5), speedup_threshold=2.0) == 0.0


def test_draws_are_independent_of_each_other() -> None:
    both = [kept([turn(0.35), turn(0.35)], rule_of({}), RewardSpec.COVERAGE_BASIS_DEVICE_TIME) for _ in range(DRAWS)]
    assert sum(a and b for a, b in both) / DRAWS == pytest.approx(0.25, abs=0.05)


def test_turns_that_regress_are_void() -> None:
    rewards = [0.0, 1.0, 0.0, 0.5, -0.1]
    assert void_turns([turn(None, reward=reward) for reward in rewards]) == [False, False, True, False, True]

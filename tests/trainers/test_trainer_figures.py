"""Tests, without a trainer, of the figures that trainers log: fast@1 by the speedup and by its interval's lower end."""

from __future__ import annotations

import pytest

from kerneldyno.trainers.episode import EpisodeTurn, figures
from kerneldyno.trainers.marks import Mark
from kerneldyno.trl.rewards import _figures
from kerneldyno.v1.evaluation_pb2 import SPEEDUP_KIND_END_TO_END, EvalResult, Interval
from kerneldyno.v1.reward_service_pb2 import StreamRewardsResponse


def result(speedup: float, low: float | None, *, correct: bool = True) -> EvalResult:
    made = EvalResult(outcome=EvalResult.CORRECT if correct else EvalResult.INCORRECT, speedup=speedup)
    if low is not None:
        made.speedup_interval.CopyFrom(Interval(low=low, high=speedup + 0.1))
    return made


def episode(*results: EvalResult) -> dict[str, float]:
    answers = [StreamRewardsResponse(result=one, reward=1.0) for one in results]
    turns = [EpisodeTurn("", answer, begin=0, end=1, seconds=0.0) for answer in answers]
    return figures(turns, [Mark.KEPT] * len(turns))


def fast(found: dict[str, float]) -> tuple[float, float, float, float]:
    keys = ("last_fast@1", "last_fast@1/sure", "best_fast@1", "best_fast@1/sure")
    return tuple(found[key] for key in keys)  # type: ignore[return-value]


#: A result of unchanged PyTorch.
SAME = result(1.003, 0.98)


@pytest.mark.parametrize(
    ("results", "counted"),
    [
        ((SAME,), (1.0, 0.0, 1.0, 0.0)),
        ((result(1.5, 1.4),), (1.0, 1.0, 1.0, 1.0)),
        ((result(1.5, None),), (1.0, 0.0, 1.0, 0.0)),
        ((result(1.5, float("nan")),), (1.0, 0.0, 1.0, 0.0)),
        ((result(1.5, 1.4, correct=False),), (0.0, 0.0, 0.0, 0.0)),
        ((result(0.8, 0.7), result(1.5, 1.4), SAME), (1.0, 0.0, 1.0, 1.0)),
        ((result(1.5, 1.4), result(0.8, 0.7)), (0.0, 0.0, 1.0, 1.0)),
    ],
)
def test_of_an_episode(results: tuple[EvalResult, ...], counted: tuple[float, ...]) -> None:
    assert fast(episode(*results)) == counted
    assert all(type(value) is float for value in episode(*results).values())


def test_by_the_speedup_that_counts() -> None:
    both = result(0.5, 0.4)
    both.end_to_end_speedup = 2.0
    both.end_to_end_speedup_interval.CopyFrom(Interval(low=1.9, high=2.1))
    assert fast(episode(both))[:2] == (0.0, 0.0)
    both.speedup_kind = SPEEDUP_KIND_END_TO_END
    assert fast(episode(both))[:2] == (1.0, 1.0)


def test_of_two_measurements_the_smaller_counts() -> None:
    for second, counted in (
        (result(1.4, 1.2), (1.0, 1.0)),
        (result(1.6, 0.9), (1.0, 0.0)),
        (result(1.4, None), (1.0, 0.0)),
    ):
        answer = StreamRewardsResponse(result=result(1.5, 1.4), remeasured=second)
        found = figures([EpisodeTurn("", answer, begin=0, end=1, seconds=0.0)], [Mark.KEPT])
        assert (found["last_fast@1"], found["last_fast@1/sure"]) == counted


def test_of_a_batch() -> None:
    results = [SAME, result(1.5, 1.4), result(1.5, None), result(9.0, 8.0, correct=False), result(float("nan"), None)]
    results += [result(1.2, 1.0)] * 5  # a sure win needs a lower end above 1
    found = _figures([StreamRewardsResponse(result=one, reward=1.0) for one in results])
    assert (found["correct"], found["fast@1"], found["fast@1/sure"]) == (0.9, 0.8, 0.1)

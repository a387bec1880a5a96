"""What is kept from one candidate's timing for the next, and when it is forgotten."""

from __future__ import annotations

import pytest
from kerneldyno.evaluator.judge.baseline import Baseline
from kerneldyno.evaluator.judge.timing import Burst


def burst(seconds: float, calls: int = 4) -> Burst:
    return Burst(calls, calls * seconds, [seconds] * calls)


@pytest.mark.parametrize(
    ("now", "same"),
    [(100e-6, True), (100.4e-6, True), (99.4e-6, True), (101e-6, False), (98e-6, False), (50e-6, False)],
)
def test_what_is_kept_holds_while_the_reference_takes_as_long(now: float, same: bool) -> None:
    baseline = Baseline()
    baseline.reference.extend(burst(100e-6) for _ in range(8))
    assert baseline.still_true([burst(now), burst(now)]) is same


def test_short_calls_may_differ_by_what_the_device_can_tell() -> None:
    baseline = Baseline()
    baseline.reference.append(burst(4e-6))
    assert baseline.still_true([burst(4.1e-6)])
    assert not baseline.still_true([burst(4.4e-6)])


def test_without_anything_kept_or_anything_new_nothing_holds() -> None:
    baseline = Baseline()
    assert not baseline.still_true([burst(1e-6)])
    baseline.reference.append(burst(1e-6))
    assert not baseline.still_true([])


def test_what_is_known_of_launched_calls_says_nothing_of_replayed_ones() -> None:
    baseline = Baseline()
    baseline.reference.append(burst(4e-6))
    baseline.expect(replayed=False)
    assert baseline.reference
    baseline.expect(replayed=True)
    assert not baseline.reference
    baseline.reference.append(burst(3e-6))
    baseline.expect(replayed=True)
    assert baseline.reference


def test_bursts_of_nothing_are_kept_by_kind_and_the_oldest_go() -> None:
    baseline = Baseline()
    for count in range(40):
        baseline.nothing(("cold", (1,))).append(burst(1e-6, count + 1))
    assert [kept.calls for kept in baseline.nothing(("cold", (1,)))] == list(range(17, 41))
    assert not baseline.nothing(("cold", (2,)))


def test_candidates_cannot_make_it_keep_more_and_more() -> None:
    baseline = Baseline()
    baseline.nothing("first").append(burst(1e-6))
    for number in range(1000):
        baseline.nothing("first")  # in use, and so never the oldest
        baseline.nothing(("made up", number)).append(burst(1e-6))
    assert len(baseline._nothing) == 200
    assert baseline.nothing("first")
    assert not baseline.nothing(("made up", 0))


def test_a_reference_that_takes_longer_now_is_forgotten_warm_and_cold() -> None:
    baseline = Baseline()
    baseline.reference.append(burst(1e-6))
    baseline.warm_reference.append(burst(1e-6))
    baseline.forget_reference()
    assert not baseline.reference
    assert not baseline.warm_reference

"""Tests of which of the two speedups counts, with which times, and what happens if it was not measured."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kerneldyno.rewards.speedups import (
    as_called,
    counted_in_json,
    counted_interval_in_json,
    counted_speedup,
    most_paid,
    other_speedup,
)
from kerneldyno.rpc.jsonio import result_to_json
from kerneldyno.v1.evaluation_pb2 import (
    SPEEDUP_KIND_DEVICE,
    SPEEDUP_KIND_END_TO_END,
    SPEEDUP_KIND_UNSPECIFIED,
    EvalResult,
    TimingStats,
)
from tests.rewards.reward_results import both_times, result

pytestmark = pytest.mark.pure


def test_a_result_of_an_earlier_evaluator_has_no_end_to_end_speedup_and_never_the_device_one_instead() -> None:
    for older in (
        result("CORRECT", speedup_kind="SPEEDUP_KIND_END_TO_END"),
        result("CORRECT", speedup_kind="SPEEDUP_KIND_END_TO_END", reference_timing=None, speedup=0.0),
    ):
        counted = counted_speedup(older)
        assert (counted.kind, counted.value, counted.unmeasured) == (SPEEDUP_KIND_END_TO_END, 0.0, True)
        assert (counted.interval, counted.candidate, counted.reference) == (None, None, None)
        assert counted_in_json(result_to_json(older)) == 0.0
        assert counted_speedup(older, SPEEDUP_KIND_DEVICE).value == older.speedup


def test_what_was_not_timed_at_all_is_not_called_unmeasured() -> None:
    for kind in (SPEEDUP_KIND_DEVICE, SPEEDUP_KIND_END_TO_END):
        for untimed in (
            result("INCORRECT"),
            result("CORRECT", speedup=0, speedup_interval=None, candidate_timing=None, reference_timing=None),
        ):
            counted = counted_speedup(untimed, kind)
            assert (counted.value, counted.unmeasured, counted.candidate) == (0.0, False, None)


def test_a_time_that_this_release_does_not_know_is_not_measured() -> None:
    newer = both_times()
    newer.speedup_kind = 7  # type: ignore[assignment]
    counted = counted_speedup(newer)
    assert (counted.value, counted.unmeasured, counted.candidate) == (0.0, True, None)
    assert counted.words == "by time 7"
    assert counted_in_json({"speedup_kind": "SPEEDUP_KIND_WALL", "speedup": 2.0, "end_to_end_speedup": 3.0}) == 0.0


@pytest.mark.parametrize("said", [SPEEDUP_KIND_UNSPECIFIED, SPEEDUP_KIND_DEVICE, SPEEDUP_KIND_END_TO_END])
@pytest.mark.parametrize("asked", [SPEEDUP_KIND_UNSPECIFIED, SPEEDUP_KIND_DEVICE, SPEEDUP_KIND_END_TO_END])
def test_who_asks_goes_before_what_the_result_says_and_device_time_is_the_rest(said: Any, asked: Any) -> None:
    both = both_times()
    both.speedup_kind = said
    kind = asked or said or SPEEDUP_KIND_DEVICE
    counted = counted_speedup(both, asked)
    assert counted.kind == kind
    assert counted.interval is not None
    assert counted.candidate is not None
    assert counted.reference is not None
    seen = (counted.value, counted.interval.low, counted.candidate.median_seconds, counted.reference.median_seconds)
    assert seen == ((1.5, 1.4, 4e-5, 6e-5) if kind == SPEEDUP_KIND_DEVICE else (3.0, 2.9, 6e-5, 1.8e-4))
    other = other_speedup(both, counted)
    assert {counted.kind, other.kind} == {SPEEDUP_KIND_DEVICE, SPEEDUP_KIND_END_TO_END}
    assert {counted.value, other.value} == {1.5, 3.0}
    assert counted_in_json(result_to_json(both)) == counted_speedup(both).value


def test_a_list_of_evaluations_shows_the_speedup_that_counts_without_its_times() -> None:
    brief = EvalResult(speedup=1.5, end_to_end_speedup=3.0, speedup_kind=SPEEDUP_KIND_END_TO_END)
    counted = counted_speedup(brief)
    assert (counted.value, counted.interval, counted.unmeasured) == (3.0, None, False)


@pytest.mark.parametrize("word", ["fast", [], {}])
def test_json_that_is_no_result_is_an_error(word: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        counted_in_json({"speedup": word or ["x"]})


def test_records_of_earlier_releases_are_by_device_time() -> None:
    assert counted_in_json({"speedup": 2.5}) == 2.5
    assert counted_in_json({"speedup": None}) == counted_in_json({}) == 0.0


def test_only_device_time_is_limited_by_what_the_reference_takes_queued_ahead() -> None:
    waits = both_times(regime="REGIME_AS_CALLED", queued_seconds=5e-5)
    assert as_called(waits)
    assert most_paid(waits, counted_speedup(waits)) == pytest.approx(1.25)
    assert most_paid(waits, counted_speedup(waits, SPEEDUP_KIND_END_TO_END)) == math.inf
    assert most_paid(both_times(), counted_speedup(both_times())) == math.inf
    assert not as_called(both_times())
    for broken in (math.nan, -1.0, 0.0):
        waits.reference_timing.queued_seconds = broken
        assert most_paid(waits, counted_speedup(waits)) == math.inf
    waits.candidate_timing.CopyFrom(TimingStats())
    waits.reference_timing.queued_seconds = 1.0
    assert most_paid(waits, counted_speedup(waits)) == math.inf


def test_the_interval_is_that_of_the_speedup_that_counts_and_no_number_is_none() -> None:
    both = both_times()
    for kind, speedup in ((SPEEDUP_KIND_DEVICE, both.speedup), (SPEEDUP_KIND_END_TO_END, both.end_to_end_speedup)):
        both.speedup_kind = kind
        counted = counted_speedup(both)
        assert (counted.low, counted.high) == pytest.approx((speedup - 0.1, speedup + 0.1))
        assert counted_interval_in_json(result_to_json(both)) == (counted.low, counted.high)
    both.end_to_end_speedup_interval.low, both.end_to_end_speedup_interval.high = math.nan, math.inf
    assert (counted_speedup(both).low, counted_speedup(both).high) == (None, None)
    assert counted_interval_in_json(result_to_json(both)) == (None, None)
    both.ClearField("end_to_end_speedup_interval")
    assert (counted_speedup(both).low, counted_interval_in_json(result_to_json(both))) == (None, (None, None))
    assert counted_interval_in_json({"speedup_interval": {"high": 2.0}}) == (0.0, 2.0), "proto-JSON leaves zeros out"
    with pytest.raises(TypeError, match="not an interval"):
        counted_interval_in_json({"speedup_interval": [1.0, 2.0]})

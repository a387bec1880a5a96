"""The effort of a timing: never more calls than allowed, and never longer than others can wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldyno.evaluator.judge.timing.effort import lease_seconds, plan


@given(
    per_call=st.floats(1e-7, 100),
    per_set=st.floats(0, 1),
    calls=st.integers(1, 1000),
    longest=st.integers(1, 40),
    limit=st.floats(0.1, 3600),
)
def test_no_plan_goes_beyond_what_was_asked_for(
    per_call: float, per_set: float, calls: int, longest: int, limit: float
) -> None:
    made = plan(per_call, per_set=per_set, calls=calls, longest=longest, limit=limit)
    assert 1 <= made.paced <= made.queued <= min(longest, max(1, calls))
    assert made.paced == made.queued or not made.chased
    assert made.calls == calls
    assert made.seconds <= limit
    assert made.seconds < 2 or per_call >= 0.15
    # Calls of both sides and of both kinds that are made even if the time is up.
    assert made.least_rounds * 4 * made.paced <= 10 or per_call < 0.1


@pytest.mark.parametrize(
    ("per_call", "cold", "displaced", "least"),
    [(20e-6, True, False, 3), (1e-3, True, True, 3), (30e-3, False, True, 3), (0.5, False, True, 2)],
)
def test_short_calls_are_many_and_cold_and_long_ones_few(
    per_call: float, cold: bool, displaced: bool, least: int
) -> None:
    made = plan(per_call, per_set=0.0, calls=100, longest=40, limit=60)
    assert (made.cold, made.displaced, made.least_rounds) == (cold, displaced, least)
    assert made.long != cold
    assert made.paced * per_call <= 0.02 or made.paced == 1
    assert not plan(per_call, per_set=0.0, calls=100, longest=40, limit=60, displaces=False).displaced


def test_large_inputs_make_short_bursts_since_few_can_be_drawn_ahead() -> None:
    assert plan(100e-6, per_set=0.0, calls=100, longest=40, limit=60, ahead=48).queued == 6
    assert plan(100e-6, per_set=0.0, calls=100, longest=40, limit=60, ahead=4000).queued == 16


def test_inputs_that_are_slow_to_draw_make_rounds_short() -> None:
    quick, slow = (plan(100e-6, per_set=each, calls=100, longest=40, limit=60) for each in (0.0, 5e-3))
    assert slow.queued < quick.queued
    assert slow.paced == slow.queued == 4


def test_end_to_end_times_are_chased_where_the_host_is_not_most_of_them_or_there_are_no_others() -> None:
    short, long = (plan(each, per_set=0.0, calls=100, longest=40, limit=60) for each in (50e-6, 1e-3))
    assert (short.chased, long.chased) == (False, True)
    only = plan(50e-6, per_set=0.0, calls=100, longest=40, limit=60, queued=False)
    assert only.chased
    assert only.paced > short.paced


def test_calls_that_turn_out_to_be_long_get_more_time_and_not_more_than_there_is() -> None:
    assert lease_seconds(0.08, 60) < 2
    assert 2 < lease_seconds(0.11, 60) <= 5
    assert lease_seconds(2.0, 600) == 18.0
    assert lease_seconds(2.0, 10) <= 5
    assert (
        plan(0.12, per_set=0.0, calls=100, longest=40, limit=60).seconds < 2
    )  # the first calls take longer than others

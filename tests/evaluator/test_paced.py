"""End-to-end time: the judge's own clock for each call, and the search for work that is hidden between calls."""

from __future__ import annotations

import random

import pytest

from kerneldyno.evaluator.judge.timing.end_to_end_time import PacedBurst, conclude_paced, overhead
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure


def burst(
    per_call: float,
    calls: int = 10,
    *,
    fixed: float = 5e-6,
    gap: float = 70e-6,
    claimed: float | None = None,
    seed: int = 1,
) -> PacedBurst:
    rng = random.Random(seed)
    seconds = [fixed + per_call + rng.uniform(0, 0.5e-6) for _ in range(calls)]
    said = [second if claimed is None else claimed for second in seconds]
    return PacedBurst(seconds, said, sum(seconds) + gap * (calls + 1))


NOTHING = [burst(0.0, seed=seed) for seed in range(3)]


def test_what_an_empty_call_costs_is_taken_off() -> None:
    timing = conclude_paced([burst(100e-6)], NOTHING, "cuda")
    assert timing.median == pytest.approx(100e-6, abs=1e-6)
    assert (timing.clock, timing.doubt) == (pb.TimingStats.CLOCK_EACH_CALL, None)
    assert overhead(NOTHING) == pytest.approx(5e-6, abs=1e-6)


def test_calls_of_nothing_that_something_has_delayed_accuse_nobody() -> None:
    """Two of three empty bursts ran on a processor half as quick; the call, with 27 us of device time, did not."""
    nothing = [burst(0.0, fixed=fixed, seed=seed) for seed, fixed in enumerate((20e-6, 45e-6, 45e-6))]
    timing = conclude_paced([burst(30e-6, fixed=20e-6)], nothing, "cuda", device_seconds=27e-6)
    assert timing.doubt is None
    assert timing.median == pytest.approx(30e-6, abs=1e-6)


def test_a_call_that_takes_no_longer_than_an_empty_one_still_takes_time() -> None:
    assert conclude_paced([burst(-4e-6)], NOTHING, "cuda").median > 0


def test_work_that_is_done_between_the_calls_counts() -> None:
    """Calls claim to be done at once, and their work is done during the wait for the next call."""
    timing = conclude_paced([burst(2e-6, gap=70e-6 + 300e-6)], NOTHING, "cuda")
    assert timing.doubt is not None
    assert timing.doubt[0] == "T01"
    assert timing.clock == pb.TimingStats.CLOCK_JUDGE
    assert timing.median > 290e-6


def test_work_that_is_done_before_the_first_call_counts_as_well() -> None:
    ahead = burst(2e-6)
    timing = conclude_paced(
        [PacedBurst(ahead.seconds, ahead.claimed, ahead.wall_seconds + 10 * 400e-6)], NOTHING, "cuda"
    )
    assert timing.doubt is not None
    assert timing.median > 390e-6


def test_one_burst_in_which_the_host_was_held_up_accuses_nobody() -> None:
    held_up = burst(100e-6, gap=900e-6)
    timing = conclude_paced([burst(100e-6, seed=2), held_up, burst(100e-6, seed=3)], NOTHING, "cuda")
    assert timing.doubt is None


def test_a_call_takes_at_least_what_the_device_needs_for_it() -> None:
    timing = conclude_paced([burst(20e-6)], NOTHING, "cuda", device_seconds=100e-6)
    assert timing.doubt is not None
    assert timing.median == 100e-6
    assert conclude_paced([burst(98e-6)], NOTHING, "cuda", device_seconds=100e-6).doubt is None


def test_inputs_that_lie_in_the_cache_accuse_nobody() -> None:
    """A memory-bound scan on an H100 took 70 us with its inputs in the cache, and 150 us of device time without."""
    timing = conclude_paced([burst(70e-6, fixed=15e-6)], [burst(0.0, fixed=15e-6)], "cuda", device_seconds=150e-6)
    assert timing.doubt is None
    assert timing.median == 150e-6


@pytest.mark.parametrize("said", [0.0, 1e-6, 50e-6])
def test_a_runner_that_understates_is_noticed_and_gains_nothing(said: float) -> None:
    timing = conclude_paced([burst(200e-6, claimed=said)], NOTHING, "cuda")
    assert timing.doubt is not None
    assert timing.median == pytest.approx(200e-6, abs=1e-6)


def test_one_that_overstates_is_not_believed_either() -> None:
    timing = conclude_paced([burst(200e-6, claimed=1.0)], NOTHING, "cuda")
    assert timing.doubt is None
    assert timing.median == pytest.approx(200e-6, abs=1e-6)


def test_the_host_of_a_cpu_device_may_be_busier() -> None:
    seen = [burst(300e-6, gap=260e-6)]
    assert conclude_paced(seen, NOTHING, "cuda").doubt is not None
    assert conclude_paced(seen, NOTHING, "cpu").doubt is None

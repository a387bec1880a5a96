"""The clock's arithmetic, on bursts whose true cost is known."""

from __future__ import annotations

import random

import pytest
from kerneldyno.evaluator.judge.timing import Burst, burst_lengths, conclude, conclude_trusted, ratio_interval, slope


def bursts(per_call: float, device: float, *, fixed: float = 300e-6, overhead: float = 100e-6) -> list[Burst]:
    lengths = burst_lengths(100, random.Random(1))
    return [Burst(n, fixed + n * (per_call + overhead), [device] * n) for n in lengths]


EMPTY = bursts(0.0, 1e-9)


def test_slope_takes_fixed_costs_off() -> None:
    assert slope(bursts(50e-6, 50e-6, overhead=0.0)) == pytest.approx(50e-6)


def test_honest_times_are_those_of_the_device() -> None:
    timing = conclude(bursts(52e-6, 50e-6), EMPTY, "cuda")
    assert timing.clock == "CLOCK_DEVICE_EVENTS"
    assert timing.median == 50e-6
    assert timing.judge_seconds == pytest.approx(52e-6)


@pytest.mark.parametrize("claimed", [5e-6, 0.0, -1.0, float("nan")])
def test_hidden_work_counts_by_the_judges_clock(claimed: float) -> None:
    timing = conclude(bursts(1000e-6, claimed), EMPTY, "cuda")
    assert timing.clock == "CLOCK_JUDGE"
    assert timing.median >= 1000e-6


def test_claiming_more_than_the_truth_is_believed() -> None:
    assert conclude(bursts(50e-6, 1.0), EMPTY, "cuda").median == 1.0


def test_work_done_in_every_third_call_only_costs_what_it_costs() -> None:
    honest = bursts(100e-6, 0.0)
    bimodal = [Burst(b.calls, b.wall_seconds, [300e-6 if n % 3 == 0 else 1e-6 for n in range(b.calls)]) for b in honest]
    timing = conclude(bimodal, EMPTY, "cuda")
    assert timing.agrees  # the sum is honest, and nothing is hidden from the mean
    assert timing.to_json()["mean_seconds"] == pytest.approx(100e-6, rel=0.2)


def test_the_reference_is_put_on_the_candidates_clock() -> None:
    by_judge = conclude_trusted(bursts(80e-6, 60e-6), EMPTY, by_judge=True)
    assert by_judge.clock == "CLOCK_JUDGE"
    assert by_judge.median >= 80e-6
    assert conclude_trusted(bursts(80e-6, 60e-6), EMPTY, by_judge=False).median == 60e-6


def test_interval_holds_the_ratio() -> None:
    rng = random.Random(3)
    noisy = [Burst(10, 1.0, [rng.gauss(100e-6, 5e-6) for _ in range(10)]) for _ in range(8)]
    faster = [Burst(10, 1.0, [rng.gauss(50e-6, 5e-6) for _ in range(10)]) for _ in range(8)]
    low, high = ratio_interval(
        conclude_trusted(noisy, EMPTY, by_judge=False), conclude_trusted(faster, EMPTY, by_judge=False), rng
    )
    assert 1.8 < low < 2.0 < high < 2.2


def test_lengths_differ_and_cannot_be_predicted() -> None:
    first, second = burst_lengths(100, random.Random(1)), burst_lengths(100, random.Random(2))
    assert first != second
    assert len(set(first)) > 3
    assert 85 <= sum(first) <= 115
    assert burst_lengths(1, random.Random(1)) == [1]

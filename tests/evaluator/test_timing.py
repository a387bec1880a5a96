"""The clock's arithmetic, on bursts whose true cost is known."""

from __future__ import annotations

import random

import pytest
from kerneldyno.evaluator.judge.timing import Burst, burst_lengths, conclude, conclude_trusted, fit, ratio_interval


def bursts(per_call: float, device: float, *, fixed: float = 300e-6, overhead: float = 100e-6) -> list[Burst]:
    lengths = burst_lengths(100, random.Random(1))
    return [Burst(n, fixed + n * (per_call + overhead), [device] * n) for n in lengths]


EMPTY = bursts(0.0, 2e-6)


def test_slope_takes_fixed_costs_off() -> None:
    line = fit(bursts(50e-6, 50e-6, overhead=0.0))
    assert line.slope == pytest.approx(50e-6)
    assert line.intercept == pytest.approx(300e-6)
    assert line.error < 1e-9


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


def test_nothing_is_faster_than_nothing() -> None:
    # Within the noise of the judge's clock, and yet an invention: an empty call takes 2 us on this device.
    timing = conclude(bursts(8e-6, 1e-9), EMPTY, "cuda")
    assert timing.clock == "CLOCK_JUDGE"
    assert timing.median >= 8e-6


def test_claiming_more_than_the_truth_is_believed() -> None:
    assert conclude(bursts(50e-6, 1.0), EMPTY, "cuda").median == 1.0


def test_work_done_in_every_third_call_only_costs_what_it_costs() -> None:
    honest = bursts(100e-6, 0.0)
    bimodal = [Burst(b.calls, b.wall_seconds, [290e-6 if n % 3 == 0 else 5e-6 for n in range(b.calls)]) for b in honest]
    timing = conclude(bimodal, EMPTY, "cuda")
    assert timing.agrees  # the sum is honest, and nothing is hidden from the mean
    assert timing.to_json()["mean_seconds"] == pytest.approx(100e-6, rel=0.2)


def test_the_references_own_device_times_are_trusted() -> None:
    timing = conclude_trusted(bursts(80e-6, 60e-6), EMPTY)
    assert timing.clock == "CLOCK_DEVICE_EVENTS"
    assert timing.median == 60e-6


def test_noisy_bursts_accuse_nobody() -> None:
    rng = random.Random(5)
    noisy = [Burst(b.calls, b.wall_seconds + rng.uniform(0, 2e-3), b.device_seconds) for b in bursts(60e-6, 50e-6)]
    assert conclude(noisy, EMPTY, "cuda").clock == "CLOCK_DEVICE_EVENTS"
    # Though it is known that they could not have told: longer bursts are asked for.
    assert not conclude(noisy, EMPTY, "cuda").sharp
    assert conclude(bursts(60e-6, 50e-6), EMPTY, "cuda").sharp
    # Yet no noise of that size hides a millisecond a call.
    hiding = [Burst(b.calls, b.wall_seconds + rng.uniform(0, 2e-3), b.device_seconds) for b in bursts(2e-3, 50e-6)]
    assert conclude(hiding, EMPTY, "cuda").clock == "CLOCK_JUDGE"


def test_interval_holds_the_ratio() -> None:
    rng = random.Random(3)
    noisy = [Burst(10, 1.0, [rng.gauss(100e-6, 5e-6) for _ in range(10)]) for _ in range(8)]
    faster = [Burst(10, 1.0, [rng.gauss(50e-6, 5e-6) for _ in range(10)]) for _ in range(8)]
    low, high = ratio_interval(conclude_trusted(noisy, EMPTY), conclude_trusted(faster, EMPTY), rng)
    assert 1.8 < low < 2.0 < high < 2.2


def test_lengths_differ_and_cannot_be_predicted() -> None:
    first, second = burst_lengths(100, random.Random(1)), burst_lengths(100, random.Random(2))
    assert first != second
    assert len(set(first)) > 3
    assert 85 <= sum(first) <= 115
    assert burst_lengths(1, random.Random(1)) == [1]

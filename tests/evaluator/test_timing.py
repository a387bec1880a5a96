"""The clock: what is believed, what is not, and what a lie costs. The bursts are made up; real ones are elsewhere."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from kerneldyno.evaluator.judge.timing import (
    Burst,
    Evidence,
    Timing,
    conclude,
    conclude_trusted,
    fit,
    lengths,
    ratio_interval,
    sharp,
)


def bursts(
    per_call: float,
    device: float | Sequence[float],
    *,
    fixed: float = 300e-6,
    overhead: float = 100e-6,
    noise: float = 5e-6,
    seed: int = 2,
) -> list[Burst]:
    rng = random.Random(seed)
    made: list[Burst] = []
    spread = itertools.cycle([device] if isinstance(device, float) else device)
    for count in lengths(200, 40, 8, random.Random(1)):
        samples = list(itertools.islice(spread, count))
        made.append(Burst(count, fixed + count * (overhead + per_call) + rng.uniform(-noise, noise), samples))
    return made


EMPTY = bursts(0.0, 2e-6, seed=3)
WARM_EMPTY = bursts(0.0, 2e-6, overhead=10e-6, seed=4)


def judged(
    true: float, cold: float | Sequence[float], warm: float | None = None, *, kind: str = "cuda", noise: float = 5e-6
) -> Timing:
    """What is concluded about a kernel that takes `true` seconds and whose runner says `cold` and `warm`."""
    said = warm if warm is not None else cold if isinstance(cold, float) else sum(cold) / len(cold)
    warm_bursts = bursts(true, said, overhead=10e-6, noise=noise)
    return conclude(Evidence(bursts(true, cold, noise=noise), EMPTY, warm_bursts, WARM_EMPTY, kind))


def test_slope_takes_fixed_costs_off() -> None:
    line = fit(bursts(50e-6, 50e-6, noise=0.0))
    assert line.slope == pytest.approx(150e-6)
    assert line.intercept == pytest.approx(300e-6)


@pytest.mark.parametrize("true", [3e-6, 50e-6, 5e-3])
def test_honest_times_are_those_of_the_device(true: float) -> None:
    timing = judged(true, true + 2e-6)  # events cost a little themselves
    assert timing.clock == "CLOCK_DEVICE_EVENTS"
    assert timing.doubt is None
    assert timing.median == pytest.approx(true + 2e-6)


@pytest.mark.parametrize(
    ("cold", "warm", "found"),
    [
        (5e-6, 5e-6, "T01"),  # hidden everywhere
        (5e-6, 1000e-6, "T16"),  # honest where nothing lies between the calls, and only there
        (1000e-6, 5e-6, "T01"),  # the other way round
        (1e-9, 1e-9, "T28"),
    ],
)
def test_hidden_work_counts_by_the_judges_clock(cold: float, warm: float, found: str) -> None:
    timing = judged(1000e-6, cold, warm)
    assert timing.clock == "CLOCK_JUDGE"
    assert timing.doubt is not None
    assert timing.doubt[0] == found
    assert timing.median >= 0.95 * 1000e-6


def test_a_few_microseconds_cannot_be_hidden() -> None:
    assert judged(12e-6, 4e-6, 4e-6).median >= 10e-6
    assert judged(5e-6, 4.5e-6, 4.5e-6).clock == "CLOCK_DEVICE_EVENTS"


def test_claiming_more_than_the_truth_is_believed() -> None:
    assert judged(50e-6, 1.0, 1.0).median == 1.0


@pytest.mark.parametrize(
    "claims",
    [
        [150e-6, 2.5e-6, 2.5e-6],  # work in every third call
        [98e-6] * 16 + [4e-6] * 24,  # well over half are small
        [4e-6] * 39 + [1900e-6],  # one call bears everything
    ],
)
def test_uneven_claims_cost_what_the_calls_cost(claims: list[float]) -> None:
    true = sum(claims) / len(claims)
    timing = judged(true, claims, true)
    assert timing.clock == "CLOCK_JUDGE"
    assert timing.median >= 0.9 * true


def test_a_few_slow_calls_accuse_nobody() -> None:
    timing = judged(50e-6, [52e-6] * 38 + [90e-6, 120e-6], 50e-6)
    assert timing.clock == "CLOCK_DEVICE_EVENTS"


def test_the_references_own_device_times_are_trusted() -> None:
    timing = conclude_trusted(bursts(80e-6, 60e-6))
    assert timing.median == 60e-6
    assert timing.clock == "CLOCK_DEVICE_EVENTS"


def test_noisy_bursts_accuse_nobody_and_count_as_they_are() -> None:
    noisy = bursts(48e-6, 50e-6, overhead=10e-6, noise=1.5e-3)
    evidence = Evidence(noisy, EMPTY, noisy, WARM_EMPTY, "cuda")
    assert not sharp(evidence)
    timing = conclude(evidence)
    assert timing.doubt is None
    assert timing.clock == "CLOCK_JUDGE"
    assert timing.median >= 50e-6
    assert sharp(Evidence(EMPTY, EMPTY, bursts(50e-6, 50e-6), WARM_EMPTY, "cuda"))


def test_interval_holds_the_ratio() -> None:
    rng = random.Random(3)
    noisy = [Burst(20, 1.0, [rng.gauss(60e-6, 3e-6) for _ in range(20)]) for _ in range(5)]
    faster = [Burst(20, 1.0, [rng.gauss(30e-6, 1e-6) for _ in range(20)]) for _ in range(5)]
    low, high = ratio_interval(conclude_trusted(noisy), conclude_trusted(faster), rng)
    assert 1.8 < low < 2.0 < high < 2.2


def test_lengths_differ_cannot_be_predicted_and_stay_within_the_longest() -> None:
    first, second = lengths(100, 40, 8, random.Random(1)), lengths(100, 40, 8, random.Random(2))
    assert first != second
    assert max(first) >= 2 * min(first)
    assert 80 <= sum(first) <= 120
    assert max(lengths(1000, 40, 8, random.Random(1))) == 40
    assert lengths(1, 40, 8, random.Random(1)) == [1]

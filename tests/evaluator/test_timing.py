"""Device time: which claims are believed, and what a lie costs. Bursts are made up; other tests have real ones."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from kerneldyno.evaluator.judge.timing.device_time import (
    Burst,
    Evidence,
    Timing,
    by_judge,
    conclude,
    conclude_trusted,
    fit,
    launching,
    length,
    nothing_is_noisier,
    quickest,
    settled,
    sharp,
)
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure

#: Burst lengths as a timing session draws them.
LENGTHS = [length(24, 40, random.Random(seed)) for seed in range(8)]


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
    for count in LENGTHS:
        samples = list(itertools.islice(spread, count))
        made.append(Burst(count, fixed + count * (overhead + per_call) + rng.uniform(-noise, noise), samples))
    return made


EMPTY = bursts(0.0, 2e-6, seed=3)
WARM_EMPTY = bursts(0.0, 2e-6, overhead=10e-6, seed=4)


def judged(true: float, cold: float | Sequence[float], warm: float | None = None, *, noise: float = 5e-6) -> Timing:
    """Return the conclusion about a kernel that takes `true` seconds and whose runner claims `cold` and `warm`."""
    said = warm if warm is not None else cold if isinstance(cold, float) else sum(cold) / len(cold)
    warm_bursts = bursts(true, said, overhead=10e-6, noise=noise)
    return conclude(Evidence(bursts(true, cold, noise=noise), EMPTY, warm_bursts, WARM_EMPTY))


def test_whom_chance_has_delayed_is_cleared_by_more_bursts_and_who_lies_is_not() -> None:
    def pair(true: float, delay: float = 0.0) -> list[Burst]:
        return [Burst(count, 300e-6 + count * true + late, [50e-6] * count) for count, late in ((4, 0), (16, delay))]

    nothing = [Burst(count, 300e-6, [2e-6] * count) for count in (4, 16, 4, 16)]
    delayed = pair(50e-6, 500e-6) + pair(50e-6, 505e-6)
    for warm, calm in ((delayed, False), (delayed + pair(50e-6) * 6, True), (pair(90e-6) * 16, False)):
        evidence = Evidence(bursts(50e-6, 50e-6), EMPTY, warm, nothing)
        assert sharp(evidence)
        assert settled(evidence) == calm
        assert (conclude(evidence).doubt is None) == calm


def test_slope_takes_fixed_costs_off() -> None:
    line = fit(bursts(50e-6, 50e-6, noise=0.0))
    assert line.slope == pytest.approx(150e-6)
    assert line.intercept == pytest.approx(300e-6)


@pytest.mark.parametrize("true", [3e-6, 50e-6, 5e-3])
def test_honest_times_are_those_of_the_device(true: float) -> None:
    timing = judged(true, true + 2e-6)  # events themselves take a little time
    assert timing.clock == pb.TimingStats.CLOCK_DEVICE_EVENTS
    assert timing.doubt is None
    assert timing.median == pytest.approx(true + 2e-6)


@pytest.mark.parametrize(
    ("cold", "warm", "found"),
    [
        (5e-6, 5e-6, "T01"),  # work is hidden everywhere
        (5e-6, 1000e-6, "T16"),  # honest only where nothing lies between the calls
        (1000e-6, 5e-6, "T01"),  # honest only in cold bursts
        (1e-9, 1e-9, "T28"),
    ],
)
def test_hidden_work_counts_by_the_judges_clock(cold: float, warm: float, found: str) -> None:
    timing = judged(1000e-6, cold, warm)
    assert timing.clock == pb.TimingStats.CLOCK_JUDGE
    assert timing.doubt is not None
    assert timing.doubt[0] == found
    assert timing.median >= 0.95 * 1000e-6


def test_a_few_microseconds_cannot_be_hidden() -> None:
    assert judged(12e-6, 4e-6, 4e-6).median >= 10e-6
    assert judged(5e-6, 4.5e-6, 4.5e-6).clock == pb.TimingStats.CLOCK_DEVICE_EVENTS


def test_claiming_more_than_the_truth_is_believed() -> None:
    assert judged(50e-6, 1.0, 1.0).median == 1.0


@pytest.mark.parametrize(
    "claims",
    [
        [150e-6, 2.5e-6, 2.5e-6],  # only every third call works
        [98e-6] * 16 + [4e-6] * 24,  # more than half of the claims are small
        [4e-6] * 39 + [1900e-6],  # one call claims nearly all of the time
    ],
)
def test_uneven_claims_cost_what_the_calls_cost(claims: list[float]) -> None:
    true = sum(claims) / len(claims)
    timing = judged(true, claims, true)
    assert timing.clock == pb.TimingStats.CLOCK_JUDGE
    assert timing.median >= 0.9 * true


def test_a_few_slow_calls_accuse_nobody() -> None:
    timing = judged(50e-6, [52e-6] * 38 + [90e-6, 120e-6], 50e-6)
    assert timing.clock == pb.TimingStats.CLOCK_DEVICE_EVENTS


def test_the_references_own_device_times_are_trusted() -> None:
    timing = conclude_trusted(bursts(80e-6, 60e-6))
    assert timing.median == 60e-6
    assert timing.clock == pb.TimingStats.CLOCK_DEVICE_EVENTS


def test_noisy_bursts_accuse_nobody_and_count_as_they_are() -> None:
    noisy = bursts(48e-6, 50e-6, overhead=10e-6, noise=1.5e-3)
    evidence = Evidence(noisy, EMPTY, noisy, WARM_EMPTY)
    assert not sharp(evidence)
    timing = conclude(evidence)
    assert timing.doubt is None
    assert timing.clock == pb.TimingStats.CLOCK_JUDGE
    assert timing.median >= 50e-6
    assert sharp(Evidence(EMPTY, EMPTY, bursts(50e-6, 50e-6), WARM_EMPTY))


def delayed(
    per_call: float, rng: random.Random, *, pairs: int, fixed: float = 1.5e-3, scale: float = 60e-6
) -> list[Burst]:
    """Return pairs of a short and a long burst. Each has a random delay, mostly a short one, sometimes a long one."""
    return [
        Burst(count, fixed + count * per_call + rng.expovariate(1 / scale), [per_call] * count)
        for _ in range(pairs)
        for count in (10, 40)
    ]


@pytest.mark.parametrize("pairs", [3, 8, 16])
def test_the_quickest_bursts_tell_and_know_how_well(pairs: int) -> None:
    rng = random.Random(pairs)
    lines = [quickest(delayed(50e-6, rng, pairs=pairs)) for _ in range(300)]
    errors = sorted(abs(line.slope - 50e-6) for line in lines)
    assert errors[150] < 60e-6 / pairs / 30 * 1.5
    covered = sum(abs(line.slope - 50e-6) <= 2 * line.error for line in lines)
    assert covered >= 0.75 * len(lines)
    by_mean = sorted(abs(fit(delayed(50e-6, rng, pairs=pairs)).slope - 50e-6) for _ in range(300))
    assert errors[150] < by_mean[150]


def test_it_is_known_which_side_is_the_noisier() -> None:
    rng = random.Random(3)
    quiet, loud = (delayed(20e-6, rng, pairs=4, scale=scale) for scale in (5e-6, 500e-6))
    assert nothing_is_noisier(Evidence(EMPTY, EMPTY, quiet, loud))
    assert not nothing_is_noisier(Evidence(EMPTY, EMPTY, loud, quiet))


def test_and_of_bursts_of_one_length_as_well() -> None:
    quiet, loud = alike(2e-3, 2e-3, late=(0.0, 9e-6, 15e-6)), alike(1e-5, 2e-6, late=(0.0, 52e-6, 72e-6))
    assert nothing_is_noisier(Evidence(EMPTY, EMPTY, quiet, loud))
    assert not nothing_is_noisier(Evidence(EMPTY, EMPTY, loud, quiet))


def test_bursts_of_many_lengths_are_fitted() -> None:
    many = bursts(50e-6, 50e-6)
    assert quickest(many) == fit(many)


def test_hidden_work_shows_however_much_the_clock_jitters() -> None:
    rng = random.Random(5)
    for _ in range(20):
        warm = [
            Burst(burst.calls, burst.wall_seconds, [50e-6] * burst.calls)  # a call takes twice the claim
            for burst in delayed(110e-6, rng, pairs=16)
        ]
        timing = conclude(Evidence(bursts(50e-6, 50e-6), EMPTY, warm, delayed(10e-6, rng, pairs=16)))
        assert timing.doubt is not None
        assert timing.median > 95e-6


def test_a_clock_that_is_not_sharp_adds_only_what_it_says_beyond_the_claim() -> None:
    """Calls whose inputs lie where no call has been take longer, also by device events. That is no lie."""
    slower = [
        Burst(burst.calls, burst.wall_seconds, [72e-6] * burst.calls) for burst in bursts(72e-6, 72e-6, overhead=10e-6)
    ]
    ragged = [
        Burst(burst.calls, burst.wall_seconds + (0.8e-3 if at % 2 else 0.0), burst.device_seconds)
        for at, burst in enumerate(slower)
    ]
    timing = conclude(Evidence(bursts(60e-6, 60e-6), EMPTY, ragged, WARM_EMPTY))
    assert timing.doubt is None
    assert timing.clock == pb.TimingStats.CLOCK_JUDGE
    assert 60e-6 <= timing.median < 90e-6


def test_noise_is_no_cover_for_a_cold_claim_that_no_warm_call_bears_out() -> None:
    """The claim is 8 us for cold calls, and true for warm ones. A noisy clock cannot contradict it, but counts."""
    warm = [
        Burst(burst.calls, burst.wall_seconds + (30e-3 if at % 2 else 0.0), [2e-3] * burst.calls)
        for at, burst in enumerate(bursts(2e-3, 2e-3, overhead=10e-6))
    ]
    evidence = Evidence(bursts(2e-3, 8e-6, noise=20e-3), EMPTY, warm, WARM_EMPTY)
    assert not sharp(evidence)
    assert conclude(evidence).median > 1e-3


@pytest.mark.parametrize("scale", [1e-3, 10e-3, 40e-3])
@pytest.mark.parametrize("pairs", [2, 3, 6])
def test_noise_is_no_cover_for_a_clock_that_is_forged_everywhere(pairs: int, scale: float) -> None:
    """All device times are a 64th of the truth. If short bursts wait by chance, the slope may have any value."""
    rng = random.Random(pairs)
    for _ in range(200):
        warm, cold = (
            [
                Burst(burst.calls, burst.wall_seconds, [3e-3 / 64] * burst.calls)
                for burst in delayed(3e-3, rng, pairs=count, scale=scale)
            ]
            for count in (pairs, 4)
        )
        nothing = delayed(10e-6, rng, pairs=6, fixed=1e-3, scale=1e-3)
        assert conclude(Evidence(cold, nothing, warm, nothing)).median > 0.75 * 3e-3


def test_lengths_differ_cannot_be_predicted_and_stay_within_the_longest() -> None:
    first, second = ([length(12, 40, random.Random(seed + at)) for at in range(20)] for seed in (1, 100))
    assert first != second
    assert max(first) >= 2 * min(first)
    assert 9 <= sum(first) / 20 <= 15
    assert max(length(40, 40, random.Random(seed)) for seed in range(20)) == 40
    assert {length(1, 40, random.Random(seed)) for seed in range(20)} <= {1, 2}
    assert length(24, 1, random.Random(1)) == 1


# Bursts of one length only, because no more calls can be queued, or each takes long


def alike(
    per_call: float, claimed: float, *, calls: int = 1, late: Sequence[float] = (0.0, 80e-6, 150e-6)
) -> list[Burst]:
    return [Burst(calls, 900e-6 + calls * per_call + each, [claimed] * calls) for each in late]


@pytest.mark.parametrize("calls", [1, 2])
def test_bursts_of_one_length_are_held_against_nothing_of_the_same_length(calls: int) -> None:
    clock = by_judge(alike(20e-3, 0.0, calls=calls), alike(1e-5, 0.0, calls=calls), 0.65e-3)
    assert clock.seconds == pytest.approx(20e-3, rel=0.01)
    assert clock.error < 0.4e-3


def test_honest_calls_that_take_long_are_believed() -> None:
    seen, nothing = alike(20e-3, 20e-3), alike(1e-5, 2e-6)
    timing = conclude(Evidence(seen, nothing, seen, nothing))
    assert timing.clock == pb.TimingStats.CLOCK_DEVICE_EVENTS
    assert timing.median == 20e-3


def test_and_lies_about_them_are_not() -> None:
    seen, nothing = alike(20e-3, 10e-3), alike(1e-5, 2e-6)
    timing = conclude(Evidence(seen, nothing, seen, nothing))
    assert timing.doubt is not None
    assert timing.median >= 19e-3


#: Delays of three bursts in seconds, as seen on an H200 when the judge's copy of inputs waits for other contexts.
LATE = (0.0, 1.75e-3, 1.86e-3)


def test_delays_of_some_long_calls_leave_what_the_quickest_says() -> None:
    seen, nothing = alike(13.4e-3, 13.1e-3, late=LATE), alike(1e-5, 2e-6, late=(0.0, 30e-6, 60e-6))
    assert by_judge(seen, nothing, 0.65e-3).error > 1e-3
    timing = conclude(Evidence(seen, nothing, seen, nothing))
    assert timing.clock == pb.TimingStats.CLOCK_DEVICE_EVENTS
    assert timing.median == 13.1e-3


def test_delays_made_to_excuse_a_lie_do_not_make_it_true() -> None:
    seen, nothing = alike(13.4e-3, 11e-3, late=LATE), alike(1e-5, 2e-6, late=(0.0, 30e-6, 60e-6))
    timing = conclude(Evidence(seen, nothing, seen, nothing))
    assert timing.clock == pb.TimingStats.CLOCK_JUDGE
    assert timing.median >= 13.3e-3


def test_a_clock_that_is_hardly_not_sharp_enough_bears_out_what_it_agrees_with() -> None:
    """Calls of a millisecond on many GB are timed one by one, and the clock cannot detect an error of a tenth."""
    seen, nothing = alike(1.21e-3, 1.15e-3, late=(0.0,)), alike(0.0, 3e-6, late=(0.0,))
    evidence = Evidence(seen, nothing, seen, nothing)
    assert not sharp(evidence)
    assert settled(evidence)
    assert conclude(evidence).clock == pb.TimingStats.CLOCK_DEVICE_EVENTS
    lied = alike(1.21e-3, 1.0e-3, late=(0.0,))
    timing = conclude(Evidence(lied, nothing, lied, nothing))
    assert timing.clock == pb.TimingStats.CLOCK_JUDGE
    assert timing.median >= 1.2e-3


def test_a_large_call_is_not_accused_of_what_copying_its_output_took() -> None:
    """As seen on an H200: calls on 6.4 GB, and, once, calls on 4.3 GB with late empty bursts."""
    for seen, claimed, late in ((3.215e-3, 3.037e-3, 0.0), (2.025e-3, 2.024e-3, 52e-6)):
        made, nothing = alike(seen, claimed, late=(0.0,)), alike(0.0, 3e-6, late=(0.0, late, late))
        timing = conclude(Evidence(made, nothing, made, nothing))
        assert timing.clock == pb.TimingStats.CLOCK_DEVICE_EVENTS
        assert timing.median == claimed


def test_one_late_cold_burst_accuses_nobody() -> None:
    """Delays are never negative, so the burst with the least time per call tells what a call costs."""
    seen = bursts(70e-6, 70e-6)
    for at in range(len(seen) - 1):
        delayed_ones = [
            Burst(burst.calls, burst.wall_seconds + (6e-3 if number <= at else 0.0), burst.device_seconds)
            for number, burst in enumerate(seen)
        ]
        warm = bursts(70e-6, 70e-6, overhead=10e-6)
        assert conclude(Evidence(delayed_ones, EMPTY, warm, WARM_EMPTY)).doubt is None


def test_bursts_made_to_last_equally_long_hide_nothing() -> None:
    levelled = [Burst(burst.calls, 40 * 160e-6, [5e-6] * burst.calls) for burst in bursts(60e-6, 5e-6)]
    honest_when_warm = bursts(60e-6, 60e-6, overhead=10e-6)
    timing = conclude(Evidence(levelled, EMPTY, honest_when_warm, WARM_EMPTY))
    assert timing.doubt is not None
    assert timing.median > 40e-6


def revealed(spread: Sequence[float]) -> list[Burst]:
    """Return bursts of two lengths. Copying their inputs takes a different time for each, and delays it by that."""
    return [
        Burst(count, 1e-3 + late + count * 20e-6, [20e-6] * count, 1e-3 + late)
        for count, late in zip(itertools.cycle((10, 40)), spread, strict=False)
    ]


def test_what_the_judge_took_longer_to_reveal_does_not_make_its_clock_noisy() -> None:
    line = quickest(revealed([0.0, 45e-6, 30e-6, 10e-6]))
    assert line.slope == pytest.approx(20e-6)
    assert line.error == pytest.approx(0.0, abs=1e-12)


def test_but_no_more_than_a_little_since_who_works_meanwhile_would_hide_it() -> None:
    working = [
        Burst(burst.calls, burst.wall_seconds + (0.5e-3 if burst.calls == 40 else 0.0), burst.device_seconds, late)
        for burst, late in zip(revealed([0.0] * 4), itertools.cycle((1e-3, 1.5e-3)), strict=False)
    ]
    assert quickest(working).slope == pytest.approx(20e-6 + 0.45e-3 / 30)


def test_launching_costs_what_it_does_in_most_bursts_and_an_interrupted_host_changes_little() -> None:
    queued = [Burst(9, 1.0, [1e-6] * 9, launch_seconds=seconds) for seconds in (31e-6, 5e-3, 30e-6, 29e-6, 30e-6)]
    assert launching(queued) == 30e-6


def test_calls_that_were_not_queued_ahead_have_no_time_of_launching() -> None:
    assert launching([Burst(9, 1.0, [1e-6] * 9, launch_seconds=30e-6), Burst(9, 1.0, [1e-6] * 9)]) == 0.0

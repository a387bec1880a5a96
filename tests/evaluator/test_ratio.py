"""From rounds to a ratio: slowness of both sides cancels, luck of one side does not count, and intervals cover."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

import pytest

from kerneldyno.evaluator.judge.timing import ratio
from kerneldyno.evaluator.judge.timing.ratio import (
    expected_spread,
    of_delayed_rounds,
    of_rounds,
    of_short_calls,
    trimmed_mean,
    widened,
)


def noisy(rng: random.Random, middle: float, spread: float, rounds: int) -> list[float]:
    return [middle * rng.lognormvariate(0, spread) for _ in range(rounds)]


def test_what_slows_both_sides_down_for_a_while_cancels() -> None:
    rng = random.Random(1)
    host = [rng.choice([1.0, 1.7]) for _ in range(20)]
    found = of_rounds([3e-3 * slow for slow in host], [2e-3 * slow for slow in host])
    assert found.value == pytest.approx(1.5)
    assert found.width < 1e-9
    assert found.is_paired


def test_a_round_that_goes_wrong_changes_nothing() -> None:
    reference = [1e-3] * 10
    candidate = [1e-3] * 9 + [80e-3]
    assert of_rounds(reference, candidate).value == pytest.approx(1.0)


@pytest.mark.parametrize("rounds", [3, 4])
def test_of_a_few_rounds_one_that_goes_wrong_changes_little_but_the_interval(rounds: int) -> None:
    found = of_rounds([1e-3] * rounds, [1e-3] * (rounds - 1) + [1.4])
    assert 0.85 < found.value < 1
    assert found.low < 0.1
    assert found.high > 10


@pytest.mark.parametrize("rounds", [3, 4, 5, 10, 30])
def test_intervals_cover_the_truth_as_often_as_they_say(rounds: int) -> None:
    rng = random.Random(rounds)
    covered = 0
    for _ in range(400):
        found = of_rounds(noisy(rng, 2e-3, 0.05, rounds), noisy(rng, 1e-3, 0.05, rounds))
        covered += found.low <= 2.0 <= found.high
        assert found.low <= found.value <= found.high
    assert covered >= 0.92 * 400


def until_known(rng: random.Random, spread: float, between: float, *, expects: bool) -> tuple[bool, int]:
    """Make rounds of six calls until the interval is 3 % wide. Return if it covers the truth, and their number."""
    reference: list[list[float]] = []
    candidate: list[list[float]] = []
    while True:
        for side, middle in ((reference, 2e-3), (candidate, 1e-3)):
            side.append(noisy(rng, middle * rng.lognormvariate(0, between), spread, 6))
        if len(reference) < 3:
            continue
        expected = expected_spread(reference, candidate) if expects else 0.0
        found = of_rounds(list(map(trimmed_mean, reference)), list(map(trimmed_mean, candidate)), expected=expected)
        if found.width < 0.03 or len(reference) == 40:
            return found.low <= 2 <= found.high, len(reference)


@pytest.mark.parametrize(("between", "least"), [(0.0, 0.93), (0.01, 0.86)])
def test_what_calls_vary_by_says_when_enough_rounds_agree(between: float, least: float) -> None:
    """Rounds that agree by chance end a timing too early, and rounds that differ by chance end it too late."""
    rng = random.Random(5)
    by_rounds, by_both = (
        [until_known(rng, 0.025, between, expects=each) for _ in range(400)] for each in (False, True)
    )
    covered, before = (sum(covers for covers, _ in kind) / len(kind) for kind in (by_both, by_rounds))
    assert covered >= least
    assert covered > before
    assert statistics.fmean(rounds for _, rounds in by_both) < statistics.fmean(rounds for _, rounds in by_rounds)


def test_single_calls_say_nothing_of_what_rounds_vary_by() -> None:
    assert expected_spread([[1e-3], [1e-3]], [[1e-3], [1e-3]]) == 0


def test_more_rounds_say_more() -> None:
    rng = random.Random(7)
    widths = [
        statistics.median(
            of_rounds(noisy(rng, 1e-3, 0.05, rounds), noisy(rng, 1e-3, 0.05, rounds)).width for _ in range(50)
        )
        for rounds in (3, 6, 12, 25, 50)
    ]
    assert widths == sorted(widths, reverse=True)


def test_one_round_knows_nothing_of_its_own_error() -> None:
    found = of_rounds([2e-3], [1e-3])
    assert found.value == 2.0
    assert found.width > 0.15


def placed(rng: random.Random, chance: float, rounds: int) -> list[float]:
    """Return rounds of a kernel: 4.9 ms with probability `chance`, and 6.4 ms if its memory is badly placed."""
    return [(4.9e-3 if rng.random() < chance else 6.4e-3) * rng.gauss(1, 0.002) for _ in range(rounds)]


def test_memory_that_lies_badly_on_one_side_is_no_speedup() -> None:
    rng, far, paired = random.Random(4), 0, 0
    for _ in range(100):
        found = of_rounds(placed(rng, 0.5, 15), placed(rng, 0.4, 15), displaced=True)
        far += abs(found.value - 1) > 0.01
        paired += found.is_paired  # by chance, both may be badly placed in the same rounds
    assert far <= 2
    assert paired <= 5


def test_memory_that_lies_badly_for_whoever_comes_first_is_no_speedup() -> None:
    """A convolution against itself on an H200: the side that comes first may always get the other one's old memory."""
    reference = [3266, 3481, 3469, 3248, 3468, 3244, 3484, 3243, 3471, 3260]
    candidate = [3485, 3267, 3249, 3267, 3258, 3248, 3260, 3247, 3247, 3255]
    found = of_rounds(reference, candidate, displaced=True)
    assert not found.is_paired
    assert found.value == pytest.approx(1, abs=0.003)


def test_a_side_whose_memory_lay_badly_in_all_of_a_few_rounds_may_be_as_quick_as_the_other() -> None:
    """A convolution against itself on an H200: in 12 rounds (10 here), the candidate's memory was never well placed."""
    rng = random.Random(4)
    both, slow = placed(rng, 0.5, 10), placed(rng, 0.0, 10)
    found = of_rounds(both, slow, displaced=True)
    assert found.value == pytest.approx(4.9 / 6.4, abs=0.01)
    assert found.low < 0.78 < 1.0 < found.high
    found = of_rounds(slow, both, displaced=True)
    assert found.low < 1.0 < 1.28 < found.high
    # Nothing is hidden if both sides had both speeds, or after many rounds: a quick speed would have been seen.
    for reference, candidate in ((both, both[::-1]), (placed(rng, 0.5, 14), placed(rng, 0.0, 14))):
        assert of_rounds(reference, candidate, displaced=True).width < 0.05


def test_one_slow_round_does_not_say_that_the_other_side_hides_something() -> None:
    reference = [1e-3] * 5 + [1.3e-3]
    assert of_rounds(reference, [1e-3] * 6, displaced=True).width < 0.05


def test_rounds_of_calls_from_the_host_that_agree_by_chance_do_not_end_a_timing() -> None:
    """Rounds end when they agree to a hundredth. Intervals still cover the truth; plain ones often do not."""
    missed = {"plain": 0, "as called": 0}
    for seed in range(300):
        rng = random.Random(seed)
        sides = [[rng.gauss(1e-3, 6e-6)] for _ in range(60)], [[rng.gauss(1e-3, 6e-6)] for _ in range(60)]
        for name in missed:
            for rounds in range(3, 61):
                ours, theirs = (side[:rounds] for side in sides)
                plain = of_rounds(middles(ours), middles(theirs))
                found = plain if name == "plain" else of_delayed_rounds(ours, theirs)
                if found.width <= 0.01:
                    break
            missed[name] += not found.low <= 1 <= found.high
    assert missed["as called"] <= 0.08 * 300 < missed["plain"]


def test_where_all_memory_lies_alike_rounds_are_paired_though_they_were_displaced() -> None:
    rng = random.Random(4)
    found = of_rounds(placed(rng, 1.0, 6), placed(rng, 1.0, 6), displaced=True)
    assert found.is_paired
    assert found.rounds == list(range(6))


def test_a_candidate_that_is_found_slower_has_a_smaller_ratio_and_interval() -> None:
    found = of_rounds([2e-3, 2.1e-3, 2.05e-3], [1e-3] * 3).scaled(2)
    assert found.value == pytest.approx(1.025, rel=0.02)
    assert found.low < found.value < found.high < 1.5


def test_what_no_round_shows_makes_the_interval_wider() -> None:
    exact = of_rounds([50e-6] * 5, [50e-6] * 5)
    low, high = widened(exact, 50e-6, 50e-6)
    assert 0.98 < low < 0.994
    assert 1.006 < high < 1.02
    for more in ({"kernels": 20}, {"kernels": 20, "same_pace": False}, {"host": 0.9}):
        wider = widened(exact, 50e-6, 50e-6, **more)  # type: ignore[arg-type]
        assert wider[0] < low
        assert wider[1] > high
    assert widened(exact, 5e-6, 5e-6)[1] > high  # a fixed error is a larger share of a short call
    assert widened(exact, 1, 1)[1] == pytest.approx(1 + ratio._DEAD_BAND, abs=1e-5)


def test_a_kernel_against_itself_is_not_called_faster() -> None:
    rng, wins = random.Random(8), 0
    for _ in range(200):
        sides = []
        for _ in range(2):
            process = rng.gauss(50e-6, 0.05e-6)  # the difference between two processes
            sides.append([process + rng.gauss(0, 0.2e-6) for _ in range(4)])
        low, high = widened(of_rounds(sides[0], sides[1]), 50e-6, 50e-6)
        wins += low > 1 or high < 1
    assert wins <= 4


def test_what_coming_first_brings_is_nobodys_speedup_and_no_uncertainty() -> None:
    rng = random.Random(9)
    first = [[1e-3 * rng.gauss(1, 0.003) for _ in range(20)] for _ in range(2)]
    reference, candidate = ([*side] for side in first)
    for at in range(20):  # the side that comes second takes a tenth more
        (candidate if at % 2 == 0 else reference)[at] *= 1.1
    found = of_rounds(reference, candidate)
    assert found.value == pytest.approx(1, abs=0.003)
    assert found.low < 1 < found.high
    assert found.width < 0.01
    few = of_rounds(reference[:4], candidate[:4])
    assert few.value == pytest.approx(1, abs=0.01)
    assert few.width > 0.1


def delayed(rng: random.Random, rounds: int) -> list[list[float]]:
    """Return rounds of four calls. In some rounds, a neighbour on the host makes them take about half as long again."""
    slow = [rng.uniform(1.3, 1.6) if rng.random() < 0.4 else 1 for _ in range(rounds)]
    return [[2e-3 * factor * rng.gauss(1, 0.03) for _ in range(4)] for factor in slow]


def middles(rounds: list[list[float]]) -> list[float]:
    return [statistics.median(calls) for calls in rounds]


def test_a_host_that_delays_whole_rounds_changes_less_than_in_pairs() -> None:
    rng = random.Random(3)
    pairs = [(delayed(rng, 20), delayed(rng, 20)) for _ in range(200)]
    found = [of_delayed_rounds(*pair) for pair in pairs]
    paired = [of_rounds(middles(ours), middles(theirs)) for ours, theirs in pairs]
    off, off_in_pairs = (statistics.fmean(abs(each.value - 1) for each in kind) for kind in (found, paired))
    assert off < 0.6 * off_in_pairs
    assert sum(each.low <= 1 <= each.high for each in found) >= 0.93 * len(pairs)


def test_rounds_after_which_the_host_was_slow_do_not_count_where_there_are_enough_others() -> None:
    """Somebody else used the core in three of four rounds of one side, so its quicker half contains slow calls."""
    rng = random.Random(5)

    def rounds(slow: Sequence[bool]) -> list[list[float]]:
        return [[2e-3 * (1.5 if is_slow else 1) * rng.gauss(1, 0.02) for _ in range(3)] for is_slow in slow]

    mostly_slow, hardly = [at % 4 != 0 for at in range(24)], [at % 4 == 0 for at in range(24)]
    sides = rounds(mostly_slow), rounds(hardly)
    assert of_delayed_rounds(*sides).value > 1.15
    found = of_delayed_rounds(*sides, calm=[[not slow for slow in side] for side in (mostly_slow, hardly)])
    assert found.value == pytest.approx(1, abs=0.015)
    assert found.low < 1 < found.high
    assert (len(found.reference_rounds), len(found.rounds)) == (6, 18)
    never = of_delayed_rounds(*sides, calm=[[False] * 24, [True] * 24])
    assert len(never.reference_rounds) == 24


def test_rounds_that_nothing_delays_are_paired_and_memory_that_lies_badly_is_not_called_delay() -> None:
    rng = random.Random(3)
    quiet = [[[1e-3 * rng.gauss(1, 0.001)] for _ in range(10)] for _ in range(2)]
    found, pairs = of_delayed_rounds(*quiet), of_rounds(*map(middles, quiet))
    assert found.is_paired
    assert found.value == pairs.value
    assert pairs.width < found.width < 0.01
    memory = [[[second] for second in placed(rng, chance, 15)] for chance in (0.5, 0.4)]
    found = of_delayed_rounds(*memory, displaced=True)
    assert not found.is_paired
    assert found.value == pytest.approx(1, abs=0.01)
    assert of_delayed_rounds(*memory).is_paired


def test_where_device_times_depend_on_memory_few_quick_rounds_are_enough() -> None:
    """As for a convolution against itself on an H200: 8 and 5 of 21 rounds were quick, the others a quarter slower.

    Here 5 and 13 rounds are quick.
    """
    rng = random.Random(7)

    def rounds(quick: int) -> list[list[float]]:
        return [[(5.05e-3 if at < quick else 6.5e-3) * rng.gauss(1, 0.006) for _ in range(2)] for at in range(21)]

    reference, candidate = rounds(5), rounds(13)
    assert of_delayed_rounds(reference, candidate, displaced=True).value > 1.1
    found = of_delayed_rounds(reference, candidate, displaced=True, memory_matters=True)
    assert found.value == pytest.approx(1, abs=0.01)


def test_where_device_times_do_not_depend_on_memory_it_is_the_host_that_rounds_differ_by() -> None:
    rng = random.Random(3)
    pairs = [(delayed(rng, 20), delayed(rng, 20)) for _ in range(20)]
    for ours, theirs in pairs:
        found = of_delayed_rounds(ours, theirs, displaced=True, memory_matters=False)
        assert found == of_delayed_rounds(ours, theirs)
    assert any(of_delayed_rounds(*pair, displaced=True) != of_delayed_rounds(*pair) for pair in pairs)


def test_rounds_that_differ_by_little_are_paired_wherever_memory_lay() -> None:
    reference = [2038, 2075, 2070, 2044, 2072]
    candidate = [2064, 2082, 2089, 2077, 2070]
    found = of_rounds(reference, candidate, displaced=True)
    assert found.is_paired
    assert found.low < 0.995 < found.high


def test_calls_that_leave_their_work_out_now_and_then_bring_nothing() -> None:
    rng, gains = random.Random(6), []
    for _ in range(100):
        candidate = delayed(rng, 20)
        for calls in candidate:
            for at in range(len(calls)):
                calls[at] *= 0.3 if rng.random() < 0.08 else 1
        gains.append(of_delayed_rounds(delayed(rng, 20), candidate).value)
    assert statistics.fmean(gains) < 1.03


def disturbed(rng: random.Random, visits: int) -> list[list[float]]:
    """Return visits of eight short calls. Some share their core with others, and the first call of each is late."""
    slow = [rng.uniform(1.5, 2.0) if rng.random() < 0.25 else 1 for _ in range(visits)]
    return [
        [40e-6 * factor * (1 + rng.expovariate(5) + (at == 0)) * rng.gauss(1, 0.02) for at in range(8)]
        for factor in slow
    ]


def test_of_short_calls_those_of_all_visits_tell_more_than_the_middles_of_a_few() -> None:
    rng = random.Random(4)
    pairs = [(disturbed(rng, 3), disturbed(rng, 3)) for _ in range(300)]
    found = [of_short_calls(*pair, host=0.8) for pair in pairs]
    paired = [of_rounds(middles(ours), middles(theirs)) for ours, theirs in pairs]
    off, off_in_pairs = (statistics.median(abs(each.value - 1) for each in kind) for kind in (found, paired))
    assert off < 0.8 * off_in_pairs
    assert sum(each.low <= 1 <= each.high for each in found) >= 0.93 * len(pairs)


def test_two_rounds_of_calls_from_the_host_that_agree_by_chance_say_little() -> None:
    """A recurrent layer against itself on an H200: two rounds fitted into the lease, one side was a quarter slower."""
    sides = [[0.0932], [0.0930]], [[0.1190], [0.1195]]
    sure, unsure = (of_delayed_rounds(*sides, host=host) for host in (0.0, 0.7))
    assert sure.high < 0.82
    assert unsure.value == sure.value
    assert unsure.width > 2 * sure.width


def test_a_single_visit_of_short_calls_says_little() -> None:
    found = of_short_calls([[40e-6] * 8], [[40e-6] * 8], host=1.0)
    assert found.value == 1
    assert found.width > 0.5
    device_bound = of_short_calls([[100e-6] * 8] * 3, [[100e-6] * 8] * 3, host=0.0)
    assert device_bound.width < 0.05


def test_short_calls_of_which_a_fifth_leave_their_work_out_bring_next_to_nothing() -> None:
    rng, gains = random.Random(6), []
    for _ in range(300):
        candidate = disturbed(rng, 3)
        for at in rng.sample(range(24), 5):
            candidate[at // 8][at % 8] *= 0.3
        gains.append(of_short_calls(disturbed(rng, 3), candidate, host=0.8).value)
    assert statistics.median(gains) < 1.1


def test_a_trimmed_mean_leaves_a_fifth_out_at_each_end() -> None:
    assert trimmed_mean([1.0, 2.0, 4.0, 4.0, 100.0]) == pytest.approx(10 / 3)
    assert trimmed_mean([1.0, 2.0]) == 1.5

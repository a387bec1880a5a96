"""Tests of metrics: fast@p with its three denominators, the best answer by turn, pass@k against enumeration."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldyno.training.errors import ShapeError, TrainingError
from kerneldyno.training.metrics import (
    Improvement,
    Quartiles,
    best_by_turn,
    correct_quartiles,
    fast_at_p,
    fast_at_p_correct,
    fast_at_p_kernelgym,
    improvement_by_turn,
    is_sure_win,
    is_win,
    pass_at_k,
    quartiles,
    sure_fast_at_p,
    turn_table,
)

#: Fast, slow, wrong but "fast", no verdict.
SPEEDUPS = [1.5, 0.8, 9.0, None]
CORRECT = [True, True, False, None]


def test_denominators() -> None:
    assert fast_at_p(SPEEDUPS, CORRECT, 1.0) == 1 / 4
    assert fast_at_p_kernelgym(SPEEDUPS, CORRECT, 1.0) == 1 / 3
    assert fast_at_p_correct(SPEEDUPS, CORRECT, 1.0) == 1 / 2
    assert fast_at_p(SPEEDUPS, CORRECT, 0.0) == 2 / 4


def test_the_threshold_is_inclusive() -> None:
    assert fast_at_p([1.5], [True], 1.5) == 1
    assert fast_at_p([1.5], [True], math.nextafter(1.5, 2)) == 0


def test_a_reference_against_itself_wins_by_its_speedup_and_not_surely() -> None:
    """A speedup of 1.003 with the interval 0.98 to 1.03 is noise and must not be a sure win."""
    assert is_win(1.003, 1.0)
    assert not is_sure_win(0.98, 1.0)
    assert fast_at_p([1.003], [True], 1.0) == 1
    assert sure_fast_at_p([0.98], [True], 1.0) == 0
    assert sure_fast_at_p([0.98], [True], 0.9) == 1


def test_sure_wins_are_above_the_threshold_and_of_all_samples() -> None:
    # Surely fast, exactly at the threshold, no interval, wrong but "fast", no verdict.
    lows, correct = [1.4, 1.0, None, 9.0, None], [True, True, True, False, None]
    assert sure_fast_at_p(lows, correct, 1.0) == 1 / 5
    assert sure_fast_at_p(lows, correct, 0.5) == 2 / 5
    assert sure_fast_at_p([None, None], [True, True], 0.0) == 0, "no interval is no win, whatever p"
    assert sure_fast_at_p([math.nan, 2.0], [False, True], 1.0) == 1 / 2, "what is wrong is not looked at"
    assert sure_fast_at_p([-math.inf], [True], 0.0) == 0


def test_correct_but_not_measured_is_not_fast() -> None:
    assert fast_at_p([None], [True], 1.0) == 0
    assert fast_at_p([None], [True], 0.0) == 1


def test_nobody_judged() -> None:
    assert fast_at_p([None, None], [None, None], 1.0) == 0
    assert fast_at_p_kernelgym([None, None], [None, None], 1.0) == 0
    assert fast_at_p_correct([2.0], [False], 1.0) == 0


@pytest.mark.parametrize("metric", [fast_at_p, sure_fast_at_p, fast_at_p_kernelgym, fast_at_p_correct])
def test_refusals(metric: object) -> None:
    assert callable(metric)
    with pytest.raises(TrainingError, match="no samples"):
        metric([], [], 1.0)
    with pytest.raises(ShapeError):
        metric([1.0], [True, False], 1.0)
    with pytest.raises(TrainingError, match="NaN"):
        metric([math.nan], [True], 1.0)
    with pytest.raises(TrainingError, match="NaN"):
        metric([1.0], [True], math.nan)


def test_best_by_turn() -> None:
    assert best_by_turn([None, 0.5, 9.0, 2.0, 1.0], [None, True, False, True, True]) == [0.0, 0.5, 0.5, 2.0, 2.0]
    assert best_by_turn([], []) == []
    with pytest.raises(ShapeError):
        best_by_turn([1.0], [])


@pytest.mark.parametrize(
    ("n", "c", "k"), [(n, c, k) for n in range(1, 7) for c in range(n + 1) for k in range(1, n + 1)]
)
def test_pass_at_k_is_the_share_of_subsets_with_a_pass(n: int, c: int, k: int) -> None:
    subsets = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


def test_pass_at_k_of_many_samples() -> None:
    n, c, k = 100_000, 3, 50_000
    exact = 1 - math.comb(n - c, k) / math.comb(n, k)
    assert pass_at_k(n, c, k) == pytest.approx(exact, rel=1e-9)
    assert pass_at_k(10**6, 1, 1) == pytest.approx(1e-6, rel=1e-6)


@pytest.mark.parametrize(("n", "c", "k"), [(0, 0, 1), (4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
def test_pass_at_k_refuses(n: int, c: int, k: int) -> None:
    with pytest.raises(TrainingError, match="pass@k"):
        pass_at_k(n, c, k)


def test_turn_table_counts_every_episode_in_every_turn() -> None:
    rows = turn_table([[0.5, 2.0], [1.3], [None, 1.1]], [[True, True], [True], [None, True]], thresholds=(1.0, 1.2))
    first, second = rows
    assert (first.turn, first.episodes, first.judged, first.correct) == (1, 3, 2, 2 / 3)
    assert first.mean_speedup == pytest.approx(0.9)
    assert first.fast == {1.0: 1 / 3, 1.2: 1 / 3}
    assert (second.judged, second.correct) == (2, 2 / 3)
    assert second.fast == {1.0: 2 / 3, 1.2: 1 / 3}
    assert second.best_fast == {1.0: 1.0, 1.2: 2 / 3}  # the episode that has ended keeps its best answer
    assert turn_table([], []) == []
    assert turn_table([[], [1.0]], [[], [True]])[0].correct == 0.5
    with pytest.raises(ShapeError):
        turn_table([[1.0]], [])


def test_turn_table_has_sure_wins_and_kernelgyms_definitions() -> None:
    """Four episodes of two turns; the last one ended after its first."""
    speedups = [[1.003, 1.5], [2.0, 2.1], [None, 1.2], [3.0]]
    lows = [[0.98, 1.4], [1.9, 0.7], [None, None], [2.5]]
    correct = [[True, True], [True, True], [None, True], [False]]
    first, second = turn_table(speedups, correct, (1.0, 1.45), lows)
    assert first.fast == {1.0: 2 / 4, 1.45: 1 / 4}
    assert first.sure_fast == {1.0: 1 / 4, 1.45: 1 / 4}
    assert first.fast_kernelgym == {1.0: 2 / 3, 1.45: 1 / 3}, "three have a verdict"
    assert first.fast_correct == {1.0: 2 / 2, 1.45: 1 / 2}, "two are correct"
    assert second.fast == {1.0: 3 / 4, 1.45: 2 / 4}
    assert second.sure_fast == {1.0: 1 / 4, 1.45: 0.0}
    assert second.best_fast == {1.0: 3 / 4, 1.45: 2 / 4}
    # The best answers: 1.5 (lower end 1.4), 2.1 (lower end 0.7: faster than 2.0 but less sure), 1.2 (no interval).
    assert first.best_sure_fast == {1.0: 1 / 4, 1.45: 1 / 4}
    assert second.best_sure_fast == {1.0: 1 / 4, 1.45: 0.0}
    slower = turn_table([[2.0, 1.1]], [[True, True]], (1.0,), [[1.9, 0.9]])[1]
    assert (slower.sure_fast, slower.best_sure_fast) == ({1.0: 0.0}, {1.0: 1.0}), "the first answer stays the best"
    without = turn_table(speedups, correct, (1.0,))
    assert [(row.fast[1.0], row.sure_fast[1.0], row.best_sure_fast[1.0]) for row in without] == [
        (0.5, 0.0, 0.0),
        (0.75, 0.0, 0.0),
    ]
    for odd in ([[0.9, 1.0]], [[0.9], [1.9, 0.7], [None, None], [2.5]]):
        with pytest.raises(ShapeError, match="lows"):
            turn_table(speedups, correct, (1.0,), odd)


def test_quartiles_refuse_what_is_no_number() -> None:
    for odd in (math.nan, math.inf):
        with pytest.raises(TrainingError, match="give None for what was not measured"):
            quartiles([1.0, odd])
        with pytest.raises(TrainingError, match="give None for what was not measured"):
            correct_quartiles([1.0, odd], [True, True])
        assert correct_quartiles([1.0, odd], [True, False]) == Quartiles(1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    with pytest.raises(ShapeError, match="correct has shape"):
        correct_quartiles([1.0], [])


def test_quartiles_of_nothing_are_nothing_and_not_0() -> None:
    assert quartiles([]) is None
    assert quartiles([None, None]) is None
    assert correct_quartiles([0.3, None], [False, True]) is None


def test_quartiles_by_hand() -> None:
    assert quartiles([4.0, None, 1.0, 3.0, 2.0]) == Quartiles(4, 2.5, 1.0, 1.75, 2.5, 3.25, 4.0)
    assert correct_quartiles([4.0, 9.0, None, 2.0], [True, False, True, True]) == Quartiles(
        2, 3.0, 2.0, 2.5, 3.0, 3.5, 4.0
    )


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_quartiles_against_the_standard_library(values: list[float]) -> None:
    found = quartiles(values)
    assert found is not None
    expected = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    assert [found.lower, found.median, found.upper] == pytest.approx(expected, abs=1e-6)
    assert found.mean == pytest.approx(statistics.fmean(values), abs=1e-6)
    assert found.minimum <= found.lower <= found.median <= found.upper <= found.maximum


def test_improvement_refuses_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match="correct has shape"):
        improvement_by_turn([[1.0]], [])
    with pytest.raises(ShapeError, match=r"highs\[1\] has shape \(1,\)"):
        improvement_by_turn([[1.0], [1.0, 2.0]], [[True], [True, True]], highs=[[1.0], [1.0]])
    with pytest.raises(TrainingError, match="NaN"):
        improvement_by_turn([[1.0, math.nan]], [[True, True]])


def test_improvement_by_hand() -> None:
    """The second answers: surely faster; faster within noise; correct for the first time; slower; not there."""
    speedups = [[1.0, 2.0, 3.0], [1.00, 1.01, 0.5], [9.0, 1.5, 1.5], [2.0, 1.0, None], [1.0]]
    correct = [[True, True, False], [True, True, True], [False, True, True], [True, True, None], [True]]
    lows = [[0.9, 1.9, 2.9], [0.98, 0.99, 0.4], [8.9, 1.4, 1.4], [1.9, 0.9, None], [0.9]]
    highs = [[1.1, 2.1, 3.1], [1.02, 1.03, 0.6], [9.1, 1.6, 1.6], [2.1, 1.1, None], [1.1]]
    second, third = improvement_by_turn(speedups, correct, lows, highs)
    assert (second.turn, second.improved, second.sure_improved, second.first) == (2, 3 / 5, 2 / 5, 1 / 5)
    assert second.mean_gain == pytest.approx((1.0 + 0.01 + 1.5) / 5)
    assert third == Improvement(3, 0.0, 0.0, 0.0, 0.0)
    without = improvement_by_turn(speedups, correct)[0]
    assert (without.improved, without.sure_improved) == (3 / 5, 1 / 5), "without intervals only a first answer is sure"
    assert improvement_by_turn([], []) == []
    assert improvement_by_turn([[], [1.0]], [[], [True]]) == []


episodes = st.lists(
    st.lists(st.tuples(st.none() | st.floats(0.1, 5), st.none() | st.booleans()), max_size=5), min_size=1, max_size=6
)


@given(episodes)
def test_improvement_against_best_by_turn(played: list[list[tuple[float | None, bool | None]]]) -> None:
    speedups = [[speedup for speedup, _ in episode] for episode in played]
    correct = [[verdict for _, verdict in episode] for episode in played]
    best = [best_by_turn(*episode) for episode in zip(speedups, correct, strict=True)]
    found = improvement_by_turn(speedups, correct)
    assert len(found) == max(max(map(len, played)) - 1, 0)
    for one in found:
        there = [episode for episode in best if len(episode) >= one.turn]
        gains = [episode[one.turn - 1] - episode[one.turn - 2] for episode in there]
        assert one.improved == sum(gain > 0 for gain in gains) / len(best)
        assert one.mean_gain == pytest.approx(sum(gains) / len(best))
        firsts = [episode[one.turn - 2] == 0 < episode[one.turn - 1] for episode in there]
        assert one.first == one.sure_improved == sum(firsts) / len(best)
    total = sum(one.mean_gain for one in found)
    first = sum(episode[0] for episode in best if episode) / len(best)
    last = sum(episode[-1] for episode in best if episode) / len(best)
    assert total == pytest.approx(last - first), "gains add up to the last best less the first"


def test_turn_table_has_spread_and_improvement() -> None:
    rows = turn_table(
        [[1.0, 2.0], [0.0, 4.0]],
        [[True, True], [True, True]],
        lows=[[0.9, 1.9], [None, 3.9]],
        highs=[[1.1, 2.1], [None, 4.1]],
        coverages=[[None, 0.5], [None, 0.0]],
    )
    assert rows[0].speedup_quartiles == Quartiles(1, *[1.0] * 6), "0 is not measured"
    assert rows[0].coverage_quartiles is None
    assert rows[1].coverage_quartiles == Quartiles(2, 0.25, 0.0, 0.125, 0.25, 0.375, 0.5), "0 is a coverage"
    assert rows[0].improvement is None
    assert rows[1].improvement == Improvement(2, 1.0, 1.0, 0.5, 2.5)
    with pytest.raises(ShapeError, match="coverages"):
        turn_table([[1.0]], [[True]], coverages=[[]])


@given(st.lists(st.tuples(st.floats(0, 10), st.booleans()), min_size=1), st.floats(0, 10))
def test_order_does_not_matter_and_thresholds_only_lower(samples: list[tuple[float, bool]], p: float) -> None:
    speedups, correct = zip(*samples, strict=True)
    found = fast_at_p(speedups, correct, p)
    assert found == fast_at_p(speedups[::-1], correct[::-1], p)
    assert found >= fast_at_p(speedups, correct, p + 0.1)
    assert fast_at_p_correct(speedups, correct, p) >= fast_at_p_kernelgym(speedups, correct, p) >= found


def test_needs_no_torch() -> None:
    """A client's machine has no torch and no numpy: metrics, scaling and errors must import without them."""
    code = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None\n"
        "import kerneldyno.training.metrics, kerneldyno.training.scaling, kerneldyno.training.errors"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

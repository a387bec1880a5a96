"""fast@p in its three denominators, best by turn, pass@k against enumeration."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kerneldyno.training.errors import ShapeError, TrainingError
from kerneldyno.training.metrics import (
    best_by_turn,
    fast_at_p,
    fast_at_p_correct,
    fast_at_p_kernelgym,
    is_sure_win,
    is_win,
    pass_at_k,
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
    """Speedup 1.003 with the interval 0.98 to 1.03: noise, which no sure win may be made of."""
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
    assert second.best_fast == {1.0: 1.0, 1.2: 2 / 3}  # the episode that ended keeps its best
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
    # The best answers are 1.5 (from 1.4), 2.1 (from 0.7: faster than 2.0, and less sure) and 1.2 without an interval.
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


@given(st.lists(st.tuples(st.floats(0, 10), st.booleans()), min_size=1), st.floats(0, 10))
def test_order_does_not_matter_and_thresholds_only_lower(samples: list[tuple[float, bool]], p: float) -> None:
    speedups, correct = zip(*samples, strict=True)
    found = fast_at_p(speedups, correct, p)
    assert found == fast_at_p(speedups[::-1], correct[::-1], p)
    assert found >= fast_at_p(speedups, correct, p + 0.1)
    assert fast_at_p_correct(speedups, correct, p) >= fast_at_p_kernelgym(speedups, correct, p) >= found


def test_needs_no_torch() -> None:
    """A client's machine has none: metrics, scaling and errors must import without it."""
    code = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None\n"
        "import kerneldyno.training.metrics, kerneldyno.training.scaling, kerneldyno.training.errors"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

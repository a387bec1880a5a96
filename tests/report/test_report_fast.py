"""Tests of fast@p of a suite: wins, sure wins, possible wins, and which problems the shares count."""

from __future__ import annotations

import pytest

from kerneldyno.report.candidates import Candidate
from kerneldyno.report.fast import FastRow, Wins, fast_rows

pytestmark = pytest.mark.pure

NAMES = [("a/1", "a"), ("a/2", "a"), ("a/3", "a"), ("b/1", "b")]


def right(problem: str, low: float | None, speedup: float, high: float | None) -> Candidate:
    return Candidate(id=problem, problem=problem, outcome="CORRECT", speedup=speedup, low=low, high=high)


def test_a_win_is_sure_when_the_whole_interval_is_above_and_possible_when_a_part_is() -> None:
    found = [right("a/1", 1.4, 1.6, 1.8), right("a/2", 0.99, 1.0, 1.01), right("a/3", 1.0, 1.2, 1.4)]
    (row,) = fast_rows(NAMES[:3], found, [1.0, 1.5])
    assert row == FastRow("a", 3, 0, 0, 3, 1.2, [Wins(1.0, 3, 1, 3), Wins(1.5, 1, 0, 1)])


def test_the_reference_against_itself_wins_by_its_speedup_and_not_surely() -> None:
    (row,) = fast_rows(NAMES[:1], [right("a/1", 0.98, 1.003, 1.03)], [1.0])
    assert row.wins == [Wins(1.0, plain=1, sure=0, possible=1)]


def test_without_an_interval_nothing_is_sure() -> None:
    (row,) = fast_rows(NAMES[:1], [right("a/1", None, 3.0, None)], [2.0, 3.0])
    assert row.wins == [Wins(2.0, 1, 0, 1), Wins(3.0, 1, 0, 0)]


def test_who_is_missing_or_wrong_counts_as_lost_and_who_was_not_judged_does_not_count() -> None:
    found = [
        right("a/1", 1.4, 1.6, 1.8),
        Candidate(id="a/2", problem="a/2", outcome="INFRASTRUCTURE_ERROR"),
        Candidate(id="b/1", problem="b/1", outcome="INCORRECT", speedup=9.0),
    ]
    a, b, everything = fast_rows(NAMES, found, [1.0])
    assert (a.problems, a.missing, a.unjudged, a.right, a.denominator) == (3, 1, 1, 1, 2)
    assert (b.right, b.denominator, b.median_speedup, b.wins) == (0, 1, None, [Wins(1.0, 0, 0, 0)])
    assert (everything.group, everything.problems, everything.denominator) == ("all", 4, 3)
    assert everything.wins == [Wins(1.0, 1, 1, 1)]


def test_a_problem_that_is_too_large_for_the_devices_is_not_won() -> None:
    large = Candidate(id="a/2", problem="a/2", outcome="PROBLEM_TOO_LARGE")
    (row,) = fast_rows(NAMES[:2], [right("a/1", 1.4, 1.6, 1.8), large], [1.0])
    assert (row.unjudged, row.right, row.denominator, row.wins) == (0, 1, 2, [Wins(1.0, 1, 1, 1)])


def test_a_suite_of_one_group_has_one_row() -> None:
    assert [row.group for row in fast_rows(NAMES[:2], [], [1.0])] == ["a"]
    assert [row.group for row in fast_rows(NAMES, [], [1.0])] == ["a", "b", "all"]

"""Attacks on the evaluator (E), one test for each: none may gain anything, and none may leave anything behind.

These tests compare no times, so they may run beside other tests. Attacks whose time is compared with that of honest
work are in `test_attacks.py`.
"""

from __future__ import annotations

import pytest

from tests.corpus.judge_corpus import Entry, Run, has_time_compared, select
from tests.corpus.traces import check_nothing_is_left, find_news

pytestmark = [pytest.mark.slow, pytest.mark.corpus]


@pytest.fixture(scope="module", autouse=True)
def before() -> set[str]:
    """Files in shared places before any attack ran."""
    return find_news()


@pytest.mark.parametrize(
    "entry",
    [entry for entry in select("attacks") if entry.name.startswith("E") and not has_time_compared(entry)],
    ids=lambda entry: entry.name,
)
def test_attack_on_the_evaluator_gains_nothing(run: Run, entry: Entry) -> None:
    assert run.shortfall(entry) is None, run.shown(entry)


def test_nothing_is_left_in_the_end(run: Run, before: set[str]) -> None:
    check_nothing_is_left(run.judge, before)

"""Attacks on the answer (S), one test for each: they compare no times, so they may run beside other tests."""

from __future__ import annotations

import pytest

from tests.corpus.judge_corpus import Entry, Run, select

pytestmark = [pytest.mark.slow, pytest.mark.corpus]


@pytest.mark.parametrize(
    "entry", [entry for entry in select("attacks") if entry.name.startswith("S")], ids=lambda entry: entry.name
)
def test_attack_on_the_answer_gains_nothing(run: Run, entry: Entry) -> None:
    assert run.shortfall(entry) is None, run.shown(entry)

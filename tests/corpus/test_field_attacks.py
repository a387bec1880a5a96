"""Attacks that look like the idioms of the field, one test for each of corpus/field/attacks: none may gain anything."""

from __future__ import annotations

import pytest

from tests.corpus.judge_corpus import Entry, Run, select

pytestmark = [pytest.mark.alone, pytest.mark.corpus]


@pytest.mark.parametrize("entry", select("field/attacks"), ids=lambda entry: entry.name)
def test_attack_in_an_idiom_of_the_field_gains_nothing(run: Run, entry: Entry) -> None:
    assert run.shortfall(entry) is None, run.shown(entry)

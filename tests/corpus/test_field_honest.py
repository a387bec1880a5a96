"""Honest candidates in the idioms of the field, one test for each of corpus/field/honest: none may be refused."""

from __future__ import annotations

import pytest

from tests.corpus.judge_corpus import Entry, Run, select

pytestmark = [pytest.mark.slow, pytest.mark.corpus]


@pytest.mark.parametrize("entry", select("field/honest"), ids=lambda entry: entry.name)
def test_work_in_the_idioms_of_the_field_is_accepted(run: Run, entry: Entry) -> None:
    assert run.shortfall(entry) is None, run.shown(entry)

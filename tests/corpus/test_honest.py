"""Honest candidates, one test for each of corpus/honest: none may be refused, even if it works in an unusual way."""

from __future__ import annotations

import pytest

from tests.corpus.judge_corpus import Entry, Run, select

pytestmark = [pytest.mark.slow, pytest.mark.corpus]


@pytest.mark.parametrize("entry", select("honest"), ids=lambda entry: entry.name)
def test_honest_work_is_accepted(run: Run, entry: Entry) -> None:
    assert run.shortfall(entry) is None, run.shown(entry)

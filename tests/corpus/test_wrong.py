"""Wrong candidates, one test for each of corpus/wrong: mistakes, not attacks; none may pass."""

from __future__ import annotations

import pytest

from tests.corpus.judge_corpus import Entry, Run, select

pytestmark = [pytest.mark.slow, pytest.mark.corpus]


@pytest.mark.parametrize("entry", select("wrong"), ids=lambda entry: entry.name)
def test_a_mistake_is_found(run: Run, entry: Entry) -> None:
    assert run.shortfall(entry) is None, run.shown(entry)

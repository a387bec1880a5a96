"""Fixtures for the corpora: one judge, and for each test file a run of its candidates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import lifetime
from tests.corpus.judge_corpus import JOBS, SECRETS, Judge, Run
from tests.corpus.judge_with_builder import JudgeWithBuilder


@pytest.fixture(scope=lifetime.of_a_judge)
def corpus_judge() -> Iterator[Judge]:
    """A judge for all files that run in one process; in a sample, tests/conftest.py keeps this folder on one worker."""
    with JudgeWithBuilder("--lanes", str(JOBS), "--spares", str(JOBS), environment=SECRETS) as judge:
        assert judge.ready["op"] == "ready", judge.ready
        yield judge


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, corpus_judge: Judge) -> Run:
    """A run of the entries that were selected in this module, a few at a time."""
    items = [item for item in request.session.items if item.getparent(pytest.Module) is request.node]
    selected = [item.callspec.params["entry"] for item in items if hasattr(item, "callspec")]
    return Run(corpus_judge, selected)

"""The corpus on one judge for each test file; its tests are one for each candidate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.corpus.judge_corpus import JOBS, SECRETS, Judge, Run


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Yields what evaluates the entries that were selected in this module, a few at a time."""
    items = [item for item in request.session.items if item.getparent(pytest.Module) is request.node]
    selected = [item.callspec.params["entry"] for item in items if hasattr(item, "callspec")]
    with Judge("--lanes", str(JOBS), "--spares", str(JOBS), environment=SECRETS) as judge:
        assert judge.ready["op"] == "ready", judge.ready
        yield Run(judge, selected)

"""The corpus (attacks, honest and wrong candidates) on one judge for each folder; its tests are one for each file.

Also the order of all tests: where several workers share them (`make test`), the folders that take longest begin.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from corpus import JOBS, SECRETS, Judge, Run

#: Folders that take minutes, the longest first; the others follow in their order.
_LONGEST = ("attacks", "evaluator", "honest", "e2e", "wrong", "chaos", "scheduler")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort folders: a long file that begins last would be waited for by all the other workers."""
    rank = {folder: number for number, folder in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.parent.name, len(rank)))


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Yields what evaluates the entries that were selected in this module, a few at a time."""
    items = [item for item in request.session.items if item.getparent(pytest.Module) is request.node]
    selected = [item.callspec.params["entry"] for item in items if hasattr(item, "callspec")]
    with Judge("--lanes", str(JOBS), "--spares", str(JOBS), environment=SECRETS) as judge:
        assert judge.ready["op"] == "ready", judge.ready
        yield Run(judge, selected)

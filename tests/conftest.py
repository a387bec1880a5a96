"""The corpus (attacks, honest and wrong candidates) on one judge for each folder; its tests are one for each file.

Also the order of all tests: where several workers share them (`make test`), the folders that take longest begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus import FOLDERS, JOBS, SECRETS, Judge, Run

#: Folders that take minutes, the longest first; the others follow in their order.
_LONGEST = ("attacks", "honest", "wrong", "evaluator", "e2e", "chaos", "scheduler")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort folders: a long file that begins last would be waited for by all the other workers."""
    rank = {folder: number for number, folder in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.parent.name, len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With --dist loadfile, give the whole corpus to one worker: its judges time candidates and would disturb each other."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Shares(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(nodeid.partition("::")[0])
            return "corpus" if file.parent.name in FOLDERS else str(file)

    return Shares(config, log)


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Yields what evaluates the entries that were selected in this module, a few at a time."""
    items = [item for item in request.session.items if item.getparent(pytest.Module) is request.node]
    selected = [item.callspec.params["entry"] for item in items if hasattr(item, "callspec")]
    with Judge("--lanes", str(JOBS), "--spares", str(JOBS), environment=SECRETS) as judge:
        assert judge.ready["op"] == "ready", judge.ready
        yield Run(judge, selected)

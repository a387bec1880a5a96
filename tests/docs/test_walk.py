"""The walk of a request in docs/architecture.md visits files that exist, in the order in which they import each other.

A room is one process or a part of one. Its first file may be reached by gRPC, a frame or a fork; every other file must
be imported by a file that the walk has named before.
"""

from __future__ import annotations

import re
from pathlib import Path

import layout

from tests.docs.docs_pages import ROOT

PAGE = ROOT / "docs/architecture.md"
MODULES = layout.modules(ROOT)
#: A source file, by its path from the root of the repository.
SOURCE = re.compile(r"`([\w/]+/kerneldyno/[\w/]+\.py)`")
STAGES = [
    *("BUILDING", "PREPARING", "AWAITING_MEMORY", "LOADING", "COMPILING", "CHECKING"),
    *("AWAITING_LEASE", "TIMING", "PROFILING"),
]


def rooms() -> dict[str, str]:
    """Return the rooms of the walk by their headings, in order."""
    section = re.split(r"\n## ", PAGE.read_text().split("\n## One request, file by file\n")[1])[0]
    parts = re.split(r"\n### (.+)\n", section)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def module_of(path: str) -> str:
    """Return the name of the module in a source file."""
    return path[path.index("kerneldyno/") :].removesuffix(".py").replace("/", ".")


def test_the_walk_visits_files_that_exist_in_the_order_of_imports() -> None:
    known: set[str] = set()
    visited = 0
    for room, text in rooms().items():
        for number, path in enumerate(SOURCE.findall(text)):
            assert Path(ROOT / path).is_file(), f"{room}: {path} does not exist"
            assert number == 0 or module_of(path) in known, f"{room}: nothing before {path} imports it"
            known |= set(layout.imported(MODULES[module_of(path)], MODULES))
            visited += 1
    assert visited > 40


def test_the_walk_goes_from_the_client_to_the_runner_and_back_through_every_stage() -> None:
    walk = rooms()
    order = [re.sub(r"^Room (\d+):.*", r"\1", room) for room in walk]
    assert order == [str(number) for number in range(1, len(walk) + 1)]
    firsts = [
        found[0].split("/kerneldyno/")[1].split("/")[0] for text in walk.values() if (found := SOURCE.findall(text))
    ]
    assert firsts[0] == "client"
    assert {"scheduler", "evaluator"} <= set(firsts)
    assert "Room 12: the way back" in walk
    named = re.findall(r"\bstage\s+([A-Z_]+)\.?\*\*", "\n".join(walk.values()), re.IGNORECASE)
    assert named == STAGES

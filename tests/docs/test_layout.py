"""Imports between top-level folders: the table in this file, the code, and docs/architecture.md agree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import layout
import pytest

ROOT = Path(__file__).resolve().parents[2]
#: For each top-level folder, the folders that it imports from. Remove an entry here if no import needs it any more.
ALLOWED: Mapping[str, set[str]] = {
    "common": set(),
    "client": {"common"},
    "scheduler": {"common"},
    "evaluator_server": {"common"},
    "testing": {"client", "common"},
    "training": {"client", "common"},
    "deploy": {"client", "common"},
    "gateway": {"client", "common", "training"},
    "cli": {"client", "common", "gateway", "training"},
}
#: Packages of the checkout that are not installed; `pythonpath` in pyproject.toml makes them importable.
SHARING = ("tests", "benchmarks")
MODULES = layout.modules(ROOT)


@cache
def imports() -> list[tuple[layout.Module, layout.Module]]:
    """Return pairs of a module and one that it imports.

    This takes a second, so it is not done at import: each worker of pytest imports this file.
    """
    return layout.imports(MODULES)


def by(group: str) -> tuple[set[str], layout.Arrows]:
    """Return the names of all groups of one kind, and the arrows between them."""
    name_of = layout.GROUPS[group]
    return {name_of(module) for module in MODULES.values()}, layout.arrows(imports(), name_of)


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.fixture(scope="module")
def page() -> str:
    text = (ROOT / "docs" / "architecture.md").read_text()
    return text.partition("\n## Folders\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def rows(page: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:3] == "| `"]


def test_imports_are_those_allowed() -> None:
    folders, arrows = by("folder")
    assert {folder: {target for source, target in arrows if source == folder} for folder in folders} == ALLOWED


@pytest.mark.parametrize("group", ["folder", "package", "module"])
def test_nothing_imports_in_a_circle(group: str) -> None:
    assert layout.circles(*by(group)) == []


def test_the_page_has_the_table(rows: list[list[str]]) -> None:
    assert {code(row[0])[0]: set(code(row[3])) for row in rows} == ALLOWED


def test_the_page_has_the_floors(page: str) -> None:
    shown = re.findall(r"^floor (\d) +(.+)$", page, re.MULTILINE)
    floors = layout.floors(*by("folder"))
    assert [(str(level), ", ".join(floors[level])) for level in reversed(range(len(floors)))] == shown


def test_the_page_has_the_packages_in_order(rows: list[list[str]]) -> None:
    _, arrows = by("package")
    for row in rows:
        (folder,), packages = code(row[0]), code(row[1])
        assert sorted(packages) == sorted(
            {module.package.split(".")[1] for module in MODULES.values() if module.folder == folder}
        )
        for position, lower in enumerate(packages):
            above = {f"kerneldyno.{name}" for name in packages[position + 1 :]}
            assert not above & {target for source, target in arrows if source == f"kerneldyno.{lower}"}


def test_tests_and_benchmarks_share_modules_by_their_full_names_alone() -> None:
    """Import `tests.waiting`, not `waiting`, which needs a change of sys.path; a module with two names exists twice."""
    files = [path for folder in SHARING for path in (ROOT / folder).rglob("*.py") if "given" not in path.parts]
    shared = {path.stem for path in files if not path.stem.startswith("test_")} - {"conftest", "__init__"}
    for path in files:
        imported = layout.imported(layout.Module(path.stem, path, folder=""), known={})
        assert not {name.partition(".")[0] for name in imported} & shared, path
        assert path.stem.startswith("test_") or "sys.path" not in path.read_text(), path


def test_circles_and_floors_are_found() -> None:
    arrows = {("a", "b"): 1, ("b", "c"): 1, ("c", "b"): 2, ("c", "d"): 1}
    assert layout.circles("abcd", arrows) == [["b", "c"]]
    assert layout.floors("abcd", arrows) == [["d"], ["b", "c"], ["a"]]


def test_imports_in_functions_and_relative_ones_are_found(tmp_path: Path) -> None:
    package = tmp_path / "one" / "kerneldyno" / "one"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .inner import thing\n")
    (package / "inner.py").write_text("def f():\n    from kerneldyno.two import other, name\n")
    other = tmp_path / "two" / "kerneldyno" / "two"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import kerneldyno.one\n"
    )
    (other / "other.py").write_text("")
    known = layout.modules(tmp_path)
    assert dict(layout.arrows(layout.imports(known), layout.GROUPS["module"])) == {
        ("kerneldyno.one", "kerneldyno.one.inner"): 1,
        ("kerneldyno.one.inner", "kerneldyno.two"): 1,
        ("kerneldyno.one.inner", "kerneldyno.two.other"): 1,
        ("kerneldyno.two", "kerneldyno.one"): 1,
    }
    assert layout.sizes(tmp_path, deep=False) == {"one": (2, 3), "two": (2, 3)}


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    layout.main(["--by", "package"])
    shown = capsys.readouterr().out
    assert re.search(r"^ +\d+  kerneldyno\.client -> kerneldyno\.rpc$", shown, re.MULTILINE)
    assert "circles by package: none" in shown

"""The documentation points at things that exist: files, headings, and the tests that it names as proof."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
#: `tests/a/test_b.py::test_c`, `test_b.py::test_c`, or `::test_c` for the file named before.
PROOF = re.compile(r"`((?:[\w/]*test_\w+\.py)?)::(test_\w+)`")
TESTS = {path: path.read_text() for path in sorted(ROOT.glob("tests/**/test_*.py"))}


def functions(source: str) -> set[str]:
    """Names of all test functions, those in classes too."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)}


def anchors(page: Path) -> set[str]:
    """Headings of a page, in the form that links use."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_are_named_exist(page: Path) -> None:
    last = ""
    for file, name in PROOF.findall(page.read_text()):
        last = file or last
        sources = [source for path, source in TESTS.items() if path.as_posix().endswith(f"/{last}")]
        assert any(name in functions(source) for source in sources), f"{page.name}: {last}::{name}"


def test_the_patterns_find_something() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(LINK.findall(readme)) > 10
    assert len(PROOF.findall(readme)) > 20

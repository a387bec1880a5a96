"""The documentation points at things that exist: files, headings, and the tests that it names as proof.

The site's build checks links as well, by its own rules; these tests follow GitHub's rules.
"""

from __future__ import annotations

import ast
import functools
import re
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.docs.docs_pages import PAGES, ROOT, name

pytestmark = pytest.mark.pure

#: `tests/a/test_b.py::test_c`, `test_b.py::test_c`, or `::test_c` for the file named before.
PROOF = re.compile(r"`((?:[\w/]*test_\w+\.py)?)::(test_\w+)`")
#: A file of the repository, named in backticks.
FILE = re.compile(
    r"`((?:corpus|tests|docs|examples|deploy|benchmarks|protos)/[\w./-]+\.(?:py|md|toml|proto|yaml|json|sbatch))`"
)
TESTS = {path: path.read_text() for path in sorted(ROOT.glob("tests/**/test_*.py"))}


@functools.cache
def functions(source: str) -> set[str]:
    """Return the names of all functions in a source, including those in classes."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)}


@functools.cache
def anchors(page: Path) -> set[str]:
    """Return the headings of a page, in the form that links use: a title that is there twice gets a number."""
    tokens = MarkdownIt().parse(page.read_text())
    titles = [inline.content for opened, inline in pairwise(tokens) if opened.type == "heading_open"]
    found: set[str] = set()
    for title in titles:
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-")
        number = sum(1 for known in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", known))
        found.add(f"{slug}-{number}" if slug in found else slug)
    return found


def links(page: Path) -> list[str]:
    """Return the targets of the links and pictures of a page."""
    inline = [child for token in MarkdownIt().enable("table").parse(page.read_text()) for child in token.children or []]
    targets = [
        child.attrGet("href") or child.attrGet("src") for child in inline if child.type in ("link_open", "image")
    ]
    return [str(target) for target in targets if target]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert file.is_relative_to(ROOT), f"{page.name}: {target} leads out of the repository"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_tests_and_files_that_are_named_exist(page: Path) -> None:
    last = ""
    for file, test in PROOF.findall(page.read_text()):
        last = file or last
        sources = [source for path, source in TESTS.items() if path.as_posix().endswith(f"/{last}")]
        assert any(test in functions(source) for source in sources), f"{page.name}: {last}::{test}"
    for file in FILE.findall(page.read_text()):
        assert (ROOT / file).exists(), f"{page.name}: {file}"


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs/promises.md"], ids=name)
def test_every_promise_names_a_test(page: Path) -> None:
    tables = re.findall(r"^\| promise \| test \|\n\| --- \| --- \|\n((?:\|.*\n)+)", page.read_text(), re.MULTILINE)
    rows = [row.strip("| ").split(" | ") for table in tables for row in table.splitlines()]
    assert len(rows) > 10
    for promise, proof in rows:
        named = [file for file in re.findall(r"`([\w/]+\.py)(?:::\w+)?`", proof) if (ROOT / file).is_file()]
        assert named, f"{promise}: no test is named"


def test_the_patterns_find_something() -> None:
    readme = ROOT / "README.md"
    assert len(links(readme)) > 10
    assert len(PROOF.findall(readme.read_text())) > 15
    assert {"what-it-does-not-do", "where-to-go"} <= anchors(readme)
    assert "evaluator-python--m-kerneldynoevaluator" in anchors(ROOT / "docs/operating.md")

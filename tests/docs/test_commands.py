"""Every command and program of the documentation runs and prints what its page says, or the page says why it does not.

Blocks that cannot run here (they need a cluster, a GPU or an installation) are marked on the page (see docs_pages.py).
Their syntax, options, targets, extras and files are checked. A block that is neither run nor marked is a failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from kerneldyno.cli import app
from tests.docs import docs_syntax, docs_transcript
from tests.docs.docs_desk import Desk, Page
from tests.docs.docs_pages import PAGES, ROOT, RUN, Block, blocks, commands, name
from tests.needed import needs

pytestmark = pytest.mark.slow

ALL = {page: blocks(page) for page in PAGES}
NOT_RUN = [block for found in ALL.values() for block in found if block.language in RUN and not block.is_run]
#: Pages whose commands take ten processor seconds. `.ci/run` runs them; `make test` runs those of all other pages.
LONG = ("docs/migrating-from-kernelbench.md", "docs/evaluating.md")
#: Matches a command. Blocks in languages other than those of RUN may have none.
COMMAND = re.compile(r"^\$ |^(kerneldyno|pip install|make|docker|kubectl|curl|buf|grpcurl|python3?) ", re.MULTILINE)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with Desk(tmp_path_factory.mktemp("docs")) as running:
        yield running


@pytest.mark.timeout(400)  # a page has many commands
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.long] if name(page) in LONG else [])
        for page in PAGES
        if any(one.is_run for one in ALL[page])
    ],
    ids=name,
)
def test_a_page_does_what_it_says(page: Path, desk: Desk, tmp_path: Path) -> None:
    for tool in ("curl", "openssl"):
        if any(re.search(rf"\b{tool} ", one.text) for one in ALL[page] if one.is_run):
            needs(tool)
    here = Page(desk, tmp_path)
    found = []
    try:
        for block in ALL[page]:
            if block.is_run and block.language == "console":
                found += [f"{block}: {said}" for said in here.transcript(block)]
            elif block.is_run and block.language == "sh":
                here.script(block)
        if programs := [block for block in ALL[page] if block.is_run and block.language == "python"]:
            found += here.programs(programs, [block for block in ALL[page] if block.mark == "prints"])
    finally:
        here.close()
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("block", NOT_RUN, ids=str)
def test_what_is_not_run_could_be(block: Block) -> None:
    assert not docs_syntax.complaints(block)


def test_what_is_not_run_says_why() -> None:
    for block in NOT_RUN:
        assert block.said, f"{block}: say why it is not run, or what runs it"
        if block.mark == "run by":
            file, _, test = block.said.partition("::")
            assert (ROOT / file).is_file(), f"{block}: {file} is not there"
            assert f"def {test}(" in (ROOT / file).read_text() if test else True, f"{block}: {test} is not in {file}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_what_it_is(page: Path) -> None:
    for block in ALL[page]:
        assert block.language, f"{block}: give it a language: console, sh, python, or text for what is not run"
        if block.language not in RUN:
            assert not COMMAND.search(block.text), f"{block}: looks like commands; make it console or sh"
        if block.language == "sh":
            assert not re.search(r"^\$ ", block.text, re.MULTILINE), (
                f"{block}: a script has no prompts; make it console"
            )


def test_every_command_has_its_place_in_the_overview() -> None:
    overview = (ROOT / "docs/evaluating.md").read_text().split("## Command line")[1]
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert known == set(re.findall(r"^kerneldyno (\w+)", overview, re.MULTILINE))


def test_every_extra_has_its_row() -> None:
    rows = re.findall(r"^\| (`[^|]+) \| [^|]+ \| [^|]+ \|$", (ROOT / "docs/quickstart.md").read_text(), re.MULTILINE)
    assert {extra for row in rows for extra in re.findall(r"`([\w-]+)`", row)} == docs_syntax.extras_known()


class TestTheTools:
    """The helpers of these tests find mistakes."""

    def test_a_transcript_is_taken_apart(self) -> None:
        first, second = commands("$ a \\\n  b\nout\n$ cat <<'EOF'\n$ x\nEOF\n")
        assert (first.text, first.printed) == ("a \\\n  b", ["out"])
        assert (second.text, second.printed) == ("cat <<'EOF'\n$ x\nEOF", [])

    def test_other_figures_are_the_same_shape_and_other_words_are_not(self) -> None:
        said = ["│ speedup      0.006 (95 % between 0.004 and 0.009)        │", "...", "│ reference    301 us │"]
        assert docs_transcript.missing(said, "speedup 3.1 (95 % between 3 and\n4)\nreference 2 ms\n") == []
        assert docs_transcript.missing(said, "gain 3.1 (95 % from 3 to 4)\nreference 2 ms\n") == said[:1]

    def test_all_of_them_is_not_most_of_them(self) -> None:
        said = ["correctness  12 of 12 trials, largest error 0.1"]
        assert docs_transcript.missing(said, "correctness  12 of 12 trials, largest error 0.3") == []
        assert docs_transcript.missing(said, "correctness  11 of 12 trials, largest error 0.3") == said

    def test_unknown_options_targets_extras_and_files_are_found(self) -> None:
        block = Block(
            ROOT / "x.md",
            1,
            "sh",
            "kerneldyno nodes --colour\nmake tea\npip install 'kerneldyno[tea]'\npython -m kerneldyno.scheduler --tea\n"
            "docker build -f deploy/tea.Dockerfile .\nkerneldyno tea\n",
            "not run",
            "a test",
        )
        assert len(docs_syntax.complaints(block)) == 6

    def test_what_is_no_shell_is_found(self) -> None:
        assert docs_syntax.complaints(Block(ROOT / "x.md", 1, "console", "$ for x in; do\n", "not run", "a test"))
        assert docs_syntax.complaints(Block(ROOT / "x.md", 1, "python", "def x(:", "not run", "a test"))

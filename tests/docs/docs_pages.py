"""The documentation as its tests read it: pages, blocks of code on them, and comments about a block.

The language of a block decides what happens with it. `console` is a transcript: `$ ` begins a command, and its output
follows. `sh` is a script, and `python` a program; other blocks are not run. A comment directly above a block may change
this:

    <!-- not run: why -->                 it is checked, but not run here
    <!-- run by tests/x.py::test_y -->    this test runs it, or the same with other values
    <!-- ends with status 3 -->           its last command fails, with that status
    <!-- prints -->                       above a `text` block: the output of the page's programs
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
#: Every page that GitHub shows and the site is built from.
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/**/README.md"),
        *ROOT.glob("corpus/README.md"),
        *ROOT.glob("tests/**/README.md"),
    ]
)
RUN = ("console", "sh", "python")

_MARK = re.compile(r"<!-- (not run|run by|ends with status|prints):? ?(.*?) ?-->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block."""

    page: Path
    line: int
    language: str
    text: str
    mark: str
    """"not run", "run by", "ends with status", "prints", or nothing."""
    said: str
    """What the comment says beyond that."""

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"

    @property
    def is_run(self) -> bool:
        """Return whether the test of its page runs it."""
        return self.language in RUN and self.mark not in ("not run", "run by")


def name(page: Path) -> str:
    """Return the name of a page in tests."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found: list[Block] = []
    above = None
    for token in MarkdownIt().parse(page.read_text()):
        if token.type == "fence":
            assert token.map is not None
            mark, said = (above[1], above[2]) if above else ("", "")
            found.append(Block(page, token.map[0] + 1, token.info.strip(), token.content, mark, " ".join(said.split())))
        above = _MARK.fullmatch(token.content.strip()) if token.type == "html_block" else None
    return found


def _is_open(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:
        return True
    return False


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a transcript, and the lines that it should print."""

    text: str
    printed: list[str]


def commands(transcript: str) -> list[Command]:
    """Return the commands of a transcript.

    A command continues after a trailing backslash, and until the end of a quotation or here-document.
    """
    found: list[Command] = []
    lines = iter(transcript.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            assert found, f"a transcript begins with a command, not with {line!r}"
            found[-1].printed.append(line)
            continue
        parts = [line.removeprefix("$ ")]
        end = re.search(r"<<'?(\w+)'?", line)
        while (parts[-1] != end[1]) if end else (parts[-1].endswith("\\") or _is_open("\n".join(parts))):
            parts.append(next(lines))
        found.append(Command("\n".join(parts), []))
    return found

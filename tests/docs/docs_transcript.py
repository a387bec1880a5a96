"""Comparison of the output that a page shows for a command with the real output: the shape, not the figures.

Each line of the page must be found in the real output: most of its words in one line, or in one line and the next,
because tables wrap depending on the length of names. Numbers, punctuation and drawn lines are not compared, except in
"12 of 12". `...` stands for anything.
"""

from __future__ import annotations

import re
from itertools import pairwise

#: Share of a line's words that must be found. The others may depend on the machine or the time, or be ids.
SHARE = 0.6
#: A word that is compared. Words with a digit are not: they are figures, ids or dates.
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]{3,}(?![\w])")
#: "12 of 12": the line says that it was all of them.
_ALL = re.compile(r"(?<![\w.])(\d+) of \1(?![\w.])")


def missing(said: list[str], printed: str) -> list[str]:
    """Return the lines of `said` for which `printed` has no similar line."""
    lines = printed.splitlines()
    pairs = [*lines, *(f"{one} {other}" for one, other in pairwise(lines))]
    return [line for line in said if not any(_is_like(line, pair) for pair in pairs or [""])]


def _is_like(line: str, printed: str) -> bool:
    words = _words(line)
    enough = max(1, int(SHARE * len(words))) if words else 0
    return len(words & _words(printed)) >= enough and set(_ALL.findall(line)) <= set(_ALL.findall(printed))


def _words(line: str) -> set[str]:
    return set(_WORD.findall(line))

"""Compares what a page says that a command prints with what it does print: the shape, not the figures.

Each line of the page must be found again: most of its words in one line of the real output, or in that and the next, since
tables wrap by the length of names. Numbers, punctuation and lines are not compared, but for "12 of 12", and `...` stands for
anything.
"""

from __future__ import annotations

import re
from itertools import pairwise

#: Of the words of a line. Others may be a machine's, a clock's or an id.
SHARE = 0.6
#: Words with a digit are figures, ids or names of a day.
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]{3,}(?![\w])")
#: That it was all of them is what such a line says.
_ALL = re.compile(r"(?<![\w.])(\d+) of \1(?![\w.])")


def missing(said: list[str], printed: str) -> list[str]:
    """Return the lines of `said` that `printed` has nothing like."""
    lines = printed.splitlines()
    pairs = [*lines, *(f"{one} {other}" for one, other in pairwise(lines))]
    return [line for line in said if not any(_is_like(line, pair) for pair in pairs or [""])]


def _is_like(line: str, printed: str) -> bool:
    words = _words(line)
    enough = max(1, int(SHARE * len(words))) if words else 0
    return len(words & _words(printed)) >= enough and set(_ALL.findall(line)) <= set(_ALL.findall(printed))


def _words(line: str) -> set[str]:
    return set(_WORD.findall(line))

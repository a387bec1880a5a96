"""Compares what a page says that a command prints with what it does print: the shape, not the figures.

Each line of the page must be found again: most of its words in one line of the real output, or in that and the next, since
tables wrap by the length of names. Numbers, punctuation and lines are not compared, and `...` stands for anything.
"""

from __future__ import annotations

import re
from itertools import pairwise

#: Of the words of a line. Others may be a machine's, a clock's or an id.
SHARE = 0.6
#: Words with a digit are figures, ids or names of a day.
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]{3,}(?![\w])")


def missing(said: list[str], printed: str) -> list[str]:
    """Return the lines of `said` that `printed` has nothing like."""
    lines = [_words(line) for line in printed.splitlines()]
    pairs = [*lines, *(one | other for one, other in pairwise(lines))]
    return [line for line in said if not _is_there(_words(line), pairs)]


def _is_there(words: set[str], pairs: list[set[str]]) -> bool:
    enough = max(1, int(SHARE * len(words)))
    return not words or any(len(words & pair) >= enough for pair in pairs)


def _words(line: str) -> set[str]:
    return set(_WORD.findall(line))

"""Which processors share a core, and whole cores for work that must not slow others down.

Two busy processors of one core (hyperthreads) each run at little more than half speed. So work that is kept to few
processors is kept to whole cores.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection
from pathlib import Path

#: The file that lists the processors that share a core with a given one.
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@functools.cache  # called in each visit of a timing
def siblings(processor: int) -> frozenset[int]:
    """Return the processors that share a core with this one, as Linux lists them ("3,11", "2-3"); empty if unknown."""
    with contextlib.suppress(OSError, ValueError):
        listed = Path(_SIBLINGS.format(processor)).read_text(encoding="ascii").strip()
        bounds = [part.split("-") for part in listed.split(",")]
        return frozenset(each for first, *last in bounds for each in range(int(first), int((last or [first])[0]) + 1))
    return frozenset()


def first_of(processors: Collection[int], count: int) -> set[int]:
    """Return at least `count` of these processors, the first ones, in whole cores; all if there are no more."""
    found: set[int] = set()
    for processor in sorted(processors):
        if len(found) >= count:
            break
        found |= (siblings(processor) | {processor}) & set(processors)
    return found

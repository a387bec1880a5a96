"""The processes that a test starts, apart from those of a judge and services that other tests share.

Shared ones are children of the same process, and their runners come and go at any time. So tests compare children, not
all descendants.
"""

from __future__ import annotations

import contextlib

import psutil


def children() -> set[int]:
    """Return the ids of this process's children."""
    return {child.pid for child in psutil.Process().children()}


def started_since(before: set[int]) -> list[psutil.Process]:
    """Return the children of this process that are not in `before`, and all processes below these."""
    family = []
    for child in psutil.Process().children():
        if child.pid not in before:
            with contextlib.suppress(psutil.NoSuchProcess):
                family += [child, *child.children(recursive=True)]
    return family

"""The walls around one candidate, one file for each: namespaces and a private root, Landlock, seccomp, a control group,
limits. Each knows only itself; `sandbox` decides which are raised, and in which order.

A wall that the kernel does not offer says so by raising `Unavailable` with the reason, and nothing else happens.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """One wall and whether it holds."""

    name: str
    active: bool
    detail: str


class Unavailable(Exception):  # noqa: N818
    """This kernel or container does not offer the wall; the message says why."""

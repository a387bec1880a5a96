"""The walls around one candidate, one file for each: namespaces and a private root, Landlock, seccomp, a control group,
limits. Each knows only itself. The judge decides which are wanted, the runner's `sandbox` raises them in order.

A wall that the kernel does not offer says so by raising `Unavailable` with the reason, and nothing else happens.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Walls:
    """Which walls to raise. The judge decides, and tries another set where one cannot be had."""

    #: New namespaces and a private root. Off where the kernel or a container forbids them.
    namespaces: bool
    #: Landlock and seccomp, each as far as the kernel has it.
    filters: bool
    #: Nodes of the GPU driver that the candidate may open, by name below /dev.
    gpu_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """One wall and whether it holds."""

    name: str
    active: bool
    detail: str


class Unavailable(Exception):  # noqa: N818
    """This kernel or container does not offer the wall; the message says why."""

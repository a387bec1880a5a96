"""The layers of a candidate's sandbox, one file each: namespaces, root, Landlock, seccomp, control group, limits.

No layer knows the others. The judge decides which are used, and the runner's `sandbox` sets them up in order. A layer
that the kernel does not offer raises `Unavailable` with the reason, and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Walls:
    """Which layers to set up. The judge decides, and tries another combination if one is not possible."""

    #: New namespaces and a private root. False if the kernel or a container forbids them.
    namespaces: bool
    #: Landlock and seccomp, each as far as the kernel supports it.
    filters: bool
    #: Device nodes of the GPU driver that the candidate may open, by name below /dev.
    gpu_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer and whether it is active."""

    name: str
    active: bool
    detail: str


class Unavailable(Exception):  # noqa: N818
    """This kernel or container does not offer the layer; the message says why."""

"""The interface of a backend.

Its methods run in the runner, before and around the candidate, so none of them judges.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..devices.base import Device


@dataclass(slots=True)
class Launches:
    """The candidate's kernels that were launched during a call. `count` is None if this backend cannot count them."""

    count: int | None = None
    #: Names of the kernels that were launched.
    names: set[str] = field(default_factory=set)
    #: The backend's own objects for these kernels by identity, as far as it can `describe` them.
    kernels: dict[int, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a compiler made of one kernel. Sizes are in bytes: of one thread (`spill_bytes`), or of one block."""

    name: str
    registers: int
    spill_bytes: int
    shared_memory_bytes: int
    warps: int
    ptx: str = ""
    #: The device's program, an ELF file.
    binary: bytes = b""


class Backend:
    """A language of candidates. Subclass it, override what differs, and register an instance."""

    #: Name in requests.
    name: str
    #: True if a correct candidate that launches no kernel of its own is a decoy (finding S19).
    must_launch = False

    def preload(self, kind: str) -> None:
        """Zygote, once: prepare what all runners on this kind of device ("cpu", "cuda") inherit, without using CUDA."""

    def warm_up(self, device: Device) -> None:
        """Runner, before it gets a candidate: do what every candidate of this backend would otherwise have to do."""

    def prepare(self, device: Device) -> None:
        """Runner: prepare for the import of a candidate of this backend, which follows at once."""

    @contextlib.contextmanager
    def count_launches(self, device: Device) -> Iterator[Launches]:
        """Runner, around an untimed call: count the candidate's kernel launches. The count is a hint, not evidence."""
        yield Launches()

    @contextlib.contextmanager
    def suppress_launches(self, device: Device) -> Iterator[Launches]:
        """Runner, around an untimed call: make the candidate's kernel launches do nothing, and count them.

        The count is None if some launches could not be suppressed.
        """
        yield Launches()

    def describe(self, kernel: Any) -> Compiled:
        """Runner, after all calls: say what a kernel from `Launches.kernels` was compiled to."""
        raise NotImplementedError

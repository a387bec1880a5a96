"""The interface of a backend. Its methods run in the runner, before and around the candidate, so none of them judges."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..devices.base import Device


@dataclass(slots=True)
class Launches:
    """Kernels of the candidate that were launched during a call, or None where this backend cannot tell."""

    count: int | None = None
    #: Names of the kernels that were launched.
    names: set[str] = field(default_factory=set)


class Backend:
    """What a candidate is written in. Subclass it, override what differs, and register an instance."""

    #: Name in requests.
    name: str
    #: Whether a correct candidate that launches no kernel of its own is a decoy (finding S19).
    must_launch = False

    def preload(self, kind: str) -> None:
        """Zygote, once: do what all runners on devices of this kind ("cpu", "cuda") can inherit, without touching CUDA."""

    def warm_up(self, device: Device) -> None:
        """Runner, before it is given a candidate: do what every candidate of this backend would otherwise pay for."""

    def prepare(self, device: Device) -> None:
        """Runner, just before a candidate of this backend is imported."""

    @contextlib.contextmanager
    def count_launches(self, device: Device) -> Iterator[Launches]:
        """Runner, around an untimed call: count the candidate's kernel launches. A tripwire, not evidence."""
        yield Launches()

    @contextlib.contextmanager
    def suppress_launches(self, device: Device) -> Iterator[Launches]:
        """Runner, around an untimed call: make the candidate's kernel launches do nothing, and count them.

        The count is None when some of them could not be kept from happening.
        """
        yield Launches()

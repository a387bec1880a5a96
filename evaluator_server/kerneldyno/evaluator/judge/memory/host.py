"""The host's memory: which evaluations may have more of it than every candidate has, and how much.

A module is constructed on the host before it is moved to a GPU, in the candidate's process and again in its reference's.
Every runner is born with the same limit (the base), which is enough for most. Those that need more are admitted with it
by a ledger, and only then their limits are raised (`Runner.allow`). The others never wait here.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from .footprint import HostNeed
from .ledger import Ledger

#: A process that needs no more than this share of the base has the base alone: the rest is for what any candidate does.
_WITHIN = 1 / 2


class HostTooSmallError(Exception):
    """The processes of one evaluation need `needed` bytes more than the base, and the host has `available` for that."""

    def __init__(self, needed: int, available: int) -> None:
        super().__init__(f"{needed} of {available} bytes")
        self.needed = needed
        self.available = available


@dataclass(frozen=True, slots=True)
class HostLimits:
    """How much of the host's memory the two processes of an evaluation may use, in bytes."""

    candidate: int
    reference: int


class HostMemory:
    """Admits evaluations to the host's memory. One for all lanes of a device."""

    def __init__(self, base: int, measure: Callable[[], int]) -> None:
        """Create it.

        Args:
            base: What every runner may use, in bytes.
            measure: Returns how many bytes there are now for all that runners may use in addition.
        """
        self.base = base
        self._measure = measure
        self.ledger = Ledger(measure())

    def limit(self, need: int) -> int:
        """Return how much a process may use that needs so much in addition to what any process does."""
        return self.base if need <= self.base * _WITHIN else self.base + need

    @contextlib.asynccontextmanager
    async def admit(self, need: HostNeed, waits: Callable[[], None] = lambda: None) -> AsyncIterator[HostLimits]:
        """Hold what two processes need beyond the base for the body, and yield their limits. Raises HostTooSmallError.

        `waits` is called before a wait.
        """
        limits = HostLimits(self.limit(need.candidate), self.limit(need.reference))
        more = limits.candidate + limits.reference - 2 * self.base
        if not more:
            yield limits
            return
        if more > self.ledger.capacity:
            await self._measure_again(waits)
        if more > self.ledger.capacity:
            raise HostTooSmallError(more, self.ledger.capacity)
        async with self.ledger.admit(more, waits):
            yield limits

    async def _measure_again(self, waits: Callable[[], None]) -> None:
        """Look whether there is more memory than before: other programs may have ended, and some hosts grow.

        What admitted evaluations use is not free, so this waits for their end.
        """
        async with self.ledger.alone(waits):
            self.ledger.grow(self._measure())

"""A ledger of memory: an evaluation that needs much of it waits here until it is free.

Memory cannot be shared as time can: the first process to allocate gets it, and honest neighbours fail. So every
evaluation is admitted with the device memory of its plan (`footprint`): many small ones side by side, a large one by
itself. If an evaluation lacked memory in spite of that, it runs again alone on the device, and only that verdict counts.
A second ledger admits those that need much of the host's memory (`host`). Used by the service and its lanes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from kerneldyno.v1 import evaluation_pb2 as pb

#: Number of later and smaller evaluations that may overtake a waiting one.
_MOST_PASSED = 8


@dataclass(eq=False, slots=True)
class _Waiting:
    nbytes: int
    #: Number of evaluations that may still overtake it.
    patience: int
    admitted: asyncio.Event = field(default_factory=asyncio.Event)


class Ledger:
    """Admits evaluations as long as what they need fits into `capacity` bytes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        #: Bytes that no admitted evaluation may need.
        self.free_bytes = capacity
        self._queue: list[_Waiting] = []

    @property
    def admitted_bytes(self) -> int:
        """Bytes that the admitted evaluations may need, all together."""
        return self.capacity - self.free_bytes

    def grow(self, capacity: int) -> None:
        """Make the capacity larger, if `capacity` is, and admit what fits then."""
        more = max(0, capacity - self.capacity)
        self.capacity += more
        self.free_bytes += more
        self._admit()

    @contextlib.asynccontextmanager
    async def admit(self, nbytes: int, waits: Callable[[], None] = lambda: None) -> AsyncIterator[int]:
        """Hold `nbytes` for the body, or the whole capacity if that is less, and yield the held bytes.

        Evaluations are served in order of arrival. Only a few that fit may overtake an earlier one that does not fit.
        `waits` is called before a wait.
        """
        async with self._hold(min(nbytes, self.capacity), _MOST_PASSED, waits) as held:
            yield held

    @contextlib.asynccontextmanager
    async def alone(self, waits: Callable[[], None] = lambda: None) -> AsyncIterator[int]:
        """Hold the whole capacity for the body: nothing else is admitted, and nothing overtakes."""
        async with self._hold(self.capacity, 0, waits) as held:
            yield held

    @contextlib.asynccontextmanager
    async def _hold(self, nbytes: int, patience: int, waits: Callable[[], None]) -> AsyncIterator[int]:
        waiting = _Waiting(nbytes, patience)
        self._queue.append(waiting)
        self._admit()
        try:
            if not waiting.admitted.is_set():
                waits()
                await waiting.admitted.wait()
            yield nbytes
        finally:
            if waiting.admitted.is_set():
                self.free_bytes += nbytes
            else:  # cancelled
                self._queue.remove(waiting)
            self._admit()

    def _admit(self) -> None:
        """Admit all that fit now."""
        earlier: list[_Waiting] = []
        for waiting in list(self._queue):
            if waiting.nbytes <= self.free_bytes and all(each.patience > 0 for each in earlier):
                for each in earlier:
                    each.patience -= 1
                self.free_bytes -= waiting.nbytes
                self._queue.remove(waiting)
                waiting.admitted.set()
            else:
                earlier.append(waiting)


def lacked_memory(result: pb.EvalResult) -> bool:
    """Return True if other evaluations' memory may have caused a result: memory ran out, or no runner could start."""
    match result.outcome:
        case pb.EvalResult.INFRASTRUCTURE_ERROR:
            return result.infrastructure_error.cause in ("DEVICE_MEMORY", "RUNNER_START_FAILED")
        case pb.EvalResult.OUT_OF_MEMORY:
            return result.out_of_memory.memory == "device"
        case outcome:
            return outcome == pb.EvalResult.PROBLEM_TOO_LARGE

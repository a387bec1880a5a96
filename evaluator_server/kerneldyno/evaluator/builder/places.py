"""Places for builds: how many may run at once, which changes while they run."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator


class Places:
    """Lets at most `count` builds run at once; the others wait, and the first to come is the first to run."""

    def __init__(self, count: int) -> None:
        self._count = count
        #: Builds that run now.
        self.running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def count(self) -> int:
        """How many builds may run at once. With a smaller number, builds that run now go on, and fewer ones begin."""
        return self._count

    @count.setter
    def count(self, count: int) -> None:
        self._count = count
        self._admit()

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it in the block."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._admit()
        try:
            await turn
            yield
        finally:
            if turn in self._waiting:  # cancelled before its turn came
                self._waiting.remove(turn)
            else:
                self.running -= 1
            self._admit()

    def _admit(self) -> None:
        while self._waiting and self.running < self._count:
            turn = self._waiting.popleft()
            self.running += 1
            if not turn.done():  # else it is cancelled, and gives its place back at once
                turn.set_result(None)

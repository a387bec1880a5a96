"""How often one caller may do something: a bucket that fills at a constant rate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class TokenBucket:
    """Holds at most one second's worth, and at least 1; it starts full."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._size = max(1.0, per_second)
        self._clock = clock
        self._level = self._size
        self._filled_at = clock()

    def take(self) -> float:
        """Take 1 and return 0.0, or take nothing and return the seconds until there is 1."""
        self._fill()
        if self._level >= 1.0:
            self._level -= 1.0
            return 0.0
        return (1.0 - self._level) / self._per_second

    async def pace(self, count: int) -> None:
        """Take `count`, if need be in advance, and wait until the bucket has made up for it."""
        self._fill()
        self._level -= count
        if self._level < 0.0:
            await asyncio.sleep(-self._level / self._per_second)

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self._size, self._level + (now - self._filled_at) * self._per_second)
        self._filled_at = now

"""Time, as a constructor argument: the only file of the scheduler that asks the operating system for it.

Leases, ageing and timeouts use `monotonic`; `wall` is for people and goes into timestamps only.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds, twice."""

    def monotonic(self) -> float:
        """Return seconds that never jump."""

    def wall(self) -> float:
        """Return seconds since the epoch."""


class SystemClock:
    """The operating system's clocks."""

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return time.monotonic()

    def wall(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

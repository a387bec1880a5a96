"""The clock of the scheduler. It is injected everywhere, and only this file reads the operating system's clocks.

Leases, ageing and timeouts use `monotonic`. `wall` is only for timestamps that people read.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time in seconds."""

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


def lived_seconds() -> float:
    """Return seconds that never jump, and that also pass while the machine is suspended: for a lease at another machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)

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

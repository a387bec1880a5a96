"""Pauses before a broken stream is opened again: short, then longer each time, or as the server asked."""

from __future__ import annotations

import random

#: The first pause and the longest, in seconds, each varied by up to 20 % at random, so that not all clients reach a
#: restarted scheduler at the same moment. A client reconnects at most about one longest pause after the scheduler is
#: back.
FIRST_SECONDS = 0.1
LONGEST_SECONDS = 0.8


class Backoff:
    """Pauses that double from the first to the longest until reset() is called because the connection held."""

    def __init__(self) -> None:
        self._next = FIRST_SECONDS

    def reset(self) -> None:
        """Start over."""
        self._next = FIRST_SECONDS

    def pause(self, told: float | None = None) -> float:
        """Return how long to wait now, in seconds: at least the time that the server `told`, if any."""
        if told is not None:
            return told * random.uniform(1.0, 1.2)
        pause, self._next = self._next, min(2 * self._next, LONGEST_SECONDS)
        return pause * random.uniform(0.8, 1.2)

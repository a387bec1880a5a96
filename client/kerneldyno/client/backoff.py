"""How long to wait before a broken stream is opened again: soon, a little longer each time, or as the server said."""

from __future__ import annotations

import random

#: The first pause and the longest, in seconds, before 20 % of chance is added or taken: a scheduler that restarts is not met
#: by all its clients at once, and waited for at most a second more than it took.
FIRST_SECONDS = 0.1
LONGEST_SECONDS = 0.8


class Backoff:
    """Pauses that double from the first to the longest until reset() says that the connection held."""

    def __init__(self) -> None:
        self._next = FIRST_SECONDS

    def reset(self) -> None:
        """Starts over."""
        self._next = FIRST_SECONDS

    def pause(self, told: float | None = None) -> float:
        """Returns how long to wait now, in seconds: at least what the server `told`, when it did."""
        if told is not None:
            return told * random.uniform(1.0, 1.2)
        pause, self._next = self._next, min(2 * self._next, LONGEST_SECONDS)
        return pause * random.uniform(0.8, 1.2)

"""How many evaluations finish a second, and with which outcomes, from counts that a scheduler shows now and then."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

#: The longest time that is looked back, in seconds.
LONGEST_SECONDS = 60.0
#: Less than this (seconds) tells nothing of a rate.
_SHORTEST_SECONDS = 1.0


class Meter:
    """Counts over the last seconds. Times are of a monotonic clock."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Counter[str]]] = deque()

    def add(self, now: float, totals: Mapping[str, int]) -> None:
        """Takes counts since the scheduler started; lower ones than before mean that it started again."""
        counts = Counter(totals)
        if self._seen and any(counts[name] < count for name, count in self._seen[-1][1].items()):
            self._seen.clear()
        self._seen.append((now, counts))
        while len(self._seen) > 1 and self._seen[1][0] <= now - LONGEST_SECONDS:
            self._seen.popleft()

    def gained(self, now: float, seconds: float = LONGEST_SECONDS) -> Counter[str]:
        """Returns what finished within the last `seconds`, by outcome."""
        if not self._seen:
            return Counter()
        return self._seen[-1][1] - self._at(now - seconds)[1]

    def rate(self, now: float, seconds: float) -> float | None:
        """Returns evaluations a second over the last `seconds`; None after less than a second of looking."""
        watched = min(seconds, self.watched(now))
        return self.gained(now, seconds).total() / watched if watched >= _SHORTEST_SECONDS else None

    def watched(self, now: float) -> float:
        """Returns for how many seconds it has looked, as far as it looks back."""
        return min(LONGEST_SECONDS, now - self._seen[0][0]) if self._seen else 0.0

    def _at(self, then: float) -> tuple[float, Counter[str]]:
        """The counts as they were at `then`: those last seen before it, or else the first ones."""
        found = self._seen[0]
        for one in self._seen:
            if one[0] > then:
                break
            found = one
        return found

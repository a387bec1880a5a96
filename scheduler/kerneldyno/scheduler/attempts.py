"""The attempts that hold their job's token: who may still decide, and until when. Pure; `core` is its only user."""

from __future__ import annotations

import heapq

from kerneldyno.scheduler.fleet import Fleet
from kerneldyno.scheduler.model import Attempt

#: Seconds an attempt may take beyond its own stage limits: a cold reference, the timing lease, a judge's restart.
ATTEMPT_ALLOWANCE_SECONDS = 900.0


class Attempts:
    """Attempts by token."""

    def __init__(self, fleet: Fleet) -> None:
        self.by_token: dict[str, Attempt] = {}
        self._fleet = fleet
        self._settling: set[str] = set()
        self._overdue: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self.by_token)

    def get(self, token: str) -> Attempt | None:
        """Return the attempt that holds this token, or None."""
        return self.by_token.get(token)

    def attach(self, attempt: Attempt, *, last_try: bool) -> None:
        """Give out a token."""
        job = attempt.job
        job.attempt = self.by_token[attempt.token] = attempt
        self._fleet.attach(attempt, last_try=last_try)
        overdue = attempt.started_at + job.spec.limit_seconds + ATTEMPT_ALLOWANCE_SECONDS
        heapq.heappush(self._overdue, (overdue, attempt.token))
        if len(self._overdue) > 2 * len(self.by_token) + 1_024:
            self._overdue = [entry for entry in self._overdue if entry[1] in self.by_token]
            heapq.heapify(self._overdue)

    def detach(self, attempt: Attempt) -> None:
        """Take the token back."""
        del self.by_token[attempt.token]
        self._fleet.detach(attempt)
        attempt.job.attempt = None

    def overdue(self, now: float) -> list[tuple[Attempt, float]]:
        """Return the attempts whose time is over, each once and with the time that it had, in seconds."""
        found = []
        while self._overdue and self._overdue[0][0] <= now:
            due, token = heapq.heappop(self._overdue)
            if (attempt := self.by_token.get(token)) is not None:
                found.append((attempt, due - attempt.started_at))
        return found

    # Between the end of an attempt and the moment when it is on disk

    def settling(self, token: str) -> bool:
        """Say whether the attempt's end is known here and not on disk yet."""
        return token in self._settling

    def settle(self, token: str) -> None:
        """Note that the attempt has ended."""
        self._settling.add(token)

    def settled(self, token: str) -> None:
        """Note that this is on disk."""
        self._settling.discard(token)

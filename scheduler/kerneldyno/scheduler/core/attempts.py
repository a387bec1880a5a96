"""The running attempts and their tokens: which attempt may still decide its job, and until when."""

from __future__ import annotations

import heapq

from kerneldyno.scheduler.core.fleet import Fleet
from kerneldyno.scheduler.core.model import Attempt, Verdict
from kerneldyno.scheduler.core.observer import Observers

#: Seconds that an attempt may take beyond its stage limits: for a cold reference, the timing lease and a judge's restart.
ATTEMPT_ALLOWANCE_SECONDS = 900.0


class Attempts:
    """The running attempts by token."""

    def __init__(self, fleet: Fleet, observers: Observers) -> None:
        self.by_token: dict[str, Attempt] = {}
        self._fleet = fleet
        self._observers = observers
        self._settling: set[str] = set()
        self._overdue: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self.by_token)

    def get(self, token: str) -> Attempt | None:
        """Return the attempt that holds this token, or None."""
        return self.by_token.get(token)

    def is_current(self, token: str) -> bool:
        """Return True if the attempt may still decide its job, or has decided it and that is not on disk yet."""
        return token in self.by_token or token in self._settling

    def attach(self, attempt: Attempt, *, last_try: bool) -> None:
        """Make `attempt` the current attempt of its job.

        Args:
            attempt: The attempt.
            last_try: True if one more crash ends the job for good (see Fleet.attach).
        """
        job = attempt.job
        job.attempt = self.by_token[attempt.token] = attempt
        self._fleet.attach(attempt, last_try=last_try)
        overdue = attempt.started_at + job.spec.limit_seconds + ATTEMPT_ALLOWANCE_SECONDS
        heapq.heappush(self._overdue, (overdue, attempt.token))
        if len(self._overdue) > 2 * len(self.by_token) + 1_024:
            self._overdue = [entry for entry in self._overdue if entry[1] in self.by_token]
            heapq.heapify(self._overdue)

    def detach(self, attempt: Attempt) -> None:
        """Invalidate the token of `attempt`."""
        del self.by_token[attempt.token]
        self._fleet.detach(attempt)
        attempt.job.attempt = None

    def drop(self, attempt: Attempt, why: Verdict, *, node_lost: bool) -> None:
        """Invalidate the token of an attempt that has not ended, and tell observers that its node should kill it."""
        self.detach(attempt)
        self._observers.tell(lambda observer: observer.attempt_ended(attempt, why))
        self._observers.tell(lambda observer: observer.attempt_dropped(attempt, node_lost=node_lost))

    def overdue(self, now: float) -> list[tuple[Attempt, float]]:
        """Return the attempts that ran out of time by `now`, each once, with the time in seconds that they had."""
        found = []
        while self._overdue and self._overdue[0][0] <= now:
            due, token = heapq.heappop(self._overdue)
            if (attempt := self.by_token.get(token)) is not None:
                found.append((attempt, due - attempt.started_at))
        return found

    # Between the end of an attempt and the moment when that end is on disk

    def settling(self, token: str) -> bool:
        """Return True if the attempt has ended and its end is not on disk yet."""
        return token in self._settling

    def settle(self, token: str) -> None:
        """Record that the attempt has ended."""
        self._settling.add(token)

    def settled(self, token: str) -> None:
        """Record that the attempt's end is on disk."""
        self._settling.discard(token)

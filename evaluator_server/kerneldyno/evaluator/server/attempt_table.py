"""The attempts of a node by token: those that run, and those whose results wait to be collected or acknowledged.

The node adds and ends attempts; this table decides how long a result is kept. A result for the scheduler stays until
the scheduler acknowledges it, and one for a direct caller until shortly after it was collected, both within limits of
time and size.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from kerneldyno.rpc import errors

from .attempt import Attempt

_log = logging.getLogger(__name__)

#: Limits of the results that wait for the scheduler's acknowledgement: seconds for each, bytes for all. Beyond them the
#: oldest are dropped, and the scheduler runs those attempts again. By then their leases have ended long ago, unless it
#: is the scheduler that is unreachable.
_UNACKNOWLEDGED_SECONDS = 3600.0
_UNACKNOWLEDGED_BYTES = 256 * 1024 * 1024
#: Seconds that a direct caller's result waits to be collected, and seconds that it stays afterwards, because the
#: caller's stream may have broken before the result arrived.
_RESULT_SECONDS = 600.0
_COLLECTED_SECONDS = 30.0
#: Maximum number of results for direct callers; beyond it the oldest is dropped. At 100 KiB each, with logs: 100 MiB.
_MAX_RESULTS = 1024


class AttemptTable:
    """Attempts in order of their start. `clock` is the node's monotonic clock, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._attempts: dict[str, Attempt] = {}

    def add(self, attempt: Attempt) -> None:
        """Add an attempt, whose token must be new."""
        assert attempt.token not in self._attempts
        self._attempts[attempt.token] = attempt

    def remove(self, attempt: Attempt) -> None:
        """Remove an attempt that is in the table."""
        del self._attempts[attempt.token]

    def find(self, token: str) -> Attempt | None:
        """Return the attempt with this token, or None."""
        return self._attempts.get(token)

    def get(self, token: str) -> Attempt:
        """Return the attempt with this token. Raises AttemptNotFoundError."""
        try:
            return self._attempts[token]
        except KeyError:
            raise errors.AttemptNotFoundError(f"no attempt {token!r}") from None

    def tokens(self) -> list[str]:
        """Return the tokens of unfinished attempts, and of results that were neither collected nor acknowledged."""
        return [token for token, attempt in self._attempts.items() if attempt.collected_at is None]

    def holds(self, token: str) -> bool:
        """Return True if an attempt of the scheduler, or its result, has this token."""
        attempt = self._attempts.get(token)
        return attempt is not None and attempt.held

    def held(self) -> list[Attempt]:
        """Return the scheduler's attempts: those that run, and those with results that it has not acknowledged."""
        return [attempt for attempt in self._attempts.values() if attempt.held]

    def unfinished(self) -> list[Attempt]:
        """Return the attempts without a result."""
        return [attempt for attempt in self._attempts.values() if not attempt.done]

    def unwatched(self, seconds: float) -> list[Attempt]:
        """Return direct callers' unfinished attempts that nobody has watched for more than `seconds`."""
        now = self._clock()
        return [
            attempt
            for attempt in self.unfinished()
            if not attempt.scheduled and not attempt.watchers and now - attempt.last_watched > seconds
        ]

    def drop_old_results(self) -> None:
        """Drop results that are too old, too many or too large."""
        now = self._clock()
        self._drop_uncollected(now)
        self._drop_unacknowledged(now)

    def _drop_uncollected(self, now: float) -> None:
        fresh = []
        for attempt in _by_age(a for a in self._attempts.values() if a.done and not a.scheduled):
            assert attempt.finished_at is not None
            collected = attempt.collected_at
            if now - attempt.finished_at > _RESULT_SECONDS or (
                collected is not None and now - collected > _COLLECTED_SECONDS
            ):
                self.remove(attempt)
            else:
                fresh.append(attempt)
        for attempt in fresh[: max(0, len(fresh) - _MAX_RESULTS)]:
            self.remove(attempt)

    def _drop_unacknowledged(self, now: float) -> None:
        results = _by_age(a for a in self._attempts.values() if a.done and a.scheduled)
        size = sum(attempt.result_bytes for attempt in results)
        for attempt in results:
            assert attempt.finished_at is not None
            age = now - attempt.finished_at
            if size <= _UNACKNOWLEDGED_BYTES and age <= _UNACKNOWLEDGED_SECONDS:
                break
            _log.warning(
                "event=result_dropped attempt=%s age=%.0f bytes=%d kept_bytes=%d reason='not acknowledged'",
                *(attempt.token, age, attempt.result_bytes, size),
            )
            size -= attempt.result_bytes
            self.remove(attempt)


def _by_age(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return finished attempts, the oldest first."""
    return sorted(attempts, key=lambda attempt: attempt.finished_at or 0.0)

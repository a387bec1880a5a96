"""The quarantine of work: digests that may not run for a while, because their attempts kept killing nodes or judges."""

from __future__ import annotations

from collections.abc import Iterable

from kerneldyno.scheduler.clock import Clock
from kerneldyno.scheduler.core.model import Failure, Job
from kerneldyno.scheduler.core.ports import Journal
from kerneldyno.scheduler.core.records import Quarantined


class Quarantine:
    """Digests of work that may not run for a while."""

    def __init__(self, seconds: float, clock: Clock, journal: Journal) -> None:
        self._seconds = seconds
        self._clock = clock
        self._journal = journal
        self._entries: dict[bytes, Quarantined] = {}

    def restore(self, entries: Iterable[Quarantined]) -> None:
        """Replace all entries by those that were in force when the last process ended."""
        self._entries = {entry.digest: entry for entry in entries}

    def impose(self, job: Job, failure: Failure) -> str:
        """Put the work of `job` into quarantine, and return the reason as text for people."""
        nodes = ", ".join(sorted(job.unlucky_nodes))
        reason = f"{job.crashes} attempts on {nodes} ended with their node or judge; the last one: {failure.detail}"
        now = self._clock.wall()
        self._put(Quarantined(job.digest, reason, now, now + self._seconds))
        return reason

    def reason(self, digest: bytes) -> Failure | None:
        """Return the failure that ends this work while it is in quarantine; None if it may run."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        if entry.until_wall <= self._clock.wall():
            self.release(digest)
            return None
        return Failure("QUARANTINED", f"this work is in quarantine: {entry.reason}", retryable=False)

    def release(self, digest: bytes) -> bool:
        """Let the work run again, and return whether it was in quarantine."""
        entry = self._entries.get(digest)
        if entry is None:
            return False
        self._put(Quarantined(digest, entry.reason, entry.since_wall, 0.0))
        del self._entries[digest]
        return True

    def entries(self) -> list[Quarantined]:
        """Return the entries in force, oldest first."""
        for digest in list(self._entries):
            self.reason(digest)
        return sorted(self._entries.values(), key=lambda entry: entry.since_wall)

    def _put(self, entry: Quarantined) -> None:
        self._entries[entry.digest] = entry
        self._journal.append(entry)

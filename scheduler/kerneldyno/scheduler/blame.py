"""Whose fault a failure was, and the quarantine of work that keeps killing nodes. `core` is its only user.

A candidate's own failure is a verdict and never comes here. What comes here are failures of infrastructure: they are tried
again, and only work that took down attempts on several nodes is at last taken to be their cause.
"""

from __future__ import annotations

from collections.abc import Iterable

from kerneldyno.scheduler.clock import Clock
from kerneldyno.scheduler.model import Failure, Job
from kerneldyno.scheduler.store.base import Journal, Quarantined

#: Outcomes that a repetition on the same environment would give again, and so may answer later requests. The others depend
#: on the load of the machine, or say nothing about the candidate.
CACHEABLE = frozenset({"CORRECT", "INCORRECT", "COMPILE_ERROR", "RUNTIME_ERROR", "REJECTED"})
#: Causes that work may bring about: its node or its judge ended under it.
_CRASHES = frozenset({"NODE_LOST", "JUDGE_DIED", "ATTEMPT_LOST"})


def is_crash(failure: Failure) -> bool:
    """Say whether the attempt ended with its node, or with its judge."""
    return failure.cause in _CRASHES


def is_handed_back(failure: Failure) -> bool:
    """Say whether the node gave the attempt back because it was told to stop: nobody's failure."""
    return failure.cause == "NODE_STOPPED"


def is_poison(job: Job, attempts: int) -> bool:
    """Say whether every attempt ended in a crash, and not always on the same node: then it is not the node."""
    return job.crashes >= attempts and len(job.unlucky_nodes) > 1


class Quarantine:
    """Digests of work that may not run for a while."""

    def __init__(self, seconds: float, clock: Clock, journal: Journal) -> None:
        self._seconds = seconds
        self._clock = clock
        self._journal = journal
        self._entries: dict[bytes, Quarantined] = {}

    def restore(self, entries: Iterable[Quarantined]) -> None:
        """Take up what was in force when the last process ended."""
        self._entries = {entry.digest: entry for entry in entries}

    def impose(self, job: Job, failure: Failure) -> str:
        """Keep the work of `job` from running; return why, for a person."""
        nodes = ", ".join(sorted(job.unlucky_nodes))
        reason = f"{job.crashes} attempts on {nodes} ended with their node or judge; the last one: {failure.detail}"
        now = self._clock.wall()
        self._put(Quarantined(job.digest, reason, now, now + self._seconds))
        return reason

    def reason(self, digest: bytes) -> Failure | None:
        """Return why this work may not run now, or None."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        if entry.until_wall <= self._clock.wall():
            self.release(digest)
            return None
        return Failure("QUARANTINED", f"this work is in quarantine: {entry.reason}", retryable=False)

    def release(self, digest: bytes) -> bool:
        """Let the work run again; say whether it was kept from it."""
        entry = self._entries.get(digest)
        if entry is None:
            return False
        self._put(Quarantined(digest, entry.reason, entry.since_wall, 0.0))
        del self._entries[digest]
        return True

    def entries(self) -> list[Quarantined]:
        """Return what is in force, oldest first."""
        for digest in list(self._entries):
            self.reason(digest)
        return sorted(self._entries.values(), key=lambda entry: entry.since_wall)

    def _put(self, entry: Quarantined) -> None:
        self._entries[entry.digest] = entry
        self._journal.append(entry)

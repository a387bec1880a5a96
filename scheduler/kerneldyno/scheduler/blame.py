"""Whose fault a failure was, the quarantine of work that keeps killing nodes, and what a problem needs that was too large.

`core` is its only user.

A candidate's own failure is a verdict and never comes here. What comes here are failures of infrastructure: they are tried
again, and only work that took down attempts on several nodes is at last taken to be their cause.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kerneldyno.scheduler.clock import Clock
from kerneldyno.scheduler.model import Attempt, Failure, Job, Requirement, Shortage
from kerneldyno.scheduler.store.base import Journal, Quarantined

#: Outcomes that a repetition on the same environment would give again, and so may answer later requests. The others depend
#: on the load of the machine, or say nothing about the candidate, or hold only until a larger device comes.
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


def larger(attempt: Attempt, shortage: Shortage) -> Requirement | None:
    """Return what the job of `attempt`, which was too large for its device, needs instead; None when no device can help.

    That is a device of the same kind with more memory. Another kind is no substitute: in Triton's interpreter on a CPU, a
    problem of a GPU's size would end as the candidate's TIMEOUT.
    """
    if not shortage.of_device:
        return None
    need, devices = attempt.job.spec.requirement, attempt.node.report.devices
    name = shortage.device or attempt.device
    # A node that does not say which device it was may have meant its largest.
    tried = [device for device in devices if device.name == name] or [d for d in devices if d.matches(need)]
    if not tried:
        return None
    largest = max(tried, key=lambda device: device.memory_bytes)
    least = max(shortage.needed_bytes, shortage.had_bytes + 1, largest.memory_bytes + 1, need.min_memory_bytes)
    return replace(need, device_kind=largest.kind, min_memory_bytes=least)


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

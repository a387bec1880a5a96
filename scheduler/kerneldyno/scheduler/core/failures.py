"""Rules about failures: what counts as a crash, which work is poison, and what a problem needs that was too large. Pure.

A candidate's own failure is a verdict and is not handled here. Infrastructure failures are tried again. Only work whose
attempts all crashed, on several nodes, is taken to be the cause of the crashes.
"""

from __future__ import annotations

from dataclasses import replace

from kerneldyno.scheduler.core.model import Attempt, Failure, Job, MemoryShortage, Requirement

#: Outcomes that a second run in the same environment would give again, so a stored result may answer later requests. All
#: other outcomes depend on the machine's load, say nothing about the candidate, or hold only until a larger device joins.
CACHEABLE = frozenset({"CORRECT", "INCORRECT", "COMPILE_ERROR", "RUNTIME_ERROR", "REJECTED"})
#: Causes that the work itself may bring about: its node or its judge ended while it ran.
_CRASHES = frozenset({"NODE_LOST", "JUDGE_DIED", "ATTEMPT_LOST"})


def is_crash(failure: Failure) -> bool:
    """Return True if the attempt ended because its node or its judge died."""
    return failure.cause in _CRASHES


def is_handed_back(failure: Failure) -> bool:
    """Return True if the node returned the attempt because it is shutting down. Nothing is blamed for that."""
    return failure.cause == "NODE_STOPPED"


def is_poison(job: Job, max_attempts: int) -> bool:
    """Return True if every attempt ended in a crash, on at least two nodes, so that no single node can be the cause."""
    return job.crashes >= max_attempts and len(job.unlucky_nodes) > 1


def larger_requirement(attempt: Attempt, shortage: MemoryShortage) -> Requirement | None:
    """Return what a job needs after it was too large for the device of `attempt`: the same kind with more memory.

    Another kind of device is no substitute: in Triton's interpreter on a CPU, a problem of a GPU's size would end as the
    candidate's TIMEOUT.

    Returns:
        The requirement with a higher `min_memory_bytes`; None if no other device can help.
    """
    if not shortage.of_device:
        return None
    need, devices = attempt.job.spec.requirement, attempt.node.report.devices
    name = shortage.device or attempt.device
    # A node that does not name the device may have used its largest one.
    tried = [device for device in devices if device.name == name] or [d for d in devices if d.matches(need)]
    if not tried:
        return None
    largest = max(tried, key=lambda device: device.memory_bytes)
    least = max(shortage.needed_bytes, shortage.had_bytes + 1, largest.memory_bytes + 1, need.min_memory_bytes)
    return replace(need, device_kind=largest.kind, min_memory_bytes=least)

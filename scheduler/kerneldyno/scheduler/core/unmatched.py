"""Work that no node can run: how long it may wait, and the message when that time is over. Pure.

The work waits while nodes may still join. The fleet counts as complete when no new node joined for
`Settings.settle_seconds`; then work that none of its nodes ever offered fails at once, because waiting cannot help. A node
that was lost lately may come back; work that only such nodes offer waits for up to `Settings.unmatched_seconds`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from kerneldyno.scheduler.core.fair_queue import FairQueue
from kerneldyno.scheduler.core.fleet import Fleet
from kerneldyno.scheduler.core.model import Job, Requirement, Verdict
from kerneldyno.scheduler.settings import Settings

#: Failure cause of an evaluation that no node could run.
CAUSE = "NO_MATCHING_DEVICE"
#: Number of device kinds that a message lists.
_MOST_LISTED = 5


class Unmatched:
    """Requirements that no live node meets, and since when."""

    def __init__(self, fleet: Fleet, settings: Settings) -> None:
        self._fleet = fleet
        self._limit = settings.unmatched_seconds
        self._settle = settings.settle_seconds
        self._complete_at = math.inf
        self._since: dict[Requirement, float] = {}

    def node_joined(self, now: float) -> None:
        """Record that a new node registered: others may follow, so the fleet is not complete yet."""
        self._complete_at = now + self._settle

    def never_runs(self, need: Requirement, now: float) -> str | None:
        """Return why no node of a complete fleet can run such work; None if one can, or may still join."""
        if now < self._complete_at or self._fleet.offers.could_match(need):
            return None
        return f"no node of this fleet can run this work. It needs {_asked(need)}; the fleet has {self._offered()}"

    def overdue(self, queue: FairQueue, now: float, *, fleet_known: bool) -> Iterator[tuple[Job, Verdict]]:
        """Yield the jobs that have waited too long for a matching node, each with its verdict.

        Args:
            queue: The waiting jobs.
            now: Monotonic time in seconds.
            fleet_known: False while nodes may not have registered yet after a start of the scheduler.
        """
        self._since = {
            need: self._since.get(need, now) for need in queue.requirements() if not self._fleet.offers.match(need)
        }
        for need, since in list(self._since.items()):
            why = self.never_runs(need, now) if fleet_known else None
            for job in list(queue.waiting_for(need)):
                if why is not None:
                    yield job, Verdict.failed(CAUSE, why, retryable=False)
                elif now - max(since, job.queued_at) >= self._limit:
                    text = f"no registered device could run this for {self._limit:g} s"
                    yield job, Verdict.failed(CAUSE, text, retryable=True)

    def _offered(self) -> str:
        found = Counter((device.kind, device.model) for node in self._fleet.live() for device in node.report.devices)
        listed = [f"{count} x {kind} ({model})" for (kind, model), count in found.most_common(_MOST_LISTED)]
        more = f" and {len(found) - _MOST_LISTED} other kinds" if len(found) > _MOST_LISTED else ""
        return f"{', '.join(listed)}{more}" if listed else "no devices"


def _asked(need: Requirement) -> str:
    """Describe `need` for people."""
    wants = {
        "kind": need.device_kind,
        "model": need.device_model,
        "memory": f"{need.min_memory_bytes / 2**30:.1f} GiB" if need.min_memory_bytes else "",
        "devices on one node": need.min_devices if need.min_devices > 1 else "",
        "labels": ", ".join(f"{key}={value}" for key, value in sorted(need.node_labels)),
    }
    device = ", ".join(f"{name} {value}" for name, value in wants.items() if value) or "any kind"
    profiling = ", with profiling" if need.profiling else ""
    return f"a device ({device}) for backend {need.backend} and toolkit {need.toolkit}{profiling}"

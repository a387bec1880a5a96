"""Work that no node can run: how long it may wait, and what is said of it then. Pure; `core` is its only user.

While nodes may still come, it waits. Once the fleet is complete (no new node came for `Settings.settle_seconds`), work that
none of its nodes ever offered fails at once: waiting cannot help. A node that was lost lately counts as one that may come
back; then the limit is `Settings.unmatched_seconds`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from kerneldyno.scheduler.fleet import Fleet
from kerneldyno.scheduler.model import Job, Requirement, Verdict
from kerneldyno.scheduler.queue import WaitingLine
from kerneldyno.scheduler.settings import Settings

#: Of an evaluation that no node could run.
CAUSE = "NO_MATCHING_DEVICE"
#: Kinds of devices that a message lists.
_MOST_LISTED = 5


class Unmatched:
    """Since when which work has no node."""

    def __init__(self, fleet: Fleet, settings: Settings) -> None:
        self._fleet = fleet
        self._limit = settings.unmatched_seconds
        self._settle = settings.settle_seconds
        self._complete_at = math.inf
        self._since: dict[Requirement, float] = {}

    def node_came(self, now: float) -> None:
        """Note that a node registered that was not there: others may follow."""
        self._complete_at = now + self._settle

    def never(self, need: Requirement, now: float) -> str | None:
        """Return why no node of a fleet that is known can ever run such work; None while one can, or may still come."""
        if now < self._complete_at or self._fleet.could_offer(need):
            return None
        return f"no node of this fleet can run it: it asks for {_asked(need)}; there {self._offered()}"

    def overdue(self, waiting: WaitingLine, now: float, *, known: bool) -> Iterator[tuple[Job, Verdict]]:
        """Yield the jobs that have waited for a node for too long, and their verdict. `known`: the fleet is."""
        self._since = {
            need: self._since.get(need, now) for need in waiting.requirements() if not self._fleet.any_offers(need)
        }
        for need, since in list(self._since.items()):
            why = self.never(need, now) if known else None
            for job in list(waiting.waiting_for(need)):
                if why is not None:
                    yield job, Verdict.failed(CAUSE, why, retryable=False)
                elif now - max(since, job.queued_at) >= self._limit:
                    text = f"no registered device could run this for {self._limit:g} s"
                    yield job, Verdict.failed(CAUSE, text, retryable=True)

    def _offered(self) -> str:
        found = Counter((device.kind, device.model) for node in self._fleet.live() for device in node.report.devices)
        listed = [f"{count} x {kind} ({model})" for (kind, model), count in found.most_common(_MOST_LISTED)]
        more = f" and {len(found) - _MOST_LISTED} other kinds" if len(found) > _MOST_LISTED else ""
        return f"{'is' if found.total() == 1 else 'are'} {', '.join(listed)}{more}"


def _asked(need: Requirement) -> str:
    """Return what `need` asks for, for a person."""
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

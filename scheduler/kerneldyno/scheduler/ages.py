"""How many jobs wait, and since when the oldest does, by priority and by the kind of client: what metrics show of the line.

Kept up with every change, in O(log n), rather than counted: the line may be long, and is looked at several times a second.
Pure; `queue` feeds it.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from typing import NamedTuple

from kerneldyno.scheduler.model import ClientKind, Job, Priority


class JobClass(NamedTuple):
    """What is told apart."""

    priority: Priority
    kind: ClientKind


class Ages:
    """The jobs that wait, by class."""

    def __init__(self) -> None:
        self.depth: Counter[JobClass] = Counter()
        self._entries: dict[Job, tuple[JobClass, int]] = {}
        self._oldest: dict[JobClass, list[tuple[float, int, Job]]] = {}
        self._numbers = itertools.count()

    def add(self, job: Job) -> None:
        """Note that `job` waits."""
        one = JobClass(job.priority, job.kind)
        number = next(self._numbers)
        self._entries[job] = one, number
        heapq.heappush(self._oldest.setdefault(one, []), (job.queued_at, number, job))
        self.depth[one] += 1

    def remove(self, job: Job) -> None:
        """Note that it waits no more. Its entry in the heap goes when it surfaces, or when most entries are such."""
        one, _ = self._entries.pop(job)
        self.depth[one] -= 1
        heap = self._oldest[one]
        if len(heap) > 2 * self.depth[one] + 64:
            self._oldest[one] = [entry for entry in heap if self._waits(entry)]
            heapq.heapify(self._oldest[one])

    def oldest(self, one: JobClass) -> float | None:
        """Return since when the oldest job of a class waits (monotonic), or None when none does."""
        heap = self._oldest.get(one, [])
        while heap and not self._waits(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _waits(self, entry: tuple[float, int, Job]) -> bool:
        _, number, job = entry
        return self._entries.get(job, (None, None))[1] == number

"""The number of waiting jobs and the age of the oldest one, by priority and kind of client, for the metrics. Pure.

The counts are updated with each change, in O(log n), because the queue may be long and is sampled several times a second.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from typing import NamedTuple

from kerneldyno.scheduler.core.model import ClientKind, Job, Priority


class JobClass(NamedTuple):
    """The labels by which waiting jobs are counted."""

    priority: Priority
    kind: ClientKind


class QueueAges:
    """The waiting jobs by class."""

    def __init__(self) -> None:
        self.depth: Counter[JobClass] = Counter()
        self._entries: dict[Job, tuple[JobClass, int]] = {}
        self._oldest: dict[JobClass, list[tuple[float, int, Job]]] = {}
        self._numbers = itertools.count()

    def add(self, job: Job) -> None:
        """Count `job` as waiting."""
        one = JobClass(job.priority, job.kind)
        number = next(self._numbers)
        self._entries[job] = one, number
        heapq.heappush(self._oldest.setdefault(one, []), (job.queued_at, number, job))
        self.depth[one] += 1

    def remove(self, job: Job) -> None:
        """Stop counting `job`. Its heap entry is dropped when it reaches the top, or when most entries are obsolete."""
        one, _ = self._entries.pop(job)
        self.depth[one] -= 1
        heap = self._oldest[one]
        if len(heap) > 2 * self.depth[one] + 64:
            self._oldest[one] = [entry for entry in heap if self._waits(entry)]
            heapq.heapify(self._oldest[one])

    def oldest(self, one: JobClass) -> float | None:
        """Return the monotonic time since when the oldest job of a class has waited; None if none waits."""
        heap = self._oldest.get(one, [])
        while heap and not self._waits(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _waits(self, entry: tuple[float, int, Job]) -> bool:
        _, number, job = entry
        return self._entries.get(job, (None, None))[1] == number

"""The queue of waiting jobs: shares take turns within a priority, priorities age, and every operation is O(log n). Pure.

Jobs with the same requirement and priority form one subqueue, so that a subqueue that no node can serve now is skipped as a
whole. Within a subqueue, shares are served by start-time fair queueing (Goyal, Vin and Cheng, 1996): each turn of a share
has a virtual start time and costs the share 1 / weight of virtual time; the earliest start time is served next. Subqueues
are independent of each other.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from typing import TypeVar

from kerneldyno.scheduler.core.model import Job, Priority, Requirement
from kerneldyno.scheduler.core.queue_ages import QueueAges

#: Seconds for which a job may be overtaken by jobs whose reference is hot on the free node while its own is not. It is about
#: the time that it takes to make a reference hot.
PATIENCE_SECONDS = 1.0

_K = TypeVar("_K", bound=Hashable)


class FairQueue:
    """The jobs that wait for a node."""

    def __init__(self) -> None:
        self.ages = QueueAges()
        self.bytes = 0
        """Total size of the requests of the waiting jobs."""
        self._subqueues: dict[tuple[Requirement, Priority], _Subqueue] = {}
        self._subqueue_of: dict[Job, _Subqueue] = {}
        self._waiting: Counter[str] = Counter()
        self._weights: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._subqueue_of)

    def __contains__(self, job: Job) -> bool:
        return job in self._subqueue_of

    def set_weight(self, share: str, weight: float) -> None:
        """Give `share` `weight` turns for each turn of a share of weight 1, from now on.

        Raises:
            ValueError: The weight is not greater than 0, or infinite.
        """
        if not 0 < weight < math.inf:
            raise ValueError(f"the weight of share {share!r} is {weight}; it must be greater than 0 and finite")
        self._weights[share] = weight

    def weight(self, share: str) -> float:
        """Return how many turns `share` has for each turn of a share of weight 1."""
        return self._weights.get(share, 1.0)

    def add(self, job: Job, *, first: bool = False) -> None:
        """Add `job` behind the other jobs of its share.

        Args:
            job: A job that does not wait yet.
            first: True for a job that was taken before and comes back: it goes first, and costs its share no further turn.
        """
        assert job not in self._subqueue_of, "a job is in the queue at most once"
        key = (job.spec.requirement, job.priority)
        subqueue = self._subqueues.get(key)
        if subqueue is None:
            subqueue = self._subqueues[key] = _Subqueue(*key)
        subqueue.add(job, first=first)
        self._subqueue_of[job] = subqueue
        self._waiting[job.share] += 1
        self.ages.add(job)
        self.bytes += len(job.spec.payload)

    def remove(self, job: Job) -> None:
        """Remove `job` because it has ended while it waited. Its share is not charged."""
        self._take_out(job, charge=0.0)

    def take(self, job: Job) -> None:
        """Remove `job` because it is being placed. Its share is charged one turn."""
        self._take_out(job, charge=1.0 / self._weights.get(job.share, 1.0))

    def heads(self) -> list[Job]:
        """Return the jobs that may be placed next, from the most urgent subqueue to the least.

        Each subqueue gives, for each number of crashes, the first job that came back with it, and then the job whose turn it
        is: a job that crashed may have to wait for a node of its own and must not block others. The urgency of a subqueue is
        that of its oldest job, not of its next one, so that a share ages also after its turn.
        """
        ordered = sorted(self._subqueues.values(), key=_Subqueue.urgency)
        return [job for subqueue in ordered for job in subqueue.heads()]

    def prefer_hot(self, head: Job, hot: Collection[bytes], now: float) -> Job:
        """Return the job of `head`'s subqueue that should run on a node with the hot references `hot`.

        Only jobs that never failed overtake another, and no job is overtaken for more than PATIENCE_SECONDS. This is delay
        scheduling (Zaharia et al., 2010), except that no lane stays empty.

        Args:
            head: A job that `heads` returned.
            hot: Digests of the references that are hot on the node.
            now: Monotonic time in seconds.

        Returns:
            A job whose reference is hot there, or `head`.
        """
        return self._subqueue_of[head].prefer_hot(head, hot, now)

    def requirements(self) -> set[Requirement]:
        """Return the requirements of all waiting jobs."""
        return {requirement for requirement, _ in self._subqueues}

    def waiting_for(self, requirement: Requirement) -> Iterator[Job]:
        """Yield the jobs that wait for `requirement`. The queue must not change meanwhile."""
        for priority in Priority:
            if (subqueue := self._subqueues.get((requirement, priority))) is not None:
                yield from subqueue.jobs()

    def waiting_of(self, share: str) -> int:
        """Return the number of waiting jobs of `share`."""
        return self._waiting[share]

    def shares(self) -> dict[str, int]:
        """Return the number of waiting jobs of each share that has any."""
        return dict(self._waiting)

    def _take_out(self, job: Job, charge: float) -> None:
        subqueue = self._subqueue_of.pop(job)
        subqueue.take_out(job, charge)
        if not subqueue.size:  # its shares' debts go with it: no other share waited
            del self._subqueues[subqueue.requirement, subqueue.priority]
        self._waiting[job.share] -= 1
        if not self._waiting[job.share]:
            del self._waiting[job.share]
        self.ages.remove(job)
        self.bytes -= len(job.spec.payload)


class _Flow:
    """The jobs of one share in one subqueue whose turn was not charged yet."""

    __slots__ = ("jobs", "share", "stamp", "start")

    def __init__(self, share: str, start: float) -> None:
        self.share = share
        self.start = start
        """Virtual start time of its next turn."""
        self.stamp = (start, 0)
        """Its valid entry in the subqueue's heap: the start time, and a number that breaks ties."""
        self.jobs: dict[Job, None] = {}


class _Subqueue:
    """The jobs of one requirement and priority. Obsolete heap entries are dropped when they reach the top."""

    def __init__(self, requirement: Requirement, priority: Priority) -> None:
        self.requirement = requirement
        self.priority = priority
        self._now = 0.0  # virtual time: start of the last turn; no flow's next turn starts earlier
        self._flows: dict[str, _Flow] = {}  # also idle ones, until virtual time reaches the end of their last turn
        self._turns: list[tuple[float, int, _Flow]] = []
        self._returned: dict[int, dict[Job, None]] = {}  # jobs that came back, by number of crashes
        self._oldest: list[tuple[float, int, Job]] = []
        self._added: dict[Job, int] = {}
        self._by_reference: dict[bytes, dict[Job, None]] = {}  # jobs that may overtake others
        self._overtaken_since: dict[Job, float] = {}
        self._numbers = itertools.count(1)

    @property
    def size(self) -> int:
        """The number of jobs in it."""
        return len(self._added)

    def urgency(self) -> float:
        """Return the arrival time of its oldest job plus the handicap of its priority, in seconds."""
        while self._added.get(self._oldest[0][2]) != self._oldest[0][1]:
            heapq.heappop(self._oldest)
        return self._oldest[0][0] + self.priority.value

    def jobs(self) -> Iterator[Job]:
        """Yield all jobs in the order in which they were added."""
        return iter(self._added)

    def heads(self) -> list[Job]:
        """See FairQueue.heads."""
        heads = [next(iter(self._returned[crashes])) for crashes in sorted(self._returned)]
        if (flow := self._next()) is not None:
            heads.append(next(iter(flow.jobs)))
        return heads

    def prefer_hot(self, head: Job, hot: Collection[bytes], now: float) -> Job:
        """See FairQueue.prefer_hot."""
        if head.spec.reference in hot or now - self._overtaken_since.setdefault(head, now) >= PATIENCE_SECONDS:
            return head
        found = [next(iter(self._by_reference[reference])) for reference in hot if reference in self._by_reference]
        return min(found, key=lambda job: (self._flows[job.share].stamp, self._added[job]), default=head)

    def add(self, job: Job, *, first: bool) -> None:
        """Add a job to the jobs that came back, or to the flow of its share."""
        if first or job.crashes:
            self._returned.setdefault(job.crashes, {})[job] = None
        else:
            flow = self._flows.get(job.share)
            if flow is None:  # a share gets no credit for the time in which it was idle
                flow = self._flows[job.share] = _Flow(job.share, self._now)
                self._stamp(flow)
            flow.jobs[job] = None
            if not job.attempts:
                self._by_reference.setdefault(job.spec.reference, {})[job] = None
        number = self._added[job] = next(self._numbers)
        heapq.heappush(self._oldest, (job.queued_at, number, job))

    def take_out(self, job: Job, charge: float) -> None:
        """Remove a job, and charge its share `charge` of virtual time unless the job came back: its turn is paid."""
        flow = self._flows.get(job.share)
        if flow is None or job not in flow.jobs:
            assert job in self._returned.get(job.crashes, ()), "the crashes of a job must not change while it waits"
            _discard(self._returned, job.crashes, job)
        else:
            self._take_turn(flow, job, charge)
        del self._added[job]
        self._overtaken_since.pop(job, None)
        if len(self._oldest) > 2 * self.size + 64:
            self._oldest = [entry for entry in self._oldest if self._added.get(entry[2]) == entry[1]]
            heapq.heapify(self._oldest)

    def _take_turn(self, flow: _Flow, job: Job, charge: float) -> None:
        if charge and (turn := self._next()) is not None:
            self._now = max(self._now, turn.start)
            flow.start += charge
            self._stamp(flow)
        del flow.jobs[job]
        _discard(self._by_reference, job.spec.reference, job)
        if not flow.jobs and flow.start <= self._now:
            del self._flows[flow.share]

    def _next(self) -> _Flow | None:
        """Return the flow whose turn it is, and drop idle flows with an earlier turn."""
        while self._turns:
            time, number, flow = self._turns[0]
            if self._flows.get(flow.share) is flow and flow.stamp == (time, number):
                if flow.jobs:
                    return flow
                self._now = max(self._now, time)  # so that the share cannot come back with an earlier turn
                del self._flows[flow.share]
            heapq.heappop(self._turns)
        return None

    def _stamp(self, flow: _Flow) -> None:
        flow.stamp = (flow.start, next(self._numbers))
        heapq.heappush(self._turns, (*flow.stamp, flow))
        if len(self._turns) > 2 * len(self._flows) + 64:
            self._turns = [(*flow.stamp, flow) for flow in self._flows.values()]
            heapq.heapify(self._turns)


def _discard(groups: dict[_K, dict[Job, None]], key: _K, job: Job) -> None:
    """Remove `job` from its group if it is there, and the group if it is empty then."""
    if (group := groups.get(key)) is not None:
        group.pop(job, None)
        if not group:
            del groups[key]

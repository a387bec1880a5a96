"""The waiting line: shares take turns within a priority, priorities age, and every operation is O(log n).

Jobs with the same requirement and priority form one line, so that a line nobody can serve now is skipped whole. Within a
line shares (clients) are served by start-time fair queueing (Goyal, Vin and Cheng, 1996): each turn of a share is stamped
with a virtual time and costs it 1 / weight of that time, and the earliest stamp is served next. Lines are independent.

Pure; `core` is its only user.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterator

from kerneldyno.scheduler.model import Job, Priority, Requirement

#: How long (seconds) a job lets others go before it to places where their reference is hot and its own is not. That is
#: about what it costs to have a reference made hot.
PATIENCE_SECONDS = 1.0


class WaitingLine:
    """Jobs that wait for a place."""

    def __init__(self) -> None:
        self.depth: Counter[Priority] = Counter(dict.fromkeys(Priority, 0))
        self.bytes = 0
        self._lines: dict[tuple[Requirement, Priority], _Line] = {}
        self._flows: dict[Job, _Flow] = {}
        self._waiting: Counter[str] = Counter()
        self._weights: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def __contains__(self, job: Job) -> bool:
        return job in self._flows

    def set_weight(self, share: str, weight: float) -> None:
        """Let `share` have `weight` turns for one of a share of weight 1, from now on. Raises ValueError."""
        if not 0 < weight < math.inf:
            raise ValueError(f"the weight of share {share!r} is {weight}; it must be greater than 0 and finite")
        self._weights[share] = weight

    def add(self, job: Job, *, first: bool = False) -> None:
        """Put `job` behind the others of its share; before them, and free of charge, when it was taken once already."""
        assert job not in self._flows, "a job waits once"
        key = (job.spec.requirement, job.priority)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(*key)
        self._flows[job] = line.add(job, first=first)
        self._waiting[job.share] += 1
        self.depth[job.priority] += 1
        self.bytes += len(job.spec.payload)

    def remove(self, job: Job) -> None:
        """Take `job` out because nobody wants it any more: its share is not charged."""
        self._take_out(job, charge=0.0)

    def take(self, job: Job) -> None:
        """Take `job` out because it is being placed: a turn of its share is over."""
        self._take_out(job, charge=1.0 / self._weights.get(self._flows[job].share, 1.0))

    def heads(self) -> list[Job]:
        """Return the next of each line; the line that holds the most urgent job first.

        The urgency of a line is that of its oldest job, not of the next: a share that has had its turn ages like others.
        """
        return [line.head() for line in sorted(self._lines.values(), key=_Line.urgency)]

    def instead(self, head: Job, hot: Collection[bytes], now: float) -> Job:
        """Return the job of `head`'s line that should go where the references `hot` are hot: one of these, or `head`.

        Only jobs that never failed go instead of another, and none is passed over for more than PATIENCE_SECONDS. This is
        delay scheduling (Zaharia et al., 2010), but no lane waits with it.
        """
        return self._flows[head].line.instead(head, hot, now)

    def requirements(self) -> set[Requirement]:
        """Return what is waited for."""
        return {requirement for requirement, _ in self._lines}

    def waiting_for(self, requirement: Requirement) -> Iterator[Job]:
        """Yield those that wait for `requirement`. The line must not change meanwhile."""
        for priority in Priority:
            if (line := self._lines.get((requirement, priority))) is not None:
                yield from line.jobs()

    def waiting_of(self, share: str) -> int:
        """Return how many jobs of `share` wait."""
        return self._waiting[share]

    def shares(self) -> dict[str, int]:
        """Return how many jobs wait, by share; only of shares that have any."""
        return dict(self._waiting)

    def _take_out(self, job: Job, charge: float) -> None:
        flow = self._flows.pop(job)
        line = flow.line
        line.take_out(flow, job, charge)
        if not line.size:  # and with it every debt: nobody was kept waiting for it
            del self._lines[line.requirement, line.priority]
        self._waiting[flow.share] -= 1
        if not self._waiting[flow.share]:
            del self._waiting[flow.share]
        self.depth[line.priority] -= 1
        self.bytes -= len(job.spec.payload)


class _Flow:
    """The jobs of one share in one line."""

    __slots__ = ("fresh", "line", "retried", "share", "stamp", "start")

    def __init__(self, share: str, line: _Line, start: float) -> None:
        self.share = share
        self.line = line
        self.start = start
        """Virtual time of its next turn that costs something."""
        self.stamp = (-1.0, 0)
        """Its valid entry in the line's heap: virtual time of its next turn, and a number that settles ties."""
        self.retried: dict[Job, None] = {}
        """Paid for already; they go before `fresh`."""
        self.fresh: dict[Job, None] = {}


class _Line:
    """The flows of one requirement and priority. Heap entries that are no longer valid are dropped when they surface."""

    def __init__(self, requirement: Requirement, priority: Priority) -> None:
        self.requirement = requirement
        self.priority = priority
        self.size = 0
        self._now = 0.0  # virtual time: that of the last turn; no flow's stamp is earlier
        self._flows: dict[str, _Flow] = {}  # idle ones too, until virtual time has reached the end of their last turn
        self._turns: list[tuple[float, int, _Flow]] = []
        self._oldest: list[tuple[float, int, Job]] = []
        self._added: dict[Job, int] = {}
        self._by_reference: dict[bytes, dict[Job, _Flow]] = {}  # those that may go instead of others
        self._passed_over: dict[Job, float] = {}
        self._numbers = itertools.count()
        self._early_numbers = itertools.count(-(2**60))

    def urgency(self) -> float:
        """Return when its oldest job came, plus the head start of those of a higher priority."""
        while self._added.get(self._oldest[0][2]) != self._oldest[0][1]:
            heapq.heappop(self._oldest)
        return self._oldest[0][0] + self.priority.value

    def jobs(self) -> Iterator[Job]:
        """Yield all, the earliest added first."""
        return iter(self._added)

    def head(self) -> Job:
        """Return the job whose turn it is."""
        flow = self._next()
        return next(iter(flow.retried or flow.fresh))

    def instead(self, head: Job, hot: Collection[bytes], now: float) -> Job:
        """See WaitingLine."""
        if head.spec.reference in hot or now - self._passed_over.setdefault(head, now) >= PATIENCE_SECONDS:
            return head
        found = [
            next(iter(self._by_reference[reference].items())) for reference in hot if reference in self._by_reference
        ]
        return min(found, key=lambda item: (item[1].stamp, self._added[item[0]]), default=(head, None))[0]

    def add(self, job: Job, *, first: bool) -> _Flow:
        """Add a job to its flow and return that."""
        flow = self._flows.get(job.share)
        if flow is None:  # no credit for the time in which it wanted nothing
            flow = self._flows[job.share] = _Flow(job.share, self, self._now)
            self._stamp(flow)
        if first:
            flow.retried[job] = None
            if len(flow.retried) == 1:
                self._stamp(flow)
        else:
            flow.fresh[job] = None
            if not job.attempts:
                self._by_reference.setdefault(job.spec.reference, {})[job] = flow
        number = self._added[job] = next(self._numbers)
        heapq.heappush(self._oldest, (job.queued_at, number, job))
        self.size += 1
        return flow

    def take_out(self, flow: _Flow, job: Job, charge: float) -> None:
        """Take a job out of its flow; `charge` is what a turn costs."""
        if charge:
            self._now = max(self._now, self._next().stamp[0])
        del self._added[job]
        self.size -= 1
        self._passed_over.pop(job, None)
        if (alike := self._by_reference.get(job.spec.reference)) is not None:
            alike.pop(job, None)
            if not alike:
                del self._by_reference[job.spec.reference]
        if job in flow.retried:
            del flow.retried[job]
            self._stamp(flow)
        else:
            del flow.fresh[job]
            if charge:
                flow.start += charge
                self._stamp(flow)
        if not flow.retried and not flow.fresh and flow.start <= self._now:
            self._forget(flow)
        if len(self._oldest) > 2 * self.size + 64:
            self._oldest = [entry for entry in self._oldest if self._added.get(entry[2]) == entry[1]]
            heapq.heapify(self._oldest)

    def _next(self) -> _Flow:
        """Return the flow whose turn it is; forget idle ones before it, whose turn it would have been."""
        while True:
            time, number, flow = self._turns[0]
            if flow.stamp != (time, number):
                heapq.heappop(self._turns)
            elif not flow.retried and not flow.fresh:
                self._now = max(self._now, time)  # so that it cannot come back to an earlier turn
                self._forget(flow)
            else:
                return flow

    def _stamp(self, flow: _Flow) -> None:
        """Give `flow` its next turn; that of a retried job is now, before all others of the same time."""
        if flow.retried:
            flow.stamp = (self._now, next(self._early_numbers))
        else:
            flow.stamp = (flow.start, next(self._numbers))
        heapq.heappush(self._turns, (*flow.stamp, flow))
        if len(self._turns) > 2 * len(self._flows) + 64:
            self._turns = [(*flow.stamp, flow) for flow in self._flows.values()]
            heapq.heapify(self._turns)

    def _forget(self, flow: _Flow) -> None:
        """Drop an idle flow that is owed nothing and owes nothing; its heap entry is no longer valid."""
        del self._flows[flow.share]
        flow.stamp = (-1.0, 0)

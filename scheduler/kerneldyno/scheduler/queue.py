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
from collections.abc import Collection, Hashable, Iterator
from typing import TypeVar

from kerneldyno.scheduler.ages import Ages
from kerneldyno.scheduler.model import Job, Priority, Requirement

#: How long (seconds) a job lets others go before it to places where their reference is hot and its own is not. That is
#: about what it costs to have a reference made hot.
PATIENCE_SECONDS = 1.0

_K = TypeVar("_K", bound=Hashable)


class WaitingLine:
    """Jobs that wait for a place."""

    def __init__(self) -> None:
        self.ages = Ages()
        self.bytes = 0
        self._lines: dict[tuple[Requirement, Priority], _Line] = {}
        self._line_of: dict[Job, _Line] = {}
        self._waiting: Counter[str] = Counter()
        self._weights: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._line_of)

    def __contains__(self, job: Job) -> bool:
        return job in self._line_of

    def set_weight(self, share: str, weight: float) -> None:
        """Let `share` have `weight` turns for one of a share of weight 1, from now on. Raises ValueError."""
        if not 0 < weight < math.inf:
            raise ValueError(f"the weight of share {share!r} is {weight}; it must be greater than 0 and finite")
        self._weights[share] = weight

    def weight(self, share: str) -> float:
        """Return how many turns `share` has for one of a share of weight 1."""
        return self._weights.get(share, 1.0)

    def add(self, job: Job, *, first: bool = False) -> None:
        """Put `job` behind the others of its share; before all and free of charge when it was taken once already."""
        assert job not in self._line_of, "a job waits once"
        key = (job.spec.requirement, job.priority)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(*key)
        line.add(job, first=first)
        self._line_of[job] = line
        self._waiting[job.share] += 1
        self.ages.add(job)
        self.bytes += len(job.spec.payload)

    def remove(self, job: Job) -> None:
        """Take `job` out because nobody wants it any more: its share is not charged."""
        self._take_out(job, charge=0.0)

    def take(self, job: Job) -> None:
        """Take `job` out because it is being placed: a turn of its share is over."""
        self._take_out(job, charge=1.0 / self._weights.get(job.share, 1.0))

    def heads(self) -> list[Job]:
        """Return who is next in each line, the line that holds the most urgent job first.

        Of a line these are the job whose turn it is and, before it, the first that came back after no crash, one crash, and
        so on: those that may have to wait for a node of their own hold up nobody else. The urgency of a line is that of its
        oldest job, not of the next: a share that has had its turn ages like others.
        """
        return [job for line in sorted(self._lines.values(), key=_Line.urgency) for job in line.heads()]

    def instead(self, head: Job, hot: Collection[bytes], now: float) -> Job:
        """Return the job of `head`'s line that should go where the references `hot` are hot: one of these, or `head`.

        Only jobs that never failed go instead of another, and none is passed over for more than PATIENCE_SECONDS. This is
        delay scheduling (Zaharia et al., 2010), but no lane waits with it.
        """
        return self._line_of[head].instead(head, hot, now)

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
        line = self._line_of.pop(job)
        line.take_out(job, charge)
        if not line.size:  # and with it every debt: nobody was kept waiting for it
            del self._lines[line.requirement, line.priority]
        self._waiting[job.share] -= 1
        if not self._waiting[job.share]:
            del self._waiting[job.share]
        self.ages.remove(job)
        self.bytes -= len(job.spec.payload)


class _Flow:
    """The jobs of one share in one line that nothing was paid for yet."""

    __slots__ = ("jobs", "share", "stamp", "start")

    def __init__(self, share: str, start: float) -> None:
        self.share = share
        self.start = start
        """Virtual time of its next turn."""
        self.stamp = (start, 0)
        """Its valid entry in the line's heap: that time, and a number that settles ties."""
        self.jobs: dict[Job, None] = {}


class _Line:
    """The jobs of one requirement and priority. Heap entries that are no longer valid are dropped when they surface."""

    def __init__(self, requirement: Requirement, priority: Priority) -> None:
        self.requirement = requirement
        self.priority = priority
        self._now = 0.0  # virtual time: that of the last turn; no flow's next turn is earlier
        self._flows: dict[str, _Flow] = {}  # idle ones too, until virtual time has reached the end of their last turn
        self._turns: list[tuple[float, int, _Flow]] = []
        self._returned: dict[int, dict[Job, None]] = {}  # by number of crashes
        self._oldest: list[tuple[float, int, Job]] = []
        self._added: dict[Job, int] = {}
        self._by_reference: dict[bytes, dict[Job, None]] = {}  # those that may go instead of others
        self._passed_over: dict[Job, float] = {}
        self._numbers = itertools.count(1)

    @property
    def size(self) -> int:
        """How many jobs it holds."""
        return len(self._added)

    def urgency(self) -> float:
        """Return when its oldest job came, plus the head start of those of a higher priority."""
        while self._added.get(self._oldest[0][2]) != self._oldest[0][1]:
            heapq.heappop(self._oldest)
        return self._oldest[0][0] + self.priority.value

    def jobs(self) -> Iterator[Job]:
        """Yield all, the earliest added first."""
        return iter(self._added)

    def heads(self) -> list[Job]:
        """See WaitingLine."""
        heads = [next(iter(self._returned[crashes])) for crashes in sorted(self._returned)]
        if (flow := self._next()) is not None:
            heads.append(next(iter(flow.jobs)))
        return heads

    def instead(self, head: Job, hot: Collection[bytes], now: float) -> Job:
        """See WaitingLine."""
        if head.spec.reference in hot or now - self._passed_over.setdefault(head, now) >= PATIENCE_SECONDS:
            return head
        found = [next(iter(self._by_reference[reference])) for reference in hot if reference in self._by_reference]
        return min(found, key=lambda job: (self._flows[job.share].stamp, self._added[job]), default=head)

    def add(self, job: Job, *, first: bool) -> None:
        """Add a job: to those that came back, or to its flow."""
        if first or job.crashes:
            self._returned.setdefault(job.crashes, {})[job] = None
        else:
            flow = self._flows.get(job.share)
            if flow is None:  # no credit for the time in which it wanted nothing
                flow = self._flows[job.share] = _Flow(job.share, self._now)
                self._stamp(flow)
            flow.jobs[job] = None
            if not job.attempts:
                self._by_reference.setdefault(job.spec.reference, {})[job] = None
        number = self._added[job] = next(self._numbers)
        heapq.heappush(self._oldest, (job.queued_at, number, job))

    def take_out(self, job: Job, charge: float) -> None:
        """Take a job out; `charge` is what a turn costs, and one that came back has paid for it."""
        flow = self._flows.get(job.share)
        if flow is None or job not in flow.jobs:
            assert job in self._returned.get(job.crashes, ()), "what a job waits as does not change while it waits"
            _discard(self._returned, job.crashes, job)
        else:
            self._take_turn(flow, job, charge)
        del self._added[job]
        self._passed_over.pop(job, None)
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
        """Return the flow whose turn it is; forget idle ones before it, whose turn it would have been."""
        while self._turns:
            time, number, flow = self._turns[0]
            if self._flows.get(flow.share) is flow and flow.stamp == (time, number):
                if flow.jobs:
                    return flow
                self._now = max(self._now, time)  # so that it cannot come back to an earlier turn
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
    """Take `job` out of its group if it is there, and the group out when it is empty."""
    if (group := groups.get(key)) is not None:
        group.pop(job, None)
        if not group:
            del groups[key]

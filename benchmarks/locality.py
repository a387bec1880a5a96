"""Simulate, in virtual time, the gain of sending work to nodes that have its reference cached.

`python -m benchmarks.locality [--evaluations 4000] [--load 0.7]` has the scheduler's own queue and fleet place
evaluations on simulated nodes, and prints a Markdown table. Nothing is evaluated and nothing sleeps. The costs are
given, not measured: an evaluation takes `--cold` seconds if its node does not have its reference cached, and `--hot`
seconds otherwise.

Each node caches the references that it used last, and the scheduler knows how many. In rows with locality "off" the
scheduler does not know which reference a job has. A load of 1 is the capacity of the lanes if every node had every
reference cached.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from kerneldyno.scheduler.core import model
from kerneldyno.scheduler.core.fair_queue import FairQueue
from kerneldyno.scheduler.core.fleet import Fleet
from kerneldyno.scheduler.core.model import Attempt, Device, Job, Node, Priority, Report, Requirement, Spec

_NEED = Requirement("triton", "kernelbench")
_NODES, _LANES, _REFERENCES = 8, 8, 64


class Costs(NamedTuple):
    """Duration of an evaluation, in seconds."""

    cold: float
    hot: float


class Outcome(NamedTuple):
    """Result of a run."""

    hot_share: float
    seconds_each: float
    """Mean time from arrival to verdict."""
    makespan: float


@dataclass
class Machine:
    """A simulated node: its lanes and the references that it has cached."""

    node: Node
    room: int
    hot: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    busy: int = 0
    queue: list[Attempt] = field(default_factory=list)

    def warm(self, reference: bytes) -> bool:
        """Use `reference`; return True if it was cached."""
        was_hot = reference in self.hot
        self.hot[reference] = None
        self.hot.move_to_end(reference)
        if len(self.hot) > self.room:
            self.hot.popitem(last=False)
        return was_hot


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Simulate placement with and without locality, in virtual time.")
    parser.add_argument("--evaluations", type=int, default=4000)
    parser.add_argument(
        "--load", type=float, default=0.7, help="arrivals, relative to the capacity of all lanes with cached references"
    )
    parser.add_argument(
        "--cold", type=float, default=2.0, help="seconds of an evaluation whose reference is not cached"
    )
    parser.add_argument("--hot", type=float, default=0.2, help="seconds of an evaluation whose reference is cached")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    costs = Costs(options.cold, options.hot)
    print(
        f"Simulated, not measured: {_NODES} nodes of {_LANES} lanes, {_REFERENCES} references (Zipf), "
        f"{options.evaluations} evaluations, {costs.cold:g} s cold, {costs.hot:g} s hot.\n"
    )
    print("| arrivals | hot references per node | locality | found hot | mean time each | makespan |")
    print("| --- | ---: | --- | ---: | ---: | ---: |")
    for load in (options.load, None):
        for room in (64, 16):
            for locality in (False, True):
                work = arrivals(options.evaluations, load, costs, options.seed)
                seen = simulate(work, costs, room, locality=locality)
                print(
                    f"| {'all at once' if load is None else f'{load:.0%} load'} | {room} | {'on' if locality else 'off'} "
                    f"| {seen.hot_share:.1%} | {seen.seconds_each:.3f} s | {seen.makespan:.1f} s |"
                )


def arrivals(count: int, load: float | None, costs: Costs, seed: int) -> list[tuple[float, bytes]]:
    """Return arrival time and reference of each evaluation; with `load` None all arrive at once."""
    dice = random.Random(seed)
    weights = [1 / rank for rank in range(1, _REFERENCES + 1)]
    references = dice.choices([f"reference {i}".encode() for i in range(_REFERENCES)], weights, k=count)
    rate = (load or 0.0) * _NODES * _LANES / costs.hot
    gaps = (dice.expovariate(rate) if rate else 0.0 for _ in range(count))
    return list(zip(itertools.accumulate(gaps), references, strict=True))


def simulate(work: list[tuple[float, bytes]], costs: Costs, room: int, *, locality: bool) -> Outcome:
    """Let the scheduler place `work` on nodes that keep `room` references cached."""
    model.HOT_REFERENCES = room  # the number that the scheduler assumes
    fleet, waiting = Fleet(1e9, 1e9, lambda environment, _: environment), FairQueue()
    machines = {(machine := _machine(fleet, f"n{i}", room)).node: machine for i in range(_NODES)}
    references: dict[Job, bytes] = {}
    events: list[tuple[float, int, Job | Attempt]] = []
    for number, (time, reference) in enumerate(work):
        known = reference if locality else str(number).encode()
        job = Job(str(number).encode(), Spec(_NEED, known, b"", 1.0), "share", Priority.NORMAL, time)
        references[job] = reference
        events.append((time, number, job))
    numbers = itertools.count(len(events))
    hot = 0
    total = now = 0.0

    def start(machine: Machine) -> int:
        """Start waiting attempts on free lanes; return how many of them found their reference cached."""
        found = 0
        while machine.queue and machine.busy < _LANES:
            attempt = machine.queue.pop(0)
            was_hot = machine.warm(references[attempt.job])
            found += was_hot
            machine.busy += 1
            heapq.heappush(events, (now + (costs.hot if was_hot else costs.cold), next(numbers), attempt))
        return found

    while events:
        now, _, event = heapq.heappop(events)
        if isinstance(event, Job):
            waiting.add(event)
        else:
            total += now - event.job.queued_at
            fleet.detach(event)
            machines[event.node].busy -= 1
            hot += start(machines[event.node])
        while (heads := waiting.heads()) and (node := fleet.choose(heads[0], now, last_try=False)) is not None:
            job = heads[0]
            if fleet.hot_elsewhere(job, node, now):
                job = waiting.prefer_hot(job, node.hot, now)
            waiting.take(job)
            attempt = Attempt(job.id.decode(), job, node, now)
            fleet.attach(attempt)
            node.remember(job.spec.reference)
            machines[node].queue.append(attempt)
            hot += start(machines[node])
    return Outcome(hot / len(work), total / len(work), now)


def _machine(fleet: Fleet, name: str, room: int) -> Machine:
    device = Device("cuda:0", "cuda", "imagined", 1, _LANES, ready=True)
    report = Report(name, "1", devices=(device,), backends=frozenset({"triton"}), toolkits=frozenset({"kernelbench"}))
    node = fleet.update(report, 0.0, 0.0)
    fleet.connect(node)
    return Machine(node, room)


if __name__ == "__main__":
    main()

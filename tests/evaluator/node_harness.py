"""Helpers for the tests of node and server: a node with fake judges, and requests that are scripts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil
from prometheus_client import CollectorRegistry

from kerneldyno.evaluator.server.attempt import Attempt
from kerneldyno.evaluator.server.cell import CellSettings
from kerneldyno.evaluator.server.metrics import Metrics
from kerneldyno.evaluator.server.node import Node
from kerneldyno.rpc.validation import effective
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.family import children, started_since

FAKE = (sys.executable, str(Path(__file__).with_name("fake_judge.py")))

#: A script for a candidate that passes after two stages.
PASS = ("stage STAGE_LOADING", "stage STAGE_CHECKING", "result CORRECT")


def request(*steps: str, **fields: Any) -> pb.EvalRequest:
    """Return a request whose candidate is a script for the fake judge."""
    return pb.EvalRequest(id="request", reference_code="class Model: ...", kernel_code="\n".join(steps), **fields)


def cell_settings(device: str = "cpu:0", *, lanes: int = 2, judge: tuple[str, ...] = (), **more: Any) -> CellSettings:
    return CellSettings(device, "node", lanes, spares=1, zygote_command=FAKE, judge_command=(*FAKE, *judge), **more)


@dataclass
class Clock:
    """A monotonic clock that the test sets."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class RunningNode:
    """A node that runs, and its metrics."""

    node: Node
    prometheus: CollectorRegistry
    tokens: list[str] = field(default_factory=list)

    def start(self, *steps: str, token: str | None = None, scheduled: bool = False, **fields: Any) -> Attempt:
        """Start an attempt of a direct caller or, if `scheduled`, of the scheduler."""
        token = token or f"attempt-{len(self.tokens)}"
        self.tokens.append(token)
        follower = (lambda _: None) if scheduled else None
        return self.node.start(token, effective(request(*steps, **fields)), follower)

    def sample(self, name: str, **labels: str) -> float:
        """Return the sum of the series `name` whose labels include `labels`."""
        samples = [sample for family in self.prometheus.collect() for sample in family.samples if sample.name == name]
        found = [sample.value for sample in samples if labels.items() <= sample.labels.items()]
        assert found, f"there is no {name} with {labels}"
        return sum(found)


@asynccontextmanager
async def running_node(*cells: CellSettings, **options: Any) -> AsyncIterator[RunningNode]:
    """Run a node with fake judges, and yield it when it is ready. At the end, check that it has left no process."""
    prometheus = CollectorRegistry()
    cells = cells or (cell_settings(),)
    node = Node(cells, Metrics(prometheus, [cell.device for cell in cells]), **options)
    before = children()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(node.run())
        try:
            async with asyncio.timeout(20):
                await node.until_ready()
            yield RunningNode(node, prometheus)
        finally:
            running.cancel()
    left = started_since(before)
    assert not left, f"processes outlived the node: {left}"


async def result_of(attempt: Attempt, node: Node, seconds: float = 20.0) -> pb.EvalResult:
    """Watch `attempt` to its end and return its result."""
    async with asyncio.timeout(seconds), aclosing(node.watch(attempt)) as snapshots:
        *_, last = [snapshot async for snapshot in snapshots]
    assert last.result is not None
    return last.result


async def remaining(call: Any) -> list[pb.AttemptEvent]:
    """Read `call` to its end, and return its events. Uses `read`, because gRPC forbids mixing it with iteration."""
    events = []
    while (answer := await call.read()) is not grpc.aio.EOF:
        events.append(answer.event)
    return events


def processes(kind: str) -> list[psutil.Process]:
    """Return the fake judges ("--control-fd") or zygotes ("--fd") below this process."""
    found = []
    for child in psutil.Process().children(recursive=True):
        command = child.cmdline()
        # Services that tests share may run real judges at the same time.
        if any("fake_judge" in part for part in command) and any(part.startswith(f"{kind}=") for part in command):
            found.append(child)
    return found

"""Row 22: clients offer three times the capacity, for minutes."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import grpc
import grpc.aio
import psutil

from kerneldyno.rpc import errors
from kerneldyno.v1.scheduler_service_pb2 import EvaluateOnceRequest
from tests.chaos.clients import connected, request
from tests.chaos.cluster import Cluster
from tests.chaos.scenario import Figure, Plan, at_least, at_most, exactly, percentile

ROWS = (22,)
TITLE = "Overload: three times the capacity is offered"
NODES, LANES, SECONDS = 4, 4, 0.2
#: Evaluations that the nodes can do in a second.
CAPACITY = NODES * LANES / SECONDS


class _Load:
    """An open loop: it sends evaluations at a given rate and does not wait for the earlier ones."""

    def __init__(self, stubs: list[Any], draw: random.Random) -> None:
        self.done = 0
        self.rejections: list[float] = []
        self.lags: list[float] = []
        """Of this process: what it cannot blame on the scheduler."""
        self.without_advice = 0
        self.others: list[str] = []
        self._stubs = stubs
        self._draw = draw

    async def offer(self, name: str, rate: float, seconds: float) -> float:
        """Send evaluations at `rate` for `seconds`; return how many are done per second."""
        before, start, number = self.done, time.monotonic(), 0
        async with asyncio.TaskGroup() as group:
            while (now := time.monotonic()) < start + seconds:
                while number < rate * (now - start):
                    number += 1
                    group.create_task(self._one(f"{name}-{number}", start + seconds + 2))
                pause = self._draw.uniform(0, 0.01)
                await asyncio.sleep(pause)
                self.lags.append(time.monotonic() - now - pause)
            await asyncio.sleep(0)
            goodput = (self.done - before) / seconds
        return goodput

    async def _one(self, id: str, until: float) -> None:
        start = time.monotonic()
        message = EvaluateOnceRequest(client_id=f"c{hash(id) % 20}", request=request(id, id, seconds=SECONDS))
        try:
            await self._stubs[hash(id) % len(self._stubs)].EvaluateOnce(message, timeout=max(0.1, until - start))
            self.done += 1
        except grpc.aio.AioRpcError as error:
            meant = errors.from_rpc_error(error)
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                self.rejections.append(time.monotonic() - start)
                self.without_advice += meant is None or not meant.retry_seconds
            elif error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:  # of calls that wait at the end
                self.others.append(f"{error.code().name} {error.details()}")


async def run(plan: Plan) -> list[Figure]:
    """Measure the peak at 1.1 times the capacity, then the goodput at 3 times. The queue is short."""
    seconds = plan.seconds(300, 8)
    options = {"max-queued": 100}
    async with (
        Cluster(plan.directory, nodes=NODES, lanes=LANES, seed=plan.seed, options=options) as cluster,
        connected(cluster.address) as one,
        connected(cluster.address) as two,
    ):
        load = _Load([one, two], random.Random(plan.seed))
        await load.offer("warm", CAPACITY / 2, 3)
        peak = await load.offer("peak", CAPACITY * 1.1, min(30, seconds))
        memory = psutil.Process(cluster.scheduler.pid).memory_info
        before = memory().rss
        goodput = await load.offer("flood", CAPACITY * 3, seconds)
        grown = (memory().rss - before) / 2**20
    share = 100 * goodput / peak
    lag = 1000 * percentile(load.lags, 0.99)
    rejected = f"{len(load.rejections)} rejections in {seconds:g} s (the generator's own lag: p99 {lag:.1f} ms)"
    return [
        at_least(22, "7", f"goodput at {CAPACITY * 3:.0f}/s offered, of a peak of {peak:.0f}/s", share, 95, "%"),
        at_most(22, "7", f"{rejected}, answered, p99", 1000 * percentile(load.rejections, 0.99), 10, "ms"),
        at_most(22, "7", f"{rejected}, answered, p50", 1000 * percentile(load.rejections, 0.5), 10, "ms"),
        exactly(22, "7", "rejections that do not say when to try again", load.without_advice, 0),
        exactly(22, "7", f"other errors {sorted(set(load.others))[:3] or ''}", len(load.others), 0),
        at_most(22, "7", "the scheduler's memory grew by", max(0.0, grown), 50, "MiB"),
    ]

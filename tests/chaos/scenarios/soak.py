"""Row 27: an hour at 80 % of capacity, with a killed node every 10 s. It finds leaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import NamedTuple

import psutil

from kerneldyno.client import AsyncClient
from kerneldyno.v1.evaluation_pb2 import EvalRequest
from tests.chaos.clients import request
from tests.chaos.cluster import Cluster
from tests.chaos.scenario import Figure, Plan, at_most, audit_all, kept, percentile

ROWS = (27,)
TITLE = "Soak at 80 % of capacity, a node killed every 10 s"
NODES, LANES, SECONDS = 4, 4, 0.1
RATE = 0.8 * NODES * LANES / SECONDS / 2  # evaluations per second of each of the two clients


class Sample(NamedTuple):
    """A measurement of the scheduler at one moment."""

    at: float
    rss: float
    fds: int
    threads: int
    lag_ms: float


async def run(plan: Plan) -> list[Figure]:
    """Run for an hour. A run of less than ten minutes says that it is too short to show a slope of the memory."""
    seconds = plan.seconds(3600, 20)
    options = {"retain-results": 20_000, "lease": 5, "heartbeat": 1}
    async with Cluster(plan.directory, nodes=NODES, lanes=LANES, seed=plan.seed, options=options) as cluster:
        kills = asyncio.create_task(cluster.keep_killing_nodes(10))
        samples: list[Sample] = []
        sampling = asyncio.create_task(_sample(cluster, samples))
        await asyncio.gather(*(_client(cluster, f"c{i}", seconds) for i in range(2)))
        await cluster.calm(kills)
        sampling.cancel()
        # Results can be read again only while the scheduler keeps all of them.
        events = await audit_all(cluster) if seconds * RATE * 2 < 20_000 else cluster.events()
    warm = [sample for sample in samples if sample.at - samples[0].at >= min(300, seconds / 4)]
    slope = _slope(warm)
    long_enough = seconds >= 600
    memory = f"memory slope per 10 min over {seconds / 60:.3g} min{'' if long_enough else ' (too short to tell)'}"
    return [
        at_most(27, "7", memory, slope if long_enough else 0.0, 1, "%"),
        at_most(27, "7", "memory at the end", warm[-1].rss, 400, "MiB"),
        at_most(27, "7", "open files, growth after warm-up", warm[-1].fds - warm[0].fds, 20),
        at_most(27, "7", "threads, growth after warm-up", warm[-1].threads - warm[0].threads, 2),
        at_most(27, "7", "lag of its event loop, p99", percentile([sample.lag_ms for sample in warm], 0.99), 50, "ms"),
        *kept(27, "1 3", events),
    ]


async def _client(cluster: Cluster, name: str, seconds: float) -> None:
    start = time.monotonic()

    async def paced() -> Iterator[EvalRequest]:  # type: ignore[misc]
        number = 0
        while (now := time.monotonic() - start) < seconds:
            if number < RATE * now:
                number += 1
                yield request(f"{name}-{number}", f"{name}-{number}", seconds=SECONDS)
            else:
                await asyncio.sleep(0.01)

    async with AsyncClient(cluster.address, client_id=name, window=500) as library:
        async for _ in library.evaluate(paced()):
            pass


async def _sample(cluster: Cluster, samples: list[Sample]) -> None:
    process = psutil.Process(cluster.scheduler.pid)
    while True:
        lag = 1000 * await asyncio.to_thread(cluster.metric, "kerneldyno_event_loop_lag_seconds")
        rss = process.memory_info().rss / 2**20
        samples.append(Sample(time.monotonic(), rss, process.num_fds(), process.num_threads(), lag))
        await asyncio.sleep(0.5)


def _slope(samples: list[Sample]) -> float:
    """Return the growth of the memory per ten minutes, in percent of its mean, by least squares."""
    times, values = [s.at for s in samples], [s.rss for s in samples]
    middle, mean = sum(times) / len(times), sum(values) / len(values)
    spread = sum((at - middle) ** 2 for at in times)
    gain = sum((at - middle) * (value - mean) for at, value in zip(times, values, strict=True)) / spread
    return 100 * gain * 600 / mean

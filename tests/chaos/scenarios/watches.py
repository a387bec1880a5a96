"""Row 26: a thousand open streams, and one whose client does not read."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psutil

from kerneldyno.v1.scheduler_service_pb2 import EvaluateRequest
from tests.chaos.clients import connected, note_response, note_submit, request
from tests.chaos.cluster import Cluster
from tests.chaos.scenario import Figure, Plan, at_least, at_most, audit_all, kept, of_kind, percentile

ROWS = (26,)
TITLE = "1,000 open streams, one of them with a reader that has stopped"
CONNECTIONS = 10


async def run(plan: Plan) -> list[Figure]:
    """Submit two evaluations on each stream, one at once and one later. Another client never reads its results."""
    count = plan.count(1_000, 100) // CONNECTIONS * CONNECTIONS
    spread = plan.seconds(20, 3)
    async with Cluster(plan.directory, nodes=4, lanes=8, seed=plan.seed) as cluster:
        memory = psutil.Process(cluster.scheduler.pid).memory_info
        all_open, go_on = asyncio.Semaphore(0), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            streams = [
                group.create_task(_streams(cluster, number, count // CONNECTIONS, (all_open, go_on), spread))
                for number in range(CONNECTIONS)
            ]
            for _ in range(count):
                await asyncio.wait_for(all_open.acquire(), 120)
            before = memory().rss
            stalled = group.create_task(_stall(cluster, plan.count(2_000, 200)))
            go_on.set()
            await asyncio.wait(streams)
            grown = (memory().rss - before) / 2**20
            stalled.cancel()
        events = [e for e in await audit_all(cluster) if e.get("client") != "stalled"]
    finished = {e["work"]: e.at for e in of_kind(events, "attempt", "ok")}
    later = [e for e in of_kind(events, "result", "ok", reader="stream") if e["id"].endswith("-1")]
    waits = [1000 * (e.at - finished[e["id"]]) for e in later]
    what = f"from the end of an attempt to its result at the client, p99 of {len(waits)}"
    return [
        at_least(26, "1", "streams open at once, beside the stalled one", count, count),
        at_most(26, "1", what, percentile(waits, 0.99), 100, "ms"),
        at_most(26, "7", "the scheduler's memory grew by", max(0.0, grown), 50, "MiB"),
        *kept(26, "1", events),
    ]


Gates = tuple[asyncio.Semaphore, asyncio.Event]


async def _streams(cluster: Cluster, number: int, count: int, gates: Gates, spread: float) -> None:
    """Run `count` streams on one connection."""
    async with connected(cluster.address) as stub, asyncio.TaskGroup() as group:
        for index in range(count):
            group.create_task(_one_stream(cluster, stub, number * count + index, gates, spread))


async def _one_stream(cluster: Cluster, stub: Any, number: int, gates: Gates, spread: float) -> None:
    """Submit, tell that the stream is open, wait until all are, and submit again at a random time."""
    all_open, go_on = gates
    client = f"w{number}"
    call = stub.Evaluate()
    since = time.monotonic()
    for turn in range(2):
        one = request(f"{client}-{turn}", f"{client}-{turn}", seconds=0.02)
        note_submit(cluster.history, client, one)
        await call.write(EvaluateRequest(client_id=client, requests=[one]))
        while True:
            response = await asyncio.wait_for(call.read(), 120)
            note_response(cluster.history, client, response, reader="stream", stream=number, since=since)
            if response.HasField("result"):
                break
        if not turn:
            all_open.release()
            await go_on.wait()
            await asyncio.sleep(cluster.random.uniform(0, spread))
    await call.done_writing()
    await call.read()


async def _stall(cluster: Cluster, count: int) -> None:
    """Submit work with 20 kB results and read nothing. About 100 results come in a second."""
    async with connected(cluster.address) as stub:
        call = stub.Evaluate()
        for number in range(0, count, 100):
            batch = [request(f"s{i}", f"s{i}", seconds=0.3, more="size=20000") for i in range(number, number + 100)]
            await call.write(EvaluateRequest(client_id="stalled", requests=batch))
        await asyncio.sleep(3600)

"""Row 26: a thousand open streams, and one whose reader has stopped."""

from __future__ import annotations

import asyncio
import time

import psutil
from kerneldyno.v1.scheduler_service_pb2 import EvaluateRequest

from chaos.clients import connected, note_response, note_submit, request
from chaos.cluster import Cluster, eventually
from chaos.scenario import Figure, Plan, at_least, at_most, audit_all, kept, of_kind, percentile

ROWS = (26,)
TITLE = "1,000 open streams, one of them with a reader that has stopped"
CONNECTIONS = 10


async def run(plan: Plan) -> list[Figure]:
    """Streams submit a few evaluations each, with large results; the stalled one a great many and reads none."""
    count = plan.count(1_000, 100)
    async with Cluster(plan.directory, nodes=4, lanes=8, seed=plan.seed) as cluster:
        memory = psutil.Process(cluster.scheduler.pid).memory_info
        async with asyncio.TaskGroup() as group:
            ready, ended = asyncio.Semaphore(0), asyncio.Event()
            for number in range(CONNECTIONS):
                group.create_task(_streams(cluster, number, count // CONNECTIONS, ready, ended))
            for _ in range(count // CONNECTIONS * CONNECTIONS):
                await asyncio.wait_for(ready.acquire(), 60)
            before = memory().rss
            stalled = group.create_task(_stall(cluster, plan.count(2_000, 200)))
            await asyncio.sleep(plan.seconds(20, 3))
            ended.set()
            await eventually(lambda: len(_heard(cluster)) >= 2 * count // CONNECTIONS * CONNECTIONS, 120, "all results")
            grown = (memory().rss - before) / 2**20
            stalled.cancel()
        events = [e for e in await audit_all(cluster) if e.get("client") != "stalled"]
    finished = {e["work"]: e.at for e in of_kind(events, "attempt", "ok")}
    waits = [1000 * (e.at - finished[e["id"]]) for e in of_kind(events, "result", "ok", reader="stream")]
    what = f"from the end of an attempt to its result at the client, p99 of {len(waits)}"
    return [
        at_least(26, "1", "streams open at once", count, count),
        at_most(
            26,
            "1",
            what,
            percentile(waits, 0.99),
            100,
            "ms",
        ),
        at_most(26, "7", "the scheduler's memory grew by", max(0.0, grown), 50, "MiB"),
        *kept(26, "1", events),
    ]


async def _streams(cluster: Cluster, number: int, count: int, ready: asyncio.Semaphore, ended: asyncio.Event) -> None:
    """Streams on one connection: each is silent, submits one evaluation, is silent again, and submits another."""
    async with connected(cluster.address) as stub, asyncio.TaskGroup() as group:
        for index in range(count):
            group.create_task(_one_stream(cluster, stub, number * count + index, ready, ended))


async def _one_stream(
    cluster: Cluster, stub: object, number: int, ready: asyncio.Semaphore, ended: asyncio.Event
) -> None:
    client = f"w{number}"
    call = stub.Evaluate()  # type: ignore[attr-defined]
    since = time.monotonic()
    for turn in range(2):
        if turn:
            await asyncio.sleep(cluster.random.uniform(0, 3))
        one = request(f"{client}-{turn}", f"{client}-{turn}", seconds=0.02)
        note_submit(cluster.history, client, one)
        await call.write(EvaluateRequest(client_id=client, requests=[one]))
        while True:
            response = await asyncio.wait_for(call.read(), 120)
            note_response(cluster.history, client, response, reader="stream", stream=number, since=since)
            if response.HasField("result"):
                break
        if not turn:
            ready.release()
            await ended.wait() if number % 2 else None
    await call.done_writing()
    await call.read()


async def _stall(cluster: Cluster, count: int) -> None:
    """Submit work with 20 kB results, about 100 a second, and read nothing."""
    async with connected(cluster.address) as stub:
        call = stub.Evaluate()
        for number in range(0, count, 100):
            batch = [request(f"s{i}", f"s{i}", seconds=0.3, more="size=20000") for i in range(number, number + 100)]
            await call.write(EvaluateRequest(client_id="stalled", requests=batch))
        await asyncio.sleep(3600)


def _heard(cluster: Cluster) -> list[object]:
    return [e for e in of_kind(cluster.events(), "result", "ok", reader="stream") if e["client"].startswith("w")]

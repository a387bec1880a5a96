"""Rows 12 and 13: many parallel submits of the same id, and of the same work under many ids."""

from __future__ import annotations

import asyncio
import time

from kerneldyno.v1.scheduler_service_pb2 import EvaluateOnceRequest, ListEvaluationsRequest
from tests.chaos.clients import audit, connected, note_result, note_submit, request
from tests.chaos.cluster import Cluster
from tests.chaos.history import Event
from tests.chaos.scenario import Figure, Plan, exactly, kept, of_kind, run_clients

ROWS = (12, 13)
TITLE = "Duplicates: one id 100 times in parallel, one digest from 1,000"
CLIENTS = 10


async def run(plan: Plan) -> list[Figure]:
    """Submit one id by EvaluateOnce over many connections, and the same work by several clients of the library."""
    same_id, same_work = plan.count(100, 100), plan.count(1_000, 200)
    async with Cluster(plan.directory, nodes=4, seed=plan.seed) as cluster:
        answers = await _one_id(cluster, same_id)
        shared = {
            f"d{i}": [request(f"s{n}", "shared", seconds=0.5) for n in range(same_work // CLIENTS)]
            for i in range(CLIENTS)
        }
        await run_clients(cluster, shared, limit_seconds=120, window=1000)
        for client, requests in shared.items():
            await audit(cluster.address, client, [one.id for one in requests], cluster.history)
        await audit(cluster.address, "c", ["same"], cluster.history)
        async with connected(cluster.address) as stub:
            listed = len((await stub.ListEvaluations(ListEvaluationsRequest(client_id="c"))).evaluations)
        events = cluster.events()
    runs = [e["work"] for e in of_kind(events, "attempt", "invoke")]
    results = [e for e in of_kind(events, "result", "ok", reader="stream") if e["client"].startswith("d")]
    return [
        exactly(12, "2", f"evaluations made by {same_id} parallel submits of one id", listed, 1),
        exactly(12, "2", "attempts that ran for them", runs.count("same"), 1),
        exactly(12, "2", "different answers that they got", len(answers), 1),
        exactly(
            13, "2", f"attempts that ran for {len(results)} parallel submits of the same work", runs.count("shared"), 1
        ),
        exactly(13, "2", "deciding attempts in their answers", len({(e["token"], e["outcome"]) for e in results}), 1),
        exactly(13, "2", "answers neither the run's own nor marked merged or cached", _unmarked(results), 0),
        *kept(13, "1 2 3", events),
    ]


async def _one_id(cluster: Cluster, count: int) -> set[bytes]:
    one = request("same", "same", seconds=0.5)
    note_submit(cluster.history, "c", one)

    async def ask() -> bytes:
        since = time.monotonic()
        async with connected(cluster.address) as stub:
            message = EvaluateOnceRequest(client_id="c", request=one)
            result = (await stub.EvaluateOnce(message, timeout=60)).result
        note_result(cluster.history, "c", result, reader="once", since=since)
        return bytes(result.SerializeToString(deterministic=True))

    return set(await asyncio.gather(*(ask() for _ in range(count))))


def _unmarked(results: list[Event]) -> int:
    return max(0, sum(not (e["cached"] or e["merged"]) for e in results) - 1)

"""Row 23: one client sends very many requests at once, another sends one at a time."""

from __future__ import annotations

import asyncio

from kerneldyno.v1.evaluation_pb2 import EvalRequest
from tests.chaos.clients import drive, request
from tests.chaos.cluster import Cluster
from tests.chaos.history import Event
from tests.chaos.scenario import Figure, Plan, at_most, audit_all, kept, of_kind, percentile, run_clients
from tests.waiting import eventually

ROWS = (23,)
TITLE = "One client floods, one trickles"
SECONDS = 0.2


async def run(plan: Plan) -> list[Figure]:
    """Measure how long the second client waits, alone and beside 3,000 evaluations of the first."""
    flood = plan.count(3_000, 600)
    trickle = plan.count(100, 15)
    async with Cluster(plan.directory, nodes=4, lanes=4, seed=plan.seed) as cluster:
        await run_clients(cluster, {"warm": _load("w", 50)}, limit_seconds=60)
        await _trickle(cluster, "alone", trickle)
        load = {"flood": _load("f", flood)}
        flooding = asyncio.create_task(run_clients(cluster, load, limit_seconds=60 + flood * SECONDS, window=flood))
        await eventually(
            lambda: len(of_kind(cluster.events(), "submit", "ok", client="flood")) > flood / 2, 30, "a flood"
        )
        await _trickle(cluster, "beside", trickle)
        still = not flooding.done()
        await flooding
        events = await audit_all(cluster)
    alone, beside = (_waits(events, name) for name in ("alone", "beside"))
    what = f"wait of the trickler from submit to result, p99 (alone: {1000 * percentile(alone, 0.99):.0f} ms"
    return [
        at_most(
            23,
            "7",
            f"{what}; the flood lasted: {still})",
            percentile(beside, 0.99) / percentile(alone, 0.99),
            2,
            "times",
        ),
        at_most(23, "7", "the same, p50", percentile(beside, 0.5) / percentile(alone, 0.5), 2, "times"),
        *kept(23, "1", events),
    ]


async def _trickle(cluster: Cluster, name: str, count: int) -> None:
    for number in range(count):
        one = request(f"{name}{number}", f"{name}{number}", seconds=SECONDS)
        await drive(cluster.address, name, [one], cluster.history)


def _load(prefix: str, count: int) -> list[EvalRequest]:
    return [request(f"{prefix}{i}", f"{prefix}{i}", seconds=SECONDS) for i in range(count)]


def _waits(events: list[Event], client: str) -> list[float]:
    submitted = {e["id"]: e.at for e in of_kind(events, "submit", "invoke", client=client)}
    return [e.at - submitted[e["id"]] for e in of_kind(events, "result", "ok", client=client, reader="stream")]

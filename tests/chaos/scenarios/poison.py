"""Rows 14 and 15: candidates that crash, and one that kills its node every time."""

from __future__ import annotations

import asyncio
import itertools

import grpc.aio

from kerneldyno.rpc import channel
from kerneldyno.v1.evaluation_pb2 import EvalRequest
from kerneldyno.v1.fleet_service_pb2 import ListQuarantinesRequest, ReleaseQuarantineRequest
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from tests.chaos.clients import request, workload
from tests.chaos.cluster import Cluster
from tests.chaos.history import Event
from tests.chaos.scenario import Figure, Plan, at_least, at_most, audit_all, exactly, kept, of_kind, run_clients

ROWS = (14, 15)
TITLE = "Candidates that crash, and one that kills every node it runs on"

#: The cluster may notice the end of a process this much later than the scheduler, which loses a connection.
_NOTICED_SECONDS = 2.0


async def run(plan: Plan) -> list[Figure]:
    """Restart nodes when they die, while other work goes on."""
    count = plan.count(2_000, 100)
    options = {"lease": 5, "heartbeat": 1}
    async with Cluster(plan.directory, nodes=5, seed=plan.seed, options=options) as cluster:
        alive = asyncio.create_task(cluster.keep_alive())
        crashing = [request(f"x{i}", f"x{i}", outcome="RUNTIME_ERROR", seconds=0.05) for i in range(50)]
        deadly = _deadly("first")
        others = workload("o", count, cluster.random, seconds=(0.01, 0.1))
        load = {"crashing": crashing, "deadly": [deadly], "others": others}
        await run_clients(cluster, load, limit_seconds=120 + count * 0.2, window=8)
        runs = of_kind(cluster.events(), "attempt", "invoke", work="deadly")
        await run_clients(cluster, {"deadly": [_deadly("second")]}, limit_seconds=60)
        runs_after = of_kind(cluster.events(), "attempt", "invoke", work="deadly")
        listed = await _release(cluster)
        await run_clients(cluster, {"deadly": [_deadly("third")]}, limit_seconds=120)
        runs_released = of_kind(cluster.events(), "attempt", "invoke", work="deadly")
        await cluster.calm(alive)
        events = await audit_all(cluster)
    first = {e["id"]: e for e in reversed(events) if e.op == "result"}
    crashes = [e for e in events if e.op == "attempt" and e.kind == "invoke" and e["work"].startswith("x")]
    innocent = [e for e in first.values() if e["client"] == "others"]
    # Neighbours of the deadly candidate die with it. After three such deaths no scheduler can tell bad luck from guilt.
    judged = [e for e in innocent if e["outcome"] != "INFRASTRUCTURE_ERROR"]
    blamed = sum(first[one.id]["outcome"] != "RUNTIME_ERROR" for one in crashing)
    bound = _bound(events, crashing)
    return [
        at_most(
            14,
            "5",
            f"attempts of {len(crashing)} candidates that crash by themselves",
            len(crashes),
            bound,
        ),
        exactly(
            14,
            "8",
            "of these, called a failure of infrastructure",
            blamed,
            0,
        ),
        at_most(15, "5", "attempts of a candidate that kills its node", len(runs), 3),
        at_least(15, "5", "different nodes that they took", len({e["node"] for e in runs}), 2),
        exactly(15, "5", "cause of its result", first["first"]["cause"], "POISON"),
        exactly(15, "5", "attempts when it was sent again", len(runs_after) - len(runs), 0),
        exactly(15, "5", "cause of the result when it was sent again", first["second"]["cause"], "QUARANTINED"),
        exactly(15, "5", "digests in quarantine", listed, 1),
        at_least(15, "5", "attempts once an operator had released it", len(runs_released) - len(runs_after), 1),
        at_least(
            15,
            "5 8",
            f"other candidates that were judged, of {len(innocent)}",
            100 * len(judged) / len(innocent),
            100,
            "%",
        ),
        *kept(15, "1 3 5 8", events),
    ]


def _deadly(id: str) -> EvalRequest:
    return request(id, "deadly", seconds=0.1, more="die=1 expect=INFRASTRUCTURE_ERROR")


def _bound(events: list[Event], crashing: list[EvalRequest]) -> int:
    """Return the limit: one attempt for each candidate, and one more for each result that a node may have lost."""
    deaths = [(e["target"], e.at) for e in of_kind(events, "fault", "info", what="died")]
    attempts = of_kind(events, "attempt", "invoke")
    lost = 0
    for one in crashing:
        tries = [e for e in attempts if e["work"] == one.id]
        for this, following in itertools.pairwise(tries):
            lost += any(node == this["node"] and this.at < at < following.at + _NOTICED_SECONDS for node, at in deaths)
    return len(crashing) + lost


async def _release(cluster: Cluster) -> int:
    async with grpc.aio.insecure_channel(
        channel.target(cluster.address), options=channel.client_options()
    ) as connection:
        stub = FleetServiceStub(connection)
        found = [q for q in (await stub.ListQuarantines(ListQuarantinesRequest())).quarantines if q.digest]
        for quarantine in found:
            await stub.ReleaseQuarantine(ReleaseQuarantineRequest(digest=quarantine.digest))
    return len(found)

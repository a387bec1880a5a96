"""Rows 8, 9 and 10: the network between scheduler and node stalls, or its connections die without a sign."""

from __future__ import annotations

import asyncio
import time

from tests.chaos.clients import request
from tests.chaos.cluster import Cluster
from tests.chaos.scenario import Figure, Plan, at_least, at_most, audit_all, exactly, kept, of_kind, run_clients
from tests.waiting import eventually

ROWS = (8, 9, 10)
TITLE = "Partitions between scheduler and nodes"


async def run(plan: Plan) -> list[Figure]:
    """Run each partition in its own cluster, whose nodes are behind proxies."""
    figures = []
    for name, row in (("short", _short), ("long", _long), ("half_open", _half_open)):
        directory = plan.directory / name
        directory.mkdir()
        lease = plan.seconds(10.0, 4.0)
        options = {"lease": lease, "heartbeat": lease / 5}
        async with Cluster(directory, nodes=3, lanes=4, seed=plan.seed, proxied=True, options=options) as cluster:
            figures += await row(plan, cluster, lease)
    return figures


async def _short(plan: Plan, cluster: Cluster, lease: float) -> list[Figure]:
    """Stall for half a lease. Attempts go on; their results come over the stalled connection or a new one."""
    load = [request(f"e{i}", f"e{i}", seconds=lease / 3) for i in range(36)]
    clients = asyncio.create_task(run_clients(cluster, {"c1": load}, limit_seconds=lease * 10 + 60))
    await eventually(lambda: len(of_kind(cluster.events(), "attempt", "invoke")) >= 12, 30, "a start of some")
    for proxy in cluster.proxies.values():
        proxy.stall()
    await asyncio.sleep(lease / 2)
    for proxy in cluster.proxies.values():
        await proxy.heal()
    await asyncio.sleep(lease / 10)
    for proxy in cluster.proxies.values():
        await proxy.reset()  # break the connections, too
    await clients
    events = await audit_all(cluster)
    works = [e["work"] for e in of_kind(events, "attempt", "invoke")]
    lost = len(cluster.logged("node_lost"))
    return [
        exactly(
            8,
            "3 4",
            f"attempts that ran again after {lease / 2:g} s of silence and a reset, of {len(works)}",
            len(works) - len(set(works)),
            0,
        ),
        exactly(8, "4", "nodes lost because of it", lost, 0),
        *kept(8, "1 3", events),
    ]


async def _long(plan: Plan, cluster: Cluster, lease: float) -> list[Figure]:
    """Stall one node for six leases. Other nodes do its work, and the scheduler refuses its late results."""
    load = [request(f"e{i}", f"e{i}", seconds=lease / 2) for i in range(24)]
    clients = asyncio.create_task(run_clients(cluster, {"c1": load}, limit_seconds=lease * 12 + 60))
    await eventually(lambda: len(of_kind(cluster.events(), "attempt", "invoke")) >= 12, 30, "a start of some")
    cluster.proxies["n1"].stall()
    held = {e["token"] for e in of_kind(cluster.events(), "attempt", "invoke", node="n1")}
    held -= {e["token"] for e in of_kind(cluster.events(), "acknowledged", "ok", node="n1")}
    await asyncio.sleep(plan.seconds(60.0, 2.5 * lease))
    await clients
    healed = cluster.history.note("fault", "info", what="heal", target="n1")
    wall = time.time()
    await cluster.proxies["n1"].heal()

    def joined() -> list[float]:
        return [when for when, fields in cluster.logged("node_joined") if fields["node"] == "n1" and when > wall]

    await eventually(lambda: bool(joined()), 60, "the node's return")
    back = joined()[0] - wall
    await asyncio.sleep(lease / 5 + 1)
    events = await audit_all(cluster)
    decided = {e["token"] for e in events if e.op == "result"}
    late = {e["token"] for e in of_kind(events, "attempt", "ok", node="n1") if e["token"] in held}
    await run_clients(cluster, {"c2": [request(f"f{i}", f"f{i}") for i in range(30)]}, limit_seconds=60)
    used = [e for e in of_kind(cluster.events(), "attempt", "invoke", node="n1") if e.at > healed]
    return [
        at_most(9, "4", "the node is back after the partition ends", back, 3, "s"),
        exactly(
            9,
            "3",
            f"outcomes decided by tokens of the partitioned node, of {len(held)} ({len(late)} came to a result)",
            len(held & decided),
            0,
        ),
        at_least(9, "4", "attempts that the node got afterwards", len(used), 1),
        *kept(9, "1 3", events),
    ]


async def _half_open(plan: Plan, cluster: Cluster, lease: float) -> list[Figure]:
    """Drop what both ends send. The lease moves the work; keepalive or an unanswered call finds the dead connection."""
    load = [request(f"e{i}", f"e{i}", seconds=lease / 2) for i in range(24)]
    clients = asyncio.create_task(run_clients(cluster, {"c1": load}, limit_seconds=lease * 12 + 120))
    await eventually(lambda: len(of_kind(cluster.events(), "attempt", "invoke")) >= 12, 30, "a start of some")
    wall = time.time()
    cluster.proxies["n1"].half_open()
    before = cluster.proxies["n1"].connections
    await eventually(lambda: cluster.proxies["n1"].connections > before, 60, "a new connection of the node")
    redialled = time.time() - wall
    await clients
    await asyncio.sleep(2)
    events = await audit_all(cluster)
    await run_clients(cluster, {"c2": [request(f"f{i}", f"f{i}") for i in range(30)]}, limit_seconds=60)
    used = [e for e in of_kind(cluster.events(), "attempt", "invoke", node="n1") if e["work"].startswith("f")]
    return [
        at_most(10, "4", "the node reconnects after its connection died silently", redialled, 40, "s"),
        at_least(10, "4", "attempts that the node got afterwards", len(used), 1),
        *kept(10, "1 3", events),
    ]

"""Rows 4 and 5: how soon a dead node is noticed, and how soon its work runs elsewhere."""

from __future__ import annotations

import asyncio
import signal

from tests.chaos.clients import request
from tests.chaos.cluster import Cluster
from tests.chaos.history import Event
from tests.chaos.scenario import Figure, Plan, at_most, audit_all, exactly, kept, of_kind, percentile, run_clients
from tests.waiting import eventually

ROWS = (4, 5)
TITLE = "Nodes die, with and without closing their connections"
NODES = 8


async def run(plan: Plan) -> list[Figure]:
    """Run long attempts on 8 nodes. Kill some nodes in turn, then stop others, whose loss only the lease shows."""
    lease = plan.seconds(10.0, 3.0)
    options = {"lease": lease, "heartbeat": lease / 5}
    victims = plan.count(3, 2)  # number of killed nodes, and of stopped nodes; two nodes stay
    names = [f"n{number}" for number in range(1, NODES + 1)]
    async with Cluster(plan.directory, nodes=NODES, lanes=4, seed=plan.seed, options=options) as cluster:
        load = [request(f"e{i}", f"e{i}", seconds=lease * 3 + 12) for i in range(NODES)]
        clients = asyncio.create_task(run_clients(cluster, {"c1": load}, limit_seconds=lease * 12 + 90))
        await eventually(lambda: len(of_kind(cluster.events(), "attempt", "invoke")) >= NODES, 30, "a start of all")
        wall: dict[str, float] = {}
        for name in names[:victims]:
            await cluster.kill_node(name)
            await asyncio.sleep(0.5)
        for name in names[NODES // 2 : NODES // 2 + victims]:
            cluster.signal_node(name, signal.SIGSTOP)
            await asyncio.sleep(cluster.random.uniform(0, lease / 5))
        await eventually(lambda: len(cluster.logged("node_lost")) >= 2 * victims, lease + 30, "the loss of all victims")
        await clients
        for name in names:
            cluster.nodes[name].signal(signal.SIGCONT)
        events = await audit_all(cluster)
        lost = {fields["node"]: (when, fields["why"]) for when, fields in cluster.logged("node_lost")}
    for fault in (*of_kind(events, "fault", "info", what="kill"), *of_kind(events, "fault", "info", what="SIGSTOP")):
        wall[fault["target"]] = fault["wall"]
    by_socket = [lost[name][0] - at for name, at in wall.items() if name in lost and lost[name][1] == "found_dead"]
    by_lease = [lost[name][0] - at for name, at in wall.items() if name in lost and lost[name][1] == "lease_expired"]
    again = _restarts(events, {name: when for name, (when, _) in lost.items()}, wall)
    return [
        at_most(4, "4", f"{len(by_socket)} killed nodes found dead, slowest", percentile(by_socket, 1), 1, "s"),
        at_most(
            4,
            "4",
            f"{len(by_lease)} silent nodes lost by a lease of {lease:g} s, slowest",
            percentile(by_lease, 1),
            lease + 1,
            "s",
        ),
        exactly(4, "4", "dead or silent nodes that were noticed", len(lost.keys() & wall.keys()), 2 * victims),
        at_most(
            5, "4", f"{len(again)} attempts of lost nodes started elsewhere, slowest", percentile(again, 1), 2, "s"
        ),
        *kept(4, "1 3 5", events),
    ]


def _restarts(events: list[Event], lost: dict[str, float], faults: dict[str, float]) -> list[float]:
    """Return the seconds from the loss of each node to the next start of each piece of work that it had."""
    starts = of_kind(events, "attempt", "invoke")
    some_fault = next(e for e in events if e.op == "fault" and e.get("wall"))
    offset = some_fault["wall"] - some_fault.at
    found = []
    for first in starts:
        later = [e for e in starts if e["work"] == first["work"] and e.at > first.at]
        if first["node"] in lost and later:
            found.append(later[0].at + offset - lost[first["node"]])
    return found

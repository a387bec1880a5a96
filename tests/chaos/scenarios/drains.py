"""Rows 20 and 21: SIGTERM stops nodes and the scheduler under load."""

from __future__ import annotations

import asyncio
import random
import signal
import time

from tests.chaos.clients import request, workload
from tests.chaos.cluster import Cluster
from tests.chaos.history import Event
from tests.chaos.scenario import Figure, Plan, at_least, at_most, audit_all, exactly, kept, of_kind, run_clients
from tests.waiting import eventually

ROWS = (20, 21)
TITLE = "SIGTERM to a node, to the scheduler, and to every node in turn"
NODES = 6


async def run(plan: Plan) -> list[Figure]:
    """Stop a node and the scheduler, then restart every node in turn. Clients send work all the time."""
    stopping, rolling = plan.directory / "stop", plan.directory / "roll"
    stopping.mkdir()
    rolling.mkdir()
    figures = []
    options = {"drain-timeout": 10}
    async with Cluster(stopping, nodes=3, lanes=4, seed=plan.seed, options=options) as cluster:
        figures += await _stop(plan, cluster)
    async with Cluster(rolling, nodes=NODES, lanes=4, seed=plan.seed) as cluster:
        figures += await _roll(plan, cluster)
    return figures


async def _stop(plan: Plan, cluster: Cluster) -> list[Figure]:
    load = [request(f"e{i}", f"e{i}", seconds=1.0) for i in range(60)]
    clients = asyncio.create_task(run_clients(cluster, {"c1": load}, limit_seconds=120))
    await eventually(lambda: len(of_kind(cluster.events(), "attempt", "invoke")) >= 12, 30, "a start of some")
    told = cluster.signal_node("n1", signal.SIGTERM)
    node_status = await cluster.nodes["n1"].wait(60)
    node_seconds = time.monotonic() - told
    late = [e for e in of_kind(cluster.events(), "attempt", "invoke", node="n1") if e.at > told + 0.5]
    cluster.history.note("fault", "info", what="SIGTERM", target="scheduler")
    start = time.monotonic()
    cluster.scheduler.signal(signal.SIGTERM)
    status = await cluster.scheduler.wait(60)
    seconds = time.monotonic() - start
    await cluster.start_scheduler()
    await clients
    events = await audit_all(cluster)
    works = [e["work"] for e in of_kind(events, "attempt", "invoke")]
    return [
        exactly(20, "6", "exit status of a drained node", node_status, 0),
        at_most(20, "6", "duration of its drain, with attempts of 1 s", node_seconds, 10 + 5, "s"),
        exactly(20, "6", "attempts that the node still got", len(late), 0),
        exactly(20, "6", "exit status of the scheduler", status, 0),
        at_most(20, "6", "duration of its stop, with a drain limit of 10 s", seconds, 10 + 5, "s"),
        exactly(20, "6", "attempts that ran again", len(works) - len(set(works)), 0),
        *kept(20, "1 6", events),
    ]


async def _roll(plan: Plan, cluster: Cluster) -> list[Figure]:
    """Stop and start every node in turn, and compare the throughput with that of one node less."""
    draw = random.Random(plan.seed)
    count = plan.count(3_000, 600)
    load = {f"c{i}": workload(f"c{i}", count // 2, draw, seconds=(0.2, 0.4), repeats=0) for i in range(2)}
    clients = asyncio.create_task(run_clients(cluster, load, limit_seconds=120 + count * 0.1))
    await eventually(lambda: len(_ends(cluster.events())) >= count // 10, 60, "some results")
    steady = _ends(cluster.events())[-count // 20 :]
    rate = len(steady) / (steady[-1] - steady[0])
    began = time.monotonic()
    for name in list(cluster.nodes):
        if clients.done():
            break
        cluster.signal_node(name, signal.SIGTERM)
        await cluster.nodes[name].wait(60)
        await cluster.start_node(name)
    over = time.monotonic()
    rolled = sum(e["what"] == "SIGTERM" for e in of_kind(cluster.events(), "fault", "info"))
    await clients
    events = await audit_all(cluster)
    during = [at for at in _ends(events) if began < at < min(over, _ends(events)[-1])]
    dip = len(during) / (during[-1] - during[0]) / rate
    works = [e["work"] for e in of_kind(events, "attempt", "invoke")]
    return [
        exactly(21, "6", "nodes restarted", rolled, NODES),
        at_least(21, "6", "throughput meanwhile, relative to one node less", 100 * dip * NODES / (NODES - 1), 80, "%"),
        exactly(21, "6", "attempts that ran again", len(works) - len(set(works)), 0),
        *kept(21, "1 6", events),
    ]


def _ends(events: list[Event]) -> list[float]:
    return [e.at for e in of_kind(events, "result", "ok", reader="stream")]

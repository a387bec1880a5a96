"""Rows 6 and 7: a process is stopped for longer than the lease, and then continued."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.chaos.clients import request
from tests.chaos.cluster import Cluster
from tests.chaos.scenario import Figure, Plan, at_least, at_most, audit_all, exactly, kept, of_kind, run_clients
from tests.waiting import eventually

ROWS = (6, 7)
TITLE = "A node, then the scheduler, is stopped for 30 s and continued"


async def run(plan: Plan) -> list[Figure]:
    """Check that late results of a stopped node are refused, and that a stopped scheduler loses no node."""
    pause = plan.seconds(30.0, 6.0)
    lease = pause / 3
    nodes = plan.directory / "node"
    scheduler = plan.directory / "scheduler"
    nodes.mkdir()
    scheduler.mkdir()
    return [*await _zombie(plan, nodes, pause, lease), *await _sleeper(plan, scheduler, pause, lease)]


async def _zombie(plan: Plan, directory: Path, pause: float, lease: float) -> list[Figure]:
    options = {"lease": lease, "heartbeat": lease / 5}
    async with Cluster(directory, nodes=2, lanes=8, seed=plan.seed, options=options, proxied=True) as cluster:
        load = [request(f"e{i}", f"e{i}", seconds=lease / 2) for i in range(16)]
        clients = asyncio.create_task(run_clients(cluster, {"c1": load}, limit_seconds=pause * 6 + 60))
        await eventually(lambda: len(of_kind(cluster.events(), "attempt", "invoke")) >= 16, 30, "a start of all")
        stopped = cluster.signal_node("n1", signal.SIGSTOP)
        held = {e["token"] for e in of_kind(cluster.events(), "attempt", "invoke", node="n1")}
        await asyncio.sleep(pause)
        await clients  # the other node has done all work before the zombie wakes
        # The stall makes the node finish its attempts before it hears that nobody wants their results.
        cluster.proxies["n1"].stall()
        cluster.signal_node("n1", signal.SIGCONT)

        def woken() -> list[str]:
            # The attempts that the node held and that ended, by a result or a kill, after it was stopped.
            ends = [e for e in cluster.events() if e.op == "attempt" and e.at > stopped and e.get("node") == "n1"]
            return [e["token"] for e in ends if e.kind in ("ok", "fail") and e["token"] in held]

        await eventually(lambda: len(woken()) >= len(held), 30, "an end of what the zombie held")
        await asyncio.sleep(0.5)
        await cluster.proxies["n1"].heal()
        await asyncio.sleep(lease / 5 + 1)
        late = {e["token"] for e in of_kind(cluster.events(), "attempt", "ok", node="n1") if e.at > stopped} & held
        refused = {fields["attempt"] for _, fields in cluster.logged("stale_completion")}
        counted = cluster.metric("kerneldyno_stale_completions_total")
        events = await audit_all(cluster)
    all_of_them = (len(late), len(late))
    decided = {e["token"] for e in events if e.op == "result"}
    return [
        at_least(6, "3", f"attempts that a node stopped for {pause:g} s held", len(held), 1),
        exactly(6, "3", f"late results of these attempts ({len(late)}) that had an effect", len(late & decided), 0),
        exactly(
            6, "3", "late results that came, refused and counted", (len(refused & late), int(counted)), all_of_them
        ),
        *kept(6, "1 3", events),
    ]


async def _sleeper(plan: Plan, directory: Path, pause: float, lease: float) -> list[Figure]:
    options = {"lease": lease, "heartbeat": lease / 5}
    async with Cluster(directory, nodes=4, lanes=4, seed=plan.seed, options=options) as cluster:
        load = [request(f"e{i}", f"e{i}", seconds=1.0) for i in range(60)]
        clients = asyncio.create_task(run_clients(cluster, {"c1": load}, limit_seconds=pause * 4 + 60))
        await eventually(lambda: len(of_kind(cluster.events(), "attempt", "invoke")) >= 16, 30, "a start of some")
        cluster.history.note("fault", "info", what="SIGSTOP", target="scheduler")
        cluster.scheduler.signal(signal.SIGSTOP)
        await asyncio.sleep(pause)
        cluster.scheduler.signal(signal.SIGCONT)
        await clients
        lost = len(cluster.logged("node_lost"))
        events = await audit_all(cluster)
    works = [e["work"] for e in of_kind(events, "attempt", "invoke")]
    return [
        exactly(7, "4", f"nodes lost because the scheduler was stopped for {pause:g} s", lost, 0),
        at_most(
            7,
            "3 4",
            f"attempts that ran again, of {len(works)}",
            100 * (len(works) - len(set(works))) / len(works),
            1,
            "%",
        ),
        *kept(7, "1 3", events),
    ]

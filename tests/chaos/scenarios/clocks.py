"""Row 29: the wall clock jumps by an hour, ahead and back."""

from __future__ import annotations

import asyncio
import signal

from tests.chaos.clients import request
from tests.chaos.cluster import Cluster
from tests.chaos.scenario import Figure, Plan, at_least, audit_all, exactly, kept, of_kind, run_clients
from tests.waiting import eventually

ROWS = (29,)
TITLE = "The scheduler's wall clock jumps by an hour, ahead and back twice"


async def run(plan: Plan) -> list[Figure]:
    """Move the wall clock under load. Leases, ageing and limits use the monotonic clock, so nothing may expire."""
    options = {"lease": 4, "heartbeat": 1, "client-grace": 60}
    async with Cluster(
        plan.directory, nodes=3, seed=plan.seed, options=options, module="tests.chaos.skewed"
    ) as cluster:
        load = [request(f"e{i}", f"e{i}", seconds=0.5) for i in range(plan.count(300, 60))]
        load[0].total_timeout.FromSeconds(600)
        clients = asyncio.create_task(run_clients(cluster, {"c1": load}, limit_seconds=180))
        await eventually(lambda: len(of_kind(cluster.events(), "attempt", "invoke")) >= 6, 30, "a start of some")
        for jump in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR2, signal.SIGUSR1):
            cluster.history.note("fault", "info", what=jump.name, target="clock")
            cluster.scheduler.signal(jump)
            await asyncio.sleep(1.5)
        await clients
        hours = {when // 3600 for when, _ in cluster.logged("attempt_started")}
        expired = len(cluster.logged("node_lost"))
        events = await audit_all(cluster)
    works = [e["work"] for e in of_kind(events, "attempt", "invoke")]
    return [
        at_least(29, "", "different hours in the stamps of its log, to show that the clock jumped", len(hours), 3),
        exactly(29, "4", "leases that expired", expired, 0),
        exactly(29, "3", "attempts that ran again", len(works) - len(set(works)), 0),
        *kept(29, "1", events),
    ]

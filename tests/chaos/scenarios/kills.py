"""Rows 1 and 2: evaluators and the scheduler are killed again and again under load."""

from __future__ import annotations

import asyncio
import math
import random

from tests.chaos.checker import check
from tests.chaos.clients import workload
from tests.chaos.cluster import Cluster
from tests.chaos.history import Event
from tests.chaos.scenario import Figure, Plan, at_most, audit_all, exactly, kept, of_kind, percentile, run_clients

ROWS = (1, 2)
TITLE = "SIGKILL of random evaluators every 5 s and of the scheduler every 15 s"
CLIENTS = 4


async def run(plan: Plan) -> list[Figure]:
    """Send 10,000 evaluations through 8 nodes while nodes and the scheduler are killed."""
    count = plan.count(10_000, 400)
    # A shorter run gets its kills sooner, so that it gets any, and fewer kills, so that slow machines can finish it.
    every, most = min(1.0, plan.scale * 2), math.inf if plan.scale >= 1 else max(2, 40 * plan.scale)
    async with Cluster(plan.directory, nodes=8, seed=plan.seed) as cluster:
        faults = [
            asyncio.create_task(cluster.keep_killing_nodes(5 * every, most=most)),
            asyncio.create_task(cluster.keep_killing_scheduler(15 * every, most=max(1, most / 4))),
        ]
        draw = random.Random(plan.seed)
        loads = {
            f"c{i}": workload(f"c{i}", count // CLIENTS, random.Random(draw.random()), seconds=(0.02, 0.25))
            for i in range(CLIENTS)
        }
        took = await run_clients(cluster, loads, limit_seconds=120 + count * 0.2)
        await cluster.calm(*faults)
        events = await audit_all(cluster)
    kills = of_kind(events, "fault", "info", what="kill")
    of_scheduler = [e for e in kills if e["target"] == "scheduler"]
    resumed, from_ready = resumptions(events)
    errors = [e for e in events if (e.op, e.kind) == ("read", "fail")]
    gave_up = {e["id"] for e in events if e.op == "result" and e["outcome"] == "INFRASTRUCTURE_ERROR"}
    final = sum(violation.rule == "refused" for violation in check(events))
    situation = (
        f"in {took:.0f} s, {len(kills) - len(of_scheduler)} kills of nodes, {len(of_scheduler)} of the scheduler"
    )
    return [
        *kept(1, "1 2 3 8", events),
        exactly(1, "5 8", f"evaluations that infrastructure ended ({situation})", len(gave_up), 0),
        at_most(
            2,
            "1",
            "time until clients hear of their evaluations again after a kill, p99",
            percentile(resumed, 0.99),
            3,
            "s",
        ),
        at_most(2, "1", "the same, from when the scheduler listens again, p99", percentile(from_ready, 0.99), 3, "s"),
        exactly(2, "1", f"errors after which a client may not retry, of {len(errors)}", final, 0),
    ]


def resumptions(events: list[Event]) -> tuple[list[float], list[float]]:
    """Return the seconds from a kill of the scheduler, and from its return, to the first message on each new stream."""
    from_kill, from_ready = [], []
    kills = [e.at for e in of_kind(events, "fault", "info", what="kill", target="scheduler")]
    backs = [e.at for e in of_kind(events, "fault", "info", what="started", target="scheduler")]
    for heard in of_kind(events, "stream", "ok"):
        opened = of_kind(events, "stream", "info", client=heard["client"], number=heard["number"])
        before = [at for at in kills if at < heard.at]
        if opened and before:
            back = [at for at in backs if before[-1] < at]
            from_kill.append(heard.at - before[-1])
            from_ready.append(max(0.0, heard.at - back[0]) if back else 0.0)
    return from_kill, from_ready

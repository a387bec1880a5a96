"""Row 3: the scheduler dies at a random pass of each failpoint, and is started again."""

from __future__ import annotations

import asyncio
import random
import re

from kerneldyno.scheduler.failpoints import PLACES
from tests.chaos.clients import workload
from tests.chaos.cluster import Cluster
from tests.chaos.scenario import Figure, Plan, at_least, audit_all, exactly, kept, run_clients

ROWS = (3,)
TITLE = "The scheduler dies at each of its failpoints"
#: Failpoints that the scheduler passes only when it loses a node, or when it deletes old results.
OF_LOSS, OF_TRIM = ("on_node_lost",), ("during_trim",)
FULL_SEEDS = 50


async def run(plan: Plan) -> list[Figure]:
    """Crash the scheduler at each failpoint, 50 times in a full run."""
    seeds = plan.count(FULL_SEEDS)
    draw = random.Random(plan.seed)
    places = [place for place in PLACES if place not in OF_TRIM]
    ordinary = plan.directory / "ordinary"
    ordinary.mkdir()
    async with Cluster(ordinary, nodes=3, seed=plan.seed) as cluster:
        await _crash_at(cluster, places, seeds, draw)
        events = await audit_all(cluster)
        log = cluster.scheduler_log()
    trimming = plan.directory / "trimming"
    trimming.mkdir()
    options = {"retain-results": 30}
    async with Cluster(trimming, nodes=2, seed=plan.seed, options=options) as cluster:
        await _crash_at(cluster, OF_TRIM, seeds, draw)
        trimmed = cluster.events()
        log += cluster.scheduler_log()
    deaths = {place: len(re.findall(rf"^failpoint {place}$", log, re.MULTILINE)) for place in PLACES}
    print("    deaths:", ", ".join(f"{place} {count}" for place, count in deaths.items()))
    reached = [place for place, count in deaths.items() if count]
    missed = sorted(set(PLACES) - set(reached))
    return [
        at_least(
            3,
            "1 2 3",
            f"failpoints at which the scheduler died; not reached: {', '.join(missed) or 'none'}",
            len(reached),
            12,
        ),
        exactly(3, "1 2 3", f"failpoints without a death, of {len(PLACES)}", len(missed), 0),
        *kept(3, "1 2 3 8", events),
        # The scheduler has forgotten old results, so only what clients were sent can be checked.
        *kept(3, "1 2 3 8", trimmed, without=("forgotten", "backwards"))[:2],
    ]


async def _crash_at(cluster: Cluster, places: tuple[str, ...] | list[str], seeds: int, draw: random.Random) -> None:
    """For each failpoint and seed, start a scheduler that will die there, and let clients finish their evaluations."""
    for place in places:
        for seed in range(seeds):
            await cluster.kill_scheduler()
            once = "recovery" in place or "accepted" in place or place in OF_TRIM + OF_LOSS
            passes = 1 if once else draw.randint(1, 3 if place.endswith("_sent") else 10)
            if not await cluster.start_scheduler(f"{place}=kill#{passes}"):
                await cluster.start_scheduler()  # it died in its recovery, before it was ready
            alive = asyncio.create_task(cluster.keep_alive())
            kill = asyncio.create_task(_kill_a_node(cluster, draw)) if place in OF_LOSS else None
            name = f"{place}-{seed}"
            count = 60 if place in OF_TRIM else 20
            seconds = (1.0, 2.0) if place in OF_LOSS else (0.01, 0.05)
            load = workload(name, count, random.Random(draw.random()), seconds=seconds)
            await run_clients(cluster, {name: load}, limit_seconds=120)
            if kill is not None:
                await kill
            await cluster.calm(alive)


async def _kill_a_node(cluster: Cluster, draw: random.Random) -> None:
    await asyncio.sleep(0.7)
    await cluster.kill_node(draw.choice([name for name, node in cluster.nodes.items() if node.up]))

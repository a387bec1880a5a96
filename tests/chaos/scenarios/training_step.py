"""Row 41: a training step of 256 trajectories with three turns each, and take-overs between two schedulers meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from kerneldyno.client import AsyncClient, RewardStream
from tests.chaos.scenario import Figure, Plan, at_least, exactly, of_kind
from tests.chaos.scenarios.shared_store import folder, lease_of
from tests.chaos.shared_pair import SharedPair
from tests.postgres import PostgresServer
from tests.scheduler.rewards_harness import turn
from tests.waiting import eventually

ROWS = (41,)
TITLE = "A training step of 768 turns, three turns deep, with two take-overs in the middle"
TURNS = 3


async def run(plan: Plan) -> list[Figure]:
    """Send each turn when the one before it is answered; kill the active scheduler at a third and at two thirds."""
    trajectories = plan.count(256, 16)
    asked = trajectories * TURNS
    draw = random.Random(plan.seed)
    seconds = {(number, index): draw.uniform(0.1, 0.6) for number in range(trajectories) for index in range(TURNS)}
    answers: Counter[str] = Counter()
    wrong = 0

    async def trajectory(stream: RewardStream, number: int) -> None:
        nonlocal wrong
        for index in range(TURNS):
            name = f"t{number}-{index}"
            script = f"work={name} sleep={seconds[number, index]:.3f} speedup=2.0"
            scored = await stream.score(turn(name, script, index=index))
            answers[scored.id] += 1
            wrong += scored.id != name or abs(scored.reward - 2.3) > 1e-6

    server = PostgresServer(durable=True)
    try:
        options = {"lease": lease_of(plan), "nodes": 4, "lanes": 4, "seed": plan.seed}
        async with SharedPair(folder(plan, "step"), server.schema(), **options) as cluster:
            async with AsyncClient(cluster.address) as client, client.reward_stream("kevin") as stream:
                running = asyncio.gather(*(trajectory(stream, number) for number in range(trajectories)))
                for share in (1 / 3, 2 / 3):
                    await eventually(lambda share=share: answers.total() >= share * asked, 300)
                    await cluster.take_over()
                await asyncio.wait_for(running, 300)
            starts = Counter(e["work"] for e in of_kind(cluster.events(), "attempt", "invoke"))
    finally:
        server.close()
    down = ", ".join(f"{one:.1f}" for one in cluster.down_seconds)
    return [
        at_least(41, "", f"take-overs ({down} s without a scheduler that serves)", len(cluster.down_seconds), 2),
        exactly(41, "1", f"turns that were answered once, of {asked}", sum(n == 1 for n in answers.values()), asked),
        exactly(41, "8", "turns with another answer than their own", wrong, 0),
        exactly(41, "3", "turns that ran twice", sum(n > 1 for n in starts.values()), 0),
    ]

"""Take-overs between real schedulers with one journal: no evaluation is lost or doubled, and each verdict stays as told.

The clients and nodes are real ones with both addresses; pair.py and tests/chaos/shared_pair.py say how a take-over happens.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kerneldyno.client import (
    AsyncClient,
    Client,
    EvalRequest,
    EvalResult,
    EvaluationNotFoundError,
    RewardStream,
    UnavailableError,
)
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1.evaluation_pb2 import STAGE_DONE
from tests.chaos.checker import check
from tests.chaos.clients import audit, request, workload
from tests.chaos.cluster import Cluster
from tests.chaos.shared_pair import SharedPair
from tests.evaluator.fleet_harness import proxy_to
from tests.failover.pair import Pair
from tests.failover.standby import standby
from tests.scheduler.rewards_harness import turn
from tests.scheduler.scheduler_harness import scheduler
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with Pair(tmp_path) as running:
        yield running


@pytest.fixture(params=["one after the other", "postgres"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair | SharedPair]:
    """Two schedulers of which the second one starts when the first is dead, or two that share a PostgreSQL."""
    shared = request.param == "postgres"
    made = SharedPair(tmp_path, request.getfixturevalue("postgres").schema()) if shared else Pair(tmp_path)
    async with made as running:
        yield running


def started(pair: Cluster) -> Counter[str]:
    """Return how many attempts the nodes have started for each piece of work."""
    return Counter(
        one["work"] for one in pair.events() if (one.op, one.kind) == ("attempt", "invoke") and "work" in one.fields
    )


async def test_evaluations_survive_two_take_overs(either: Pair | SharedPair) -> None:
    """Nothing is lost or doubled, and every reader of a verdict gets the same bytes, before and after."""
    ids = {f"c{client}": [f"c{client}-{number}" for number in range(400)] for client in range(2)}
    told: Counter[str] = Counter()

    async def drive(name: str) -> None:
        # No work twice: what is asked for again before the nodes are back may run again, as after any restart.
        load = workload(name, len(ids[name]), random.Random(name), repeats=0.0)
        async with AsyncClient(either.address, client_id=name, window=64, reconnect_timeout=60) as client:
            async for result in client.evaluate(load):
                told[result.id] += 1

    driving = [asyncio.create_task(drive(name)) for name in ids]
    for share in (0.25, 0.6):
        await eventually(lambda share=share: told.total() >= share * 800)
        await either.take_over()
    await asyncio.gather(*driving)
    assert told == Counter(id for many in ids.values() for id in many)
    for name, many in ids.items():
        await audit(either.active, name, many, either.history)
    assert check(either.events()) == []
    print(f"down for {', '.join(f'{seconds:.2f}' for seconds in either.down_seconds)} s")


async def test_every_turn_of_a_training_step_is_answered_once(either: Pair | SharedPair) -> None:
    """16 trajectories of 3 turns, each turn sent when the one before is answered; a take-over in the middle."""
    answers: Counter[str] = Counter()

    async def trajectory(stream: RewardStream, number: int) -> None:
        for index in range(3):
            name = f"t{number}-{index}"
            scored = await stream.score(turn(name, f"work={name} sleep=0.3 speedup=2.0", index=index))
            assert scored.id == name
            assert scored.reward == pytest.approx(2.3)
            answers[name] += 1

    async with AsyncClient(either.address) as client, client.reward_stream("kevin") as stream:
        running = [asyncio.create_task(trajectory(stream, number)) for number in range(16)]
        await eventually(lambda: answers.total() >= 20)
        await either.take_over()
        await asyncio.gather(*running)
    assert answers == Counter(f"t{number}-{index}" for number in range(16) for index in range(3))
    assert max(started(either).values()) == 1, "no turn ran twice"


async def test_single_calls_survive_a_take_over(pair: Pair) -> None:
    async with AsyncClient(pair.address, client_id="c") as client:
        long = asyncio.create_task(client.evaluate_once(request("long", "long", seconds=2.5)))
        dropped = asyncio.create_task(client.evaluate_once(request("dropped", "dropped", seconds=60.0)))
        await eventually(lambda: started(pair).total() == 2)
        watch = client.watch()
        await anext(watch)
        taking = asyncio.create_task(pair.take_over())
        await asyncio.sleep(0.1)
        calls = [
            client.capabilities(),
            client.nodes(),
            client.get("long"),
            client.quarantines(),
            client.cancel("dropped"),
        ]
        await asyncio.gather(*calls)
        with pytest.raises(EvaluationNotFoundError):
            await client.get("none")
        await taking
        assert (await anext(watch)).nodes
        await watch.aclose()
        assert (await dropped).infrastructure_error.cause == "CANCELLED"
        assert (await long).outcome == EvalResult.CORRECT
        listed = [one async for one in client.list(page_size=1)]
        assert sorted((one.id, one.stage) for one in listed) == [("dropped", STAGE_DONE), ("long", STAGE_DONE)]
    assert started(pair) == {"long": 1, "dropped": 1}


async def test_limits_hold_when_no_scheduler_takes_over(pair: Pair) -> None:
    async with AsyncClient(pair.address, reconnect_timeout=2.0) as client:
        streaming = asyncio.create_task(_collect(client, [request("a", "a", seconds=60.0)]))
        single = asyncio.create_task(client.evaluate_once(request("b", "b", seconds=60.0)))
        await eventually(lambda: started(pair).total() == 2)
        await pair.kill_scheduler()
        for task in (streaming, single):
            with pytest.raises(UnavailableError) as caught:
                await asyncio.wait_for(task, 20)
            assert f"{pair.active}: nothing listens there" in str(caught.value)
            assert f"{pair.other}: is a standby" in str(caught.value)


async def test_the_blocking_client_survives_a_take_over(pair: Pair) -> None:
    def evaluate() -> list[str]:
        with Client(pair.address) as client:
            return sorted(result.id for result in client.evaluate(_requests()))

    def _requests() -> Iterator[EvalRequest]:
        for number in range(30):
            yield request(f"r{number}", f"r{number}", seconds=0.5)

    done = asyncio.create_task(asyncio.to_thread(evaluate))
    await eventually(lambda: started(pair).total() >= 12)
    await pair.take_over()
    assert await done == sorted(f"r{number}" for number in range(30))
    assert max(started(pair).values()) == 1


async def _collect(client: AsyncClient, requests: list[EvalRequest]) -> list[EvalResult]:
    return [result async for result in client.evaluate(requests)]


async def test_a_single_call_outlives_a_connection_that_breaks() -> None:
    """The scheduler lives on and takes the broken connection for a caller that left; the client asks once more."""
    async with (
        scheduler() as (app, _),
        proxy_to(app.address.port) as proxy,
        standby(f"127.0.0.1:{proxy.port}") as other,
        node(app.address, "n1") as fake,
        AsyncClient(f"127.0.0.1:{proxy.port},{other.address}") as client,
    ):
        call = asyncio.create_task(client.evaluate_once(request("a", "a", seconds=2.0)))
        await eventually(lambda: len(fake.started) == 1)
        proxy.reset()
        result = await call
        assert (result.id, result.outcome) == ("a", EvalResult.CORRECT)

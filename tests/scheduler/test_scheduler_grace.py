"""Tests of clients that vanish: how long their work goes on, and that it does not fill the nodes for ever."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kerneldyno.client import AsyncClient, EvalRequest
from kerneldyno.client.sources import RANDOM_ID_GRACE_SECONDS
from kerneldyno.scheduler.store.sqlite import SqliteStore
from kerneldyno.testing.scripted_node import node
from tests.scheduler.scheduler_harness import Client, World, cause, request, scheduler, spec
from tests.waiting import eventually


def _away(world: World, *clients: str) -> None:
    for client in clients:
        world.core.requests.call_opened(client)
        world.core.requests.call_closed(client)


def test_an_evaluation_goes_on_without_its_client_for_its_own_grace_and_no_longer() -> None:
    world = World(client_grace_seconds=60, unmatched_seconds=1e6)
    short, long, plain = (
        world.submit("short", grace_seconds=5),
        world.submit("long", grace_seconds=500),
        world.submit("p"),
    )
    _away(world, "c")
    world.pass_by(4)
    assert (cause(short), cause(long), cause(plain)) == (None, None, None)
    world.pass_by(2)
    assert (cause(short), cause(long), cause(plain)) == ("CLIENT_GONE", None, None)
    world.pass_by(60)
    assert (cause(long), cause(plain)) == ("CLIENT_GONE", "CLIENT_GONE"), "the scheduler's own limit bounds them all"


def test_a_client_that_is_back_in_time_or_has_another_call_keeps_its_work() -> None:
    world = World(unmatched_seconds=1e6)
    back, other = world.submit("a", client="back", grace_seconds=5), world.submit("b", client="other", grace_seconds=5)
    world.core.requests.call_opened("other")
    _away(world, "back", "other")
    world.pass_by(4)
    world.core.requests.call_opened("back")
    world.pass_by(20)
    assert (cause(back), cause(other)) == (None, None)


def test_the_grace_outlives_a_crash_of_the_scheduler(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    before = World(store, unmatched_seconds=1e6)
    before.submit("short", grace_seconds=5)
    before.submit("plain")
    store.close()
    store = SqliteStore(tmp_path / "store.sqlite")
    world = World(store, unmatched_seconds=1e6)
    world.core.recover(store.recover(), lambda payload: spec(payload=payload))
    world.pass_by(6)
    left = {one.key.id for one in world.core.clients.unfinished("c")}
    store.close()
    assert left == {"plain"}


async def test_killed_evaluates_free_the_lanes_of_their_node(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text("reference")
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=2) as fake:
        for number in range(2):
            (tmp_path / "candidate.py").write_text(f"id={number} sleep=600")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kerneldyno.cli", "evaluate", "--address", str(app.address)),
                *(str(tmp_path / "reference.py"), str(tmp_path / "candidate.py")),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            await eventually(lambda: len(fake.started) == number + 1)  # noqa: B023
            process.kill()
            await process.wait()
        client = Client(stub, "next")
        await client.send(request("next", "pass"))
        await eventually(lambda: len(fake.cancelled) == 2, RANDOM_ID_GRACE_SECONDS + 60)
        assert (await client.finish())["next"].correct


async def test_work_under_ids_that_the_caller_chose_goes_on_without_it() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        client = Client(stub, "mine")
        await client.send(request("chosen", "sleep=600"), request("random", "sleep=600", client_grace={"seconds": 1}))
        await client.until(lambda: len(client.accepted) == 2)
        client.call.cancel()
        await eventually(lambda: fake.cancelled == ["random"])
        assert [one.key.id for one in app.core.clients.unfinished("mine")] == ["chosen"]


async def test_a_client_that_was_away_for_too_long_still_gets_its_verdicts() -> None:
    async with scheduler() as (app, _), node(app.address, "n1") as fake, AsyncClient(str(app.address)) as client:
        asked = EvalRequest(reference_code="ref", kernel_code="id=a sleep=2")
        asked.client_grace.FromSeconds(1)
        results = client.evaluate([asked])
        first = asyncio.ensure_future(anext(results))
        await eventually(lambda: fake.started == ["a"])
        (evaluation,) = app.core.clients.unfinished(client.client_id)
        app.core.requests.cancel(evaluation, "CLIENT_GONE", "as after an outage of the network")
        assert (await first).correct
        assert fake.started == ["a", "a"]
        assert (await first).id == evaluation.key.id, "one request has one id, however often it is submitted"

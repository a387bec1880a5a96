"""The node's side of a take-over: it registers where a scheduler serves, and tells the next one what it holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from kerneldyno.evaluator.server import settings
from kerneldyno.evaluator.server.fleet import FleetLink
from kerneldyno.rpc import errors
from kerneldyno.v1 import fleet_service_pb2 as pb
from tests.evaluator.fleet_harness import Fleet, proxy_to, serving
from tests.evaluator.node_harness import PASS, RunningNode, running_node
from tests.failover.standby import standby
from tests.waiting import eventually, free_port


class Scheduler(Fleet):
    """A scheduler that can be a standby, and that can lose its role while it runs."""

    def __init__(self, *, standby: bool = False) -> None:
        super().__init__()
        self.standby = standby
        self._ended = asyncio.Event()

    def lose_role(self) -> None:
        """Become a standby, and end every open stream."""
        self.standby = True
        self._ended.set()

    async def Synchronize(self, request: pb.SynchronizeRequest, context: Any) -> pb.SynchronizeResponse:  # noqa: N802
        if self.standby:
            await self._refuse(context)
        return await super().Synchronize(request, context)

    async def Work(self, requests: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        if self.standby:
            await self._refuse(context)
        serving = asyncio.create_task(super().Work(requests, context))
        await asyncio.wait([serving, ended := asyncio.create_task(self._ended.wait())], return_when="FIRST_COMPLETED")
        ended.cancel()
        if not serving.done():
            serving.cancel()
            await self._refuse(context)
        await serving

    async def _refuse(self, context: Any) -> None:
        error = errors.StandbyError("this scheduler is a standby", retry_seconds=0.2)
        await context.abort_with_status(errors.to_status(error))


@asynccontextmanager
async def linked(b: RunningNode, *ports: int) -> AsyncIterator[FleetLink]:
    """Run the link of a node that knows these ports."""
    scheduler = ",".join(f"127.0.0.1:{port}" for port in ports)
    link = FleetLink(b.node, scheduler, address="127.0.0.1:1", instance_id="i1")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(link.run())
        try:
            yield link
        finally:
            task.cancel()


async def at_work(fleet: Fleet) -> None:
    await eventually(lambda: bool(fleet.streams) and bool(fleet.stream.messages), seconds=20)


def test_a_list_is_checked_when_the_node_starts() -> None:
    with pytest.raises(settings.SettingsError, match="nothing before or after a comma"):
        settings.load(["--devices", "cpu", "--scheduler", "a:1,"])
    assert settings.load(["--devices", "cpu", "--scheduler", "a:1, b:2"]).scheduler == "a:1, b:2"


async def test_a_node_registers_at_the_scheduler_that_serves(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    fleet = Scheduler()
    async with standby() as first, serving(fleet) as port, running_node() as b:
        ports = free_port(), int(first.address.rpartition(":")[2]), port
        async with linked(b, *ports) as link:
            await at_work(fleet)
            assert link.connected
    assert f"event=registered scheduler=127.0.0.1:{port} node=node" in caplog.text
    assert first.refused == {"Synchronize": 1}


async def test_results_that_were_not_acknowledged_are_told_to_the_next_scheduler() -> None:
    """The scheduler dies with two results that it has not acknowledged, and an attempt that still runs."""
    former, following = Scheduler(), Scheduler(standby=True)
    async with AsyncExitStack() as stack, serving(following) as second, running_node() as b:
        dying = AsyncExitStack()
        first = await dying.enter_async_context(serving(former))
        stack.push_async_callback(dying.aclose)
        async with linked(b, first, second):
            await at_work(former)
            former.stream.assign("done", *PASS)
            former.stream.assign("running", "hang")
            await eventually(lambda: former.stream.results("done"))
            await dying.aclose()
            following.standby = False
            following.acknowledges = True
            await at_work(following)
            assert sorted(following.heard[0].attempt_tokens) == [
                "done",
                "running",
            ]  # later ones follow acknowledgements
            await eventually(lambda: following.stream.results("done"))
            (told,) = following.stream.results("done")
            assert told == former.stream.results("done")[0]
            await eventually(lambda: list(b.node.attempts.tokens()) == ["running"])
            following.stream.say(cancel_attempt_tokens=["running"])
            await eventually(lambda: not b.node.attempts.tokens())


async def test_a_node_leaves_a_scheduler_that_lost_its_role() -> None:
    former, following = Scheduler(), Scheduler(standby=True)
    async with serving(former) as first, serving(following) as second, running_node() as b, linked(b, first, second):
        await at_work(former)
        former.stream.assign("a", "hang")
        await eventually(lambda: b.node.attempts.holds("a"))
        following.standby = False
        former.lose_role()
        await at_work(following)
        assert following.stream.messages[0].held_attempt_tokens == ["a"]


async def test_a_node_leaves_a_machine_that_no_longer_answers() -> None:
    """The connection to the former scheduler stays open; its Work stream ends as soon as another scheduler serves."""
    former, following = Scheduler(), Scheduler()
    async with (
        serving(former) as hidden,
        proxy_to(hidden) as proxy,
        serving(following) as second,
        running_node() as b,
        linked(b, proxy.port, second) as link,
    ):
        await at_work(former)
        former.stream.assign("a", "hang")
        await eventually(lambda: b.node.attempts.holds("a"))
        proxy.swallow()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await at_work(following)
        assert loop.time() - began < 8.0
        assert following.stream.messages[0].held_attempt_tokens == ["a"]
        assert link.connected


async def test_a_node_waits_for_a_take_over_without_hammering_the_standby() -> None:
    async with standby(retry_seconds=0.5) as only, running_node() as b:
        port = int(only.address.rpartition(":")[2])
        async with linked(b, free_port(), port) as link:
            await asyncio.sleep(3.0)
            assert not link.connected
    assert 1 <= only.refused["Synchronize"] <= 8

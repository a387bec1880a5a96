"""The node's side of Synchronize against a real FleetService on a real socket: absent, present, gone and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from kerneldyno.evaluator.fleet import FleetLink
from kerneldyno.rpc import channel, errors
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2_grpc as pb_grpc
from node_harness import PASS, Bench, Clock, bench, eventually, processes


class Fleet(pb_grpc.FleetServiceServicer):
    """A scheduler that writes down what nodes say and answers what the test wants."""

    ListNodes = DrainNode = UndrainNode = WatchCluster = None  # type: ignore[assignment]  # no node calls them

    def __init__(self) -> None:
        self.heard: list[pb.SynchronizeRequest] = []
        self.answer = pb.SynchronizeResponse(desired_state=pb.NODE_STATE_SERVING)
        self.answer.next_synchronize.FromMilliseconds(100)
        self.answer.lease.FromSeconds(10)
        self.refuse: grpc.StatusCode | None = None

    @property
    def last(self) -> pb.SynchronizeRequest:
        return self.heard[-1]

    async def Synchronize(self, request: pb.SynchronizeRequest, context: Any) -> pb.SynchronizeResponse:  # noqa: N802
        self.heard.append(request)
        if self.refuse is not None:
            await context.abort(self.refuse, "no")
        return self.answer


@asynccontextmanager
async def serving(fleet: Fleet, port: int = 0) -> AsyncIterator[int]:
    server = grpc.aio.server(options=channel.server_options())
    pb_grpc.add_FleetServiceServicer_to_server(fleet, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


@asynccontextmanager
async def linked(b: Bench, port: int, **options: Any) -> AsyncIterator[FleetLink]:
    link = FleetLink(b.node, f"127.0.0.1:{port}", address="127.0.0.1:1", instance_id="i1", **options)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(link.run())
        try:
            yield link
        finally:
            task.cancel()


async def test_the_node_says_what_it_is_and_has() -> None:
    fleet = Fleet()
    async with serving(fleet) as port, bench(scheduled=True) as b, linked(b, port) as link:
        attempt = b.start("hang")
        await eventually(lambda: bool(fleet.heard) and list(fleet.last.attempt_tokens) == [attempt.token])
        said = fleet.last
        assert (said.node_id, said.instance_id, said.address) == ("node", "i1", "127.0.0.1:1")
        assert said.state == pb.NODE_STATE_SERVING
        assert [(d.name, d.kind, d.lanes, d.ready) for d in said.devices] == [("cpu:0", "cpu", 2, True)]
        assert {"triton", "cuda", "torch"} <= set(said.backends)
        assert {"kernelbench", "kernel_simple"} <= set(said.toolkits)
        assert (said.environment.torch_version, said.environment.device) == ("0.fake", "")
        assert not said.profiling
        assert link.connected


async def test_a_node_obeys_cancels_and_desired_state() -> None:
    fleet = Fleet()
    async with serving(fleet) as port, bench(scheduled=True) as b, linked(b, port):
        running, finished = b.start("hang"), b.start(*PASS)
        await eventually(lambda: finished.done)
        fleet.answer.cancel_attempt_tokens.extend([running.token, finished.token, "unknown"])
        fleet.answer.desired_state = pb.NODE_STATE_DRAINING
        await eventually(lambda: running.done)
        await eventually(lambda: list(fleet.last.attempt_tokens) == [] and fleet.last.state == pb.NODE_STATE_DRAINING)
        with pytest.raises(errors.ShuttingDownError):
            b.start(*PASS)
        del fleet.answer.cancel_attempt_tokens[:]
        fleet.answer.desired_state = pb.NODE_STATE_SERVING
        await eventually(lambda: fleet.last.state == pb.NODE_STATE_SERVING)
        b.start(*PASS)


async def test_news_are_told_at_once() -> None:
    """With a period of an hour, a restarting device, its return and a drain are heard within moments."""
    fleet = Fleet()
    fleet.answer.next_synchronize.FromSeconds(3600)
    async with serving(fleet) as port, bench(scheduled=True) as b, linked(b, port):
        await eventually(lambda: bool(fleet.heard))
        processes("--control-fd")[0].kill()
        await eventually(lambda: any(not said.devices[0].ready for said in fleet.heard))
        await eventually(lambda: fleet.last.devices[0].ready)
        b.node.drain()
        await eventually(lambda: fleet.last.state == pb.NODE_STATE_DRAINING)


async def test_a_scheduler_may_be_absent_come_go_and_return(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kerneldyno.evaluator.fleet._PERIOD", 0.1)
    caplog.set_level("INFO")
    fleet, clock = Fleet(), Clock()

    def events(name: str) -> int:
        return sum(f"event={name}" in record.getMessage() for record in caplog.records)

    async with serving(fleet) as port:
        pass
    async with bench(scheduled=True) as b, linked(b, port, clock=clock) as link:
        await eventually(lambda: events("synchronize_failed") == 1)
        assert not link.connected
        for _ in range(2):
            fleet.heard.clear()
            async with serving(fleet, port):
                await eventually(lambda: link.connected and bool(fleet.heard))
            attempt = b.start(*PASS)
            await b.node.until_idle(collected=False)
            assert attempt.token in b.node.tokens()
            clock.now += 11
            assert not link.connected
        assert events("registered") == 2
        await eventually(lambda: events("lease_lost") == 2)
        assert events("synchronize_failed") <= 4


async def test_a_refused_node_keeps_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted node is refused while the lease of its former self lasts."""
    monkeypatch.setattr("kerneldyno.evaluator.fleet._PERIOD", 0.1)
    fleet = Fleet()
    fleet.refuse = grpc.StatusCode.ALREADY_EXISTS
    async with serving(fleet) as port, bench(scheduled=True) as b, linked(b, port) as link:
        await eventually(lambda: len(fleet.heard) > 2)
        assert not link.connected
        fleet.refuse = None
        await eventually(lambda: link.connected)

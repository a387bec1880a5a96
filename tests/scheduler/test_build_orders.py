"""ValidateRequest with `compile`, over real sockets: who builds, who waits, what ends it. Nodes only pretend."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from kerneldyno.rpc import channel, errors
from kerneldyno.scheduler.app import RunningScheduler, running
from kerneldyno.scheduler.service import build_orders
from kerneldyno.testing.scripted_node import ScriptedNode, node
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb
from kerneldyno.v1 import scheduler_service_pb2 as pb
from kerneldyno.v1.evaluation_pb2 import CandidateFile, Compilation, DeviceSelector
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.scheduler.scheduler_harness import connect, failure, once, request, sample, scheduler, settings
from tests.waiting import eventually


def asked(name: str, script: str = "", client_id: str = "", **fields: Any) -> pb.ValidateRequestRequest:
    """Return a request with native code; nodes follow `script`, and call it `name`."""
    fields.setdefault("kernel_files", [CandidateFile(path="a.cpp", content="int a;")])
    return pb.ValidateRequestRequest(request=request(name, script, **fields), compile=True, client_id=client_id)


def said(answer: pb.ValidateRequestResponse) -> tuple[str, str]:
    """Return state and reason by name."""
    found = answer.compilation
    state, reason = Compilation.State.Name(found.state), Compilation.Reason.Name(found.reason)
    return state.removeprefix("STATE_"), reason.removeprefix("REASON_")


async def at_work(*nodes: ScriptedNode) -> None:
    for each in nodes:
        await each.at_work.wait()
    await asyncio.sleep(0.05)  # the scheduler reads the first message


async def gone(app: RunningScheduler, count: int = 1) -> None:
    """Wait until the scheduler has seen that so many nodes went away."""
    await eventually(lambda: sample(app, "nodes_lost_total", why="found_dead") == count)


async def test_a_node_with_builders_answers_and_nothing_is_submitted() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", builders=2) as one:
        await at_work(one)
        told = await stub.ValidateRequest(asked("a"))
        assert (said(told), told.compilation.node_id) == (("COMPILED", "UNSPECIFIED"), "n1")
        assert [build.name for build in told.compilation.builds] == ["native"]
        assert told.runnable
        assert told.digest
        failed = await stub.ValidateRequest(asked("b", "compiles=FAILED"))
        assert (said(failed)[0], failed.compilation.error.message) == ("FAILED", "scripted")
        assert not failed.violations, "it would be accepted"
        assert not (await stub.ValidateRequest(pb.ValidateRequestRequest(request=request("c")))).HasField("compilation")
        assert not (await stub.ListEvaluations(pb.ListEvaluationsRequest())).evaluations
        assert (one.built, one.started) == (["a", "b"], [])


async def test_what_cannot_be_compiled_is_answered_at_once_and_says_why() -> None:
    async with scheduler() as (app, stub):
        assert said(await stub.ValidateRequest(asked("a"))) == ("NOT_COMPILED", "NO_NODE")
        plain = await stub.ValidateRequest(asked("a", kernel_files=[]))
        assert said(plain) == ("NOTHING_TO_COMPILE", "UNSPECIFIED"), "no node is needed to say so"
        wrong = await stub.ValidateRequest(asked("a", num_correct_trials=-1))
        assert said(wrong) == ("NOT_COMPILED", "INVALID_REQUEST")
        assert [each.field for each in wrong.violations] == ["num_correct_trials"]
        long = await failure(stub.ValidateRequest(asked("a", client_id="x" * 101)))
        assert isinstance(long, errors.InvalidRequestError)
        async with node(app.address, "n1") as one:
            await at_work(one)
            assert said(await stub.ValidateRequest(asked("a"))) == ("NOT_COMPILED", "NO_BUILDER")
        await gone(app)
        async with node(app.address, "n2", builders=1) as two:
            await at_work(two)
            gpu = await stub.ValidateRequest(asked("a", device=DeviceSelector(kind="cuda")))
            assert said(gpu) == ("NOT_COMPILED", "NO_NODE")
            async with connect(app) as peer:
                await FleetServiceStub(peer).DrainNode(fleet_pb.DrainNodeRequest(node_id="n2"))
            drained = await stub.ValidateRequest(asked("a"))
            assert said(drained) == ("NOT_COMPILED", "NO_NODE")
            assert "takes work now" in drained.compilation.detail
            assert two.built == []


async def test_a_node_that_is_busy_or_stops_is_not_the_end() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", builders=1) as one:
        await at_work(one)
        assert said(await stub.ValidateRequest(asked("a", "builds=busy")))[0] == "COMPILED"
        assert one.built == ["a", "a"]
        async with node(app.address, "n0", builders=1) as other:
            await at_work(other)
            told = await stub.ValidateRequest(asked("b", "builds=lost node=n0"))
            assert (said(told)[0], told.compilation.node_id) == ("COMPILED", "n1")
            assert other.built == ["b"]


async def test_work_that_ends_its_nodes_does_not_go_round_the_fleet() -> None:
    async with (
        scheduler() as (app, stub),
        node(app.address, "n1", builders=1) as one,
        node(app.address, "n2", builders=1) as two,
        node(app.address, "n3", builders=1) as three,
    ):
        await at_work(one, two, three)
        told = await stub.ValidateRequest(asked("a", "builds=die"))
        assert said(told) == ("NOT_COMPILED", "NODE_LOST")
        assert [len(each.built) for each in (one, two, three)] == [1, 1, 0]
        assert said(await stub.ValidateRequest(asked("b")))[0] == "COMPILED"


async def test_the_only_node_that_goes_away_may_come_back() -> None:
    async with scheduler() as (app, stub):
        async with node(app.address, "n1", builders=1) as one:
            await at_work(one)
            call = stub.ValidateRequest(asked("a", "builds=hang node=n1"))
            await eventually(lambda: one.built == ["a"])
        async with node(app.address, "n2", builders=1):
            assert said(await call)[0] == "COMPILED"
        await gone(app, 2)
        async with node(app.address, "n3", builders=1) as three:
            await at_work(three)
            call = stub.ValidateRequest(asked("b", "builds=hang"))
            await eventually(lambda: three.built == ["b"])
        told = await call
        assert said(told) == ("NOT_COMPILED", "NODE_LOST")
        assert "n3 went away" in told.compilation.detail


async def test_a_node_that_has_registered_may_open_its_stream_soon() -> None:
    async with scheduler() as (app, stub), connect(app) as peer:
        early = ScriptedNode("n1", builders=1)
        await FleetServiceStub(peer).Synchronize(early.report())
        call = asyncio.ensure_future(stub.ValidateRequest(asked("a")))
        await asyncio.sleep(0.2)
        assert not call.done()
        async with node(app.address, "n2", builders=1):
            assert (await call).compilation.node_id == "n2"
        await gone(app)
        assert said(await stub.ValidateRequest(asked("b"))) == ("NOT_COMPILED", "NO_NODE"), "it never came"


async def test_a_node_whose_lease_ends_with_an_open_stream_loses_its_orders() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", builders=1) as one:
        await at_work(one)
        call = stub.ValidateRequest(asked("a", "builds=hang node=n1"))
        await eventually(lambda: one.built == ["a"])
        one.reporting = False
        async with node(app.address, "n2", builders=1):
            told = await call
        assert (said(told)[0], told.compilation.node_id) == ("COMPILED", "n2")


async def test_a_caller_that_goes_away_takes_its_build_with_it() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", builders=1) as one:
        await at_work(one)
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await stub.ValidateRequest(asked("a", "builds=hang"), timeout=0.5)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: one.builds_cancelled == ["a"])
        assert said(await stub.ValidateRequest(asked("b")))[0] == "COMPILED", "the place is free again"


async def test_a_scheduler_that_stops_ends_the_call() -> None:
    async with AsyncExitStack() as peers:
        async with running(settings(drain_seconds=0.0)) as app:
            one = await peers.enter_async_context(node(app.address, "n1", builders=1))
            target, options = channel.target(str(app.address)), [("grpc.enable_retries", 0)]  # else it is asked again
            stub: Any = SchedulerServiceStub(
                await peers.enter_async_context(grpc.aio.insecure_channel(target, options))
            )
            await at_work(one)
            call = asyncio.ensure_future(stub.ValidateRequest(asked("a", "builds=hang")))
            await eventually(lambda: one.built == ["a"])
        assert isinstance(await failure(call), errors.ShuttingDownError)


async def test_evaluations_keep_half_of_the_builders_and_shares_take_turns() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", builders=4) as one:
        await at_work(one)
        first = [stub.ValidateRequest(asked(f"h{i}", "builds=hang", "many")) for i in range(2)]
        await eventually(lambda: len(one.built) == 2)
        many = [stub.ValidateRequest(asked(f"m{i}", client_id="many/1")) for i in range(4)]
        await asyncio.sleep(0.2)
        few = stub.ValidateRequest(asked("f", client_id="few"))
        await asyncio.sleep(0.2)
        assert sorted(one.built) == ["h0", "h1"], "the other two builders are for evaluations"
        assert (
            await stub.EvaluateOnce(once("e", kernel_files=[CandidateFile(path="a.cpp", content="int b;")]))
        ).result.correct
        first[0].cancel()
        await asyncio.gather(*many, few)
        assert one.built.index("f") <= 4, "it does not wait for all of the others"
        first[1].cancel()


async def test_too_many_waiting_builds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_orders, "MAX_WAITING", 3)
    monkeypatch.setattr(build_orders, "MAX_WAITING_PER_SHARE", 2)
    async with scheduler() as (app, stub), node(app.address, "n1", builders=1) as one:
        await at_work(one)
        calls = [stub.ValidateRequest(asked(f"h{i}", "builds=hang", "a")) for i in range(3)]
        await eventually(lambda: len(one.built) == 1)
        await asyncio.sleep(0.2)
        full = await failure(stub.ValidateRequest(asked("x", client_id="a/2")))
        assert isinstance(full, errors.QueueFullError)
        assert full.retry_seconds == build_orders.RETRY_SECONDS
        calls.append(stub.ValidateRequest(asked("y", "builds=hang", "b")))
        await asyncio.sleep(0.2)
        assert isinstance(await failure(stub.ValidateRequest(asked("z", client_id="c"))), errors.QueueFullError)
        for call in calls:
            call.cancel()
        await eventually(lambda: bool(one.builds_cancelled))
        assert said(await stub.ValidateRequest(asked("w", client_id="a")))[0] == "COMPILED"


async def test_an_old_evaluator_is_not_asked() -> None:
    """It has builders and would ignore the order."""
    async with scheduler() as (app, stub), node(app.address, "n1", builders=1, takes_build_orders=False) as one:
        await at_work(one)
        told = await stub.ValidateRequest(asked("a"))
        assert said(told) == ("NOT_COMPILED", "NO_BUILDER")
        assert "too old" in told.compilation.detail

"""EvaluateOnce and the other unary calls over real sockets, deadlines among them."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from kerneldyno.rpc import errors
from kerneldyno.scheduler.model import Key
from kerneldyno.v1 import evaluation_pb2, fleet_service_pb2, reward_service_pb2
from kerneldyno.v1 import scheduler_service_pb2 as pb
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from kerneldyno.v1.reward_service_pb2_grpc import RewardServiceStub
from scheduler_harness import Client, Outcome, connect, eventually, request, scheduler
from scripted_node import node


def once(*args: Any, **fields: Any) -> pb.EvaluateOnceRequest:
    return pb.EvaluateOnceRequest(request=request(*args, **fields))


async def failure(call: Any) -> errors.KernelDynoError:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    error = errors.from_rpc_error(failed.value)
    assert error is not None, failed.value
    assert failed.value.code() is error.code
    return error


async def test_one_candidate_one_answer_with_or_without_an_id() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1"):
        named = (await stub.EvaluateOnce(once("a", "outcome=INCORRECT"))).result
        assert (named.id, named.outcome) == ("a", Outcome.INCORRECT)
        nameless = (await stub.EvaluateOnce(once(""))).result
        assert nameless.id
        assert nameless.outcome == Outcome.CORRECT
        found = (await stub.GetEvaluation(pb.GetEvaluationRequest(id=nameless.id))).evaluation
        assert (found.stage, found.attempts, found.result) == (evaluation_pb2.STAGE_DONE, 1, nameless)


async def test_refusals_say_which_field_and_what_to_do() -> None:
    async with scheduler(max_queued=1) as (app, stub), node(app.address, "n1", lanes=1) as fake:
        await eventually(lambda: bool(app.core.fleet.nodes))
        bad = await failure(stub.EvaluateOnce(once("a", num_correct_trials=-1, backend="fortran")))
        assert isinstance(bad, errors.InvalidRequestError)
        assert [v.field for v in bad.violations] == ["backend", "num_correct_trials"]

        selector = evaluation_pb2.DeviceSelector(kind="cuda")
        assert isinstance(await failure(stub.EvaluateOnce(once("a", device=selector))), errors.NoMatchingDeviceError)

        await stub.EvaluateOnce(once("a"))
        reused = await failure(stub.EvaluateOnce(once("a", "outcome=INCORRECT")))
        assert isinstance(reused, errors.IdReusedError)

        client = Client(stub)
        await client.send(*(request(f"r{i}", "sleep=30") for i in range(3)))  # a lane, one more, and the whole queue
        await eventually(lambda: len(app.core.waiting) == 1 and len(fake.started) == 3)
        full = await failure(stub.EvaluateOnce(once("b")))
        assert isinstance(full, errors.QueueFullError)
        assert full.retry_seconds == 1.0
        client.call.cancel()
        for i in range(3):
            await stub.CancelEvaluation(pb.CancelEvaluationRequest(id=f"r{i}", client_id="c"))


async def test_the_deadline_of_the_call_reaches_the_node() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await stub.EvaluateOnce(once("a", "sleep=60"), timeout=0.5)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: fake.cancelled == ["a"])
        found = (await stub.GetEvaluation(pb.GetEvaluationRequest(id="a"))).evaluation
        assert found.result.infrastructure_error.cause == "DEADLINE_EXCEEDED"


async def test_a_caller_that_goes_away_takes_its_evaluation_with_it() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        call = stub.EvaluateOnce(once("a", "sleep=60"))
        await eventually(lambda: fake.started == ["a"])
        other = stub.EvaluateOnce(once("a", "sleep=60"))
        evaluation = app.core.get(Key("", "a"))
        assert evaluation is not None
        await eventually(lambda: len(evaluation.watchers) == 2)
        call.cancel()
        await asyncio.sleep(0.3)
        assert fake.cancelled == [], "somebody else still waits for it"
        other.cancel()
        await eventually(lambda: fake.cancelled == ["a"])
        assert app.core.running() == 0
        found = (await stub.GetEvaluation(pb.GetEvaluationRequest(id="a"))).evaluation
        assert found.result.infrastructure_error.cause == "CANCELLED"


async def test_without_any_node_it_waits_for_one_until_the_deadline() -> None:
    async with scheduler() as (app, stub):
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await stub.EvaluateOnce(once("a"), timeout=0.3)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        call = stub.EvaluateOnce(once("b"), timeout=10)
        await asyncio.sleep(0.2)
        async with node(app.address, "n1"):
            assert (await call).result.outcome == Outcome.CORRECT


async def test_get_and_cancel() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        client = Client(stub)
        await client.send(request("a", "sleep=60"))
        await eventually(lambda: fake.started == ["a"])
        await eventually(lambda: any(a.stage for a in app.core.fleet.nodes["n1"].attempts.values()))
        running = (await stub.GetEvaluation(pb.GetEvaluationRequest(id="a", client_id="c"))).evaluation
        assert (running.stage, running.node_id) == (evaluation_pb2.STAGE_LOADING, "n1")
        assert not running.HasField("result")

        unknown = await failure(stub.CancelEvaluation(pb.CancelEvaluationRequest(id="a")))
        assert isinstance(unknown, errors.EvaluationNotFoundError), "ids belong to their client"
        await stub.CancelEvaluation(pb.CancelEvaluationRequest(id="a", client_id="c"))
        assert (await client.finish())["a"].infrastructure_error.cause == "CANCELLED"
        done = await failure(stub.CancelEvaluation(pb.CancelEvaluationRequest(id="a", client_id="c")))
        assert isinstance(done, errors.AlreadyFinishedError)
        gone = await failure(stub.GetEvaluation(pb.GetEvaluationRequest(id="b", client_id="c")))
        assert isinstance(gone, errors.EvaluationNotFoundError)


async def test_results_are_kept_up_to_the_bound() -> None:
    async with scheduler(retain_results=5) as (app, stub), node(app.address, "n1"):
        for i in range(8):
            await stub.EvaluateOnce(once(f"r{i}"))
        assert isinstance(
            await failure(stub.GetEvaluation(pb.GetEvaluationRequest(id="r2"))), errors.EvaluationNotFoundError
        )
        assert (await stub.GetEvaluation(pb.GetEvaluationRequest(id="r3"))).evaluation.result.id == "r3"


async def test_capabilities_tell_limits_and_nodes() -> None:
    async with scheduler(max_queued=123) as (app, stub), node(app.address, "n1"), node(app.address, "n2"):
        await eventually(lambda: len(app.core.fleet.nodes) == 2)
        told = await stub.GetCapabilities(pb.SchedulerServiceGetCapabilitiesRequest())
        assert (told.nodes, told.devices, list(told.backends)) == (2, 2, ["torch", "triton"])
        assert (told.limits.max_queued, told.limits.max_source_bytes) == (123, 1 << 20)
        assert told.limits.max_stage_timeout.seconds == 3600
        assert told.version


async def test_what_comes_later_says_so() -> None:
    async with scheduler() as (app, stub), connect(app) as peer:
        fleet, rewards = FleetServiceStub(peer), RewardServiceStub(peer)
        calls = {
            "history": stub.ListEvaluations(pb.ListEvaluationsRequest()),
            "SIGTERM": fleet.DrainNode(fleet_service_pb2.DrainNodeRequest()),
            "fleet operations": fleet.UndrainNode(fleet_service_pb2.UndrainNodeRequest()),
            "ListNodes": fleet.WatchCluster(fleet_service_pb2.WatchClusterRequest()).read(),
            "SchedulerService.Evaluate": rewards.StreamRewards(
                iter([reward_service_pb2.StreamRewardsRequest()])
            ).read(),
        }
        for word, call in calls.items():
            error = await failure(call)
            assert isinstance(error, errors.NotInThisReleaseError)
            assert word in error.message
            assert "later release" in error.message

"""Nodes that die, break, refuse, fall silent or do not match, over real sockets."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from kerneldyno.rpc import errors
from kerneldyno.scheduler.model import NodeState
from kerneldyno.v1 import evaluation_pb2, fleet_service_pb2
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from scheduler_harness import Client, Outcome, connect, eventually, request, scheduler
from scripted_node import node


async def test_attempts_of_a_node_that_dies_run_again_elsewhere() -> None:
    async with scheduler() as (app, stub):
        client = Client(stub)
        async with node(app.address, "doomed", lanes=4) as doomed:
            await client.send(*(request(f"r{i}", "sleep=0.5") for i in range(4)))
            await eventually(lambda: len(doomed.started) == 4)
        async with node(app.address, "saviour", lanes=4):
            results = await client.finish()
        assert {r.outcome for r in results.values()} == {Outcome.CORRECT}
        assert {(r.attempts, r.environment.node_id) for r in results.values()} == {(2, "saviour")}
        sample = app.registry.get_sample_value
        assert sample("kerneldyno_retries_total", {"cause": "NODE_LOST"}) == 4
        assert sample("kerneldyno_lease_expirations_total") == 1


async def test_a_broken_stream_is_taken_up_again_without_running_twice() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", breaks=3) as fake:
        client = Client(stub)
        await client.send(*(request(f"r{i}", "sleep=0.3") for i in range(3)))
        results = await client.finish()
        assert {(r.outcome, r.attempts) for r in results.values()} == {(Outcome.CORRECT, 1)}
        assert (fake.breaks, len(fake.started)) == (0, 3)


async def test_a_silent_node_loses_its_attempts_and_its_late_result_is_refused() -> None:
    async with scheduler() as (app, stub), node(app.address, "zombie") as zombie:
        client = Client(stub)
        await client.send(request("a", "sleep=2"))
        await eventually(lambda: zombie.started == ["a"])
        zombie.reporting = False  # it goes on judging, but the scheduler hears nothing of it
        async with node(app.address, "fresh"):
            await eventually(lambda: app.core.fleet.nodes["zombie"].state is NodeState.LOST)
            await eventually(lambda: app.registry.get_sample_value("kerneldyno_stale_completions_total") == 1)
            results = await client.finish()
        assert (results["a"].environment.node_id, results["a"].attempts) == ("fresh", 2)

        zombie.reporting = True
        again = Client(stub)
        await again.send(request("b"))
        assert (await again.finish())["b"].environment.node_id == "zombie", "it is welcome back"


async def test_failures_of_infrastructure_are_tried_elsewhere_and_at_most_three_times() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1"), node(app.address, "n2"):
        await eventually(lambda: len(app.core.fleet.nodes) == 2)
        client = Client(stub)
        await client.send(
            request("here-only", "outcome=INFRASTRUCTURE_ERROR node=n1"),
            request("final", "outcome=INFRASTRUCTURE_ERROR retryable=no"),
        )
        results = await client.finish()
        assert results["here-only"].outcome == Outcome.CORRECT
        assert results["final"].infrastructure_error.cause == "JUDGE_DIED"
        assert results["final"].attempts == 1

        hopeless = Client(stub)
        await hopeless.send(request("everywhere", "outcome=INFRASTRUCTURE_ERROR"))
        result = (await hopeless.finish())["everywhere"]
        assert (result.outcome, result.attempts) == (Outcome.INFRASTRUCTURE_ERROR, 3)


@pytest.mark.parametrize("outcome", ["INCORRECT", "COMPILE_ERROR", "RUNTIME_ERROR", "TIMEOUT", "OUT_OF_MEMORY"])
async def test_a_candidates_own_failure_is_never_tried_again(outcome: str) -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        client = Client(stub)
        await client.send(request("a", f"outcome={outcome}"))
        assert Outcome.Name((await client.finish())["a"].outcome) == outcome
        assert fake.started == ["a"]


async def test_a_full_node_is_asked_again_later_and_that_is_no_attempt() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=2) as fake:
        await eventually(lambda: bool(app.core.fleet.nodes))
        fake.lanes = 0  # it takes one at a time now, and its last report said two lanes
        fake.reporting = False
        client = Client(stub)
        await client.send(*(request(f"r{i}", "sleep=0.05") for i in range(3)))
        await eventually(lambda: len(fake.started) == 1)
        fake.lanes, fake.reporting = 2, True
        results = await client.finish()
        assert {(r.outcome, r.attempts) for r in results.values()} == {(Outcome.CORRECT, 1)}


async def test_no_more_is_sent_than_lanes_and_one_more_per_device() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=3) as fake:
        client = Client(stub)
        await client.send(*(request(f"r{i}", "sleep=0.02") for i in range(40)))
        await client.finish()
        assert fake.most_at_once == 4


async def test_selectors_are_heeded_and_what_nobody_can_run_fails_after_the_limit() -> None:
    async with scheduler(unmatched_seconds=0.5) as (app, stub), node(app.address, "n1"):
        gpu = {"model": "Fake H200", "kind": "cuda"}
        async with node(app.address, "gpu", **gpu):
            await eventually(lambda: len(app.core.fleet.nodes) == 2)
            client = Client(stub)
            await client.send(
                request("gpu", device=evaluation_pb2.DeviceSelector(model="h200")),
                request("big", device=evaluation_pb2.DeviceSelector(min_memory_bytes=1 << 40)),
            )
            results = await client.finish()
        assert results["gpu"].environment.node_id == "gpu"
        assert results["big"].infrastructure_error.cause == "NO_MATCHING_DEVICE"
        assert results["big"].infrastructure_error.retryable


async def test_a_twin_is_refused_and_a_restart_is_not() -> None:
    async with scheduler() as (app, _), node(app.address, "n1") as fake, connect(app) as peer:
        await eventually(lambda: bool(app.core.fleet.nodes))
        stub = FleetServiceStub(peer)
        twin = fake.report()
        twin.instance_id, twin.address = "other", "127.0.0.1:1"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Synchronize(twin)
        assert isinstance(errors.from_rpc_error(refused.value), errors.NodeIdInUseError)

        fake.instance_id = "after-restart"
        await eventually(lambda: app.core.fleet.nodes["n1"].report.instance_id == "after-restart")

        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Synchronize(fleet_service_pb2.SynchronizeRequest(address="nonsense"))
        error = errors.from_rpc_error(refused.value)
        assert isinstance(error, errors.InvalidRequestError)
        assert [v.field for v in error.violations] == ["node_id", "instance_id", "address", "devices"]

        listed = (await stub.ListNodes(fleet_service_pb2.ListNodesRequest())).nodes
        assert [(n.node_id, n.address, n.devices[0].lanes) for n in listed] == [("n1", fake.address, 2)]


async def test_an_unreachable_node_that_reports_does_not_hold_work_for_ever() -> None:
    async with scheduler(max_attempts=1) as (app, stub), connect(app) as peer:
        report = fleet_service_pb2.SynchronizeRequest(
            node_id="n1",
            instance_id="i",
            address="127.0.0.1:1",
            backends=["triton"],
            toolkits=["kernelbench"],
            devices=[fleet_service_pb2.Device(name="cpu:0", kind="cpu", lanes=1, ready=True)],
        )

        async def report_forever() -> None:
            while True:
                await FleetServiceStub(peer).Synchronize(report)
                await asyncio.sleep(0.2)

        reporting = asyncio.get_running_loop().create_task(report_forever())
        client = Client(stub)
        await client.send(request("a"))
        result = (await client.finish())["a"]
        reporting.cancel()
        assert result.infrastructure_error.cause == "NODE_UNREACHABLE"
        assert "127.0.0.1:1" in result.infrastructure_error.detail

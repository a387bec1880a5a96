"""Nodes that die, break, fall silent, come back, drain or do not match, over real sockets."""

from __future__ import annotations

import asyncio

from kerneldyno.rpc import errors
from kerneldyno.scheduler.core.model import NodeState
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from tests.scheduler.scheduler_harness import (
    Client,
    Outcome,
    connect,
    failure,
    once,
    request,
    sample,
    scheduler,
)
from tests.waiting import eventually


async def test_attempts_of_a_node_that_dies_run_again_elsewhere_at_once() -> None:
    async with scheduler(lease_seconds=60.0, heartbeat_seconds=20.0) as (app, stub):
        client = Client(stub)
        async with node(app.address, "doomed", lanes=4) as doomed:
            await client.send(*(request(f"r{i}", "sleep=30") for i in range(4)))
            await eventually(lambda: len(doomed.started) == 4)
            await eventually(lambda: bool(app.core.fleet.nodes["doomed"].attempts))
            async with node(app.address, "saviour", lanes=4) as saviour:
                await saviour.at_work.wait()
                loop = asyncio.get_running_loop()
                died_at = loop.time()
                doomed.die()
                await eventually(lambda: len(saviour.started) == 4)
                assert loop.time() - died_at < 5, "nobody waits for the lease: the port tells"
                assert sample(app, "retries_total", cause="NODE_LOST") == 4
                assert sample(app, "nodes_lost_total", why="found_dead") == 1
        client.call.cancel()


async def test_a_node_that_nobody_can_dial_is_lost_by_its_lease() -> None:
    async with scheduler() as (app, stub), node(app.address, "n2") as other:
        await other.at_work.wait()
        other.draining = True
        await eventually(lambda: app.core.fleet.nodes["n2"].state is NodeState.DRAINING)
        client = Client(stub)
        async with node(app.address, "hidden") as hidden:
            hidden.address = ""
            await hidden.at_work.wait()
            await eventually(lambda: app.core.fleet.nodes["hidden"].report.address == "")
            await client.send(request("a", "sleep=0.4"))
            await eventually(lambda: hidden.started == ["a"])
        await eventually(lambda: not app.core.fleet.nodes["hidden"].connected)
        other.draining = False
        assert (await client.finish())["a"].environment.node_id == "n2"
        assert sample(app, "nodes_lost_total", why="lease_expired") == 1
        assert sample(app, "nodes_lost_total", why="found_dead") == 0


async def test_a_broken_stream_is_taken_up_again_without_running_twice() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", breaks=3) as fake:
        client = Client(stub)
        await client.send(*(request(f"r{i}", "sleep=0.3") for i in range(3)))
        results = await client.finish()
        assert {(r.outcome, r.attempts) for r in results.values()} == {(Outcome.CORRECT, 1)}
        assert fake.breaks == 0
        assert fake.streams >= 4
        assert (len(fake.started), fake.duplicates) == (3, [])
        await eventually(lambda: not fake.attempts)
        assert fake.cancelled == [], "what it had finished was not thrown away"


async def test_a_silent_node_loses_its_attempts_and_its_late_result_is_refused() -> None:
    async with scheduler() as (app, stub), node(app.address, "zombie") as zombie:
        client = Client(stub)
        await client.send(request("a", "sleep=2"))
        await eventually(lambda: zombie.started == ["a"])
        zombie.silent = True  # the node goes on judging, but the scheduler hears nothing
        async with node(app.address, "fresh") as fresh:
            await eventually(lambda: app.core.fleet.nodes["zombie"].state is NodeState.LOST)
            await eventually(lambda: fresh.started == ["a"])
            await eventually(lambda: any(held.result for held in zombie.attempts.values()))
            zombie.silent = False
            await eventually(lambda: not zombie.attempts)
            assert (await client.finish())["a"].environment.node_id == "fresh"
            assert fresh.cancelled == []
        assert (await stub.EvaluateOnce(once("b"))).result.environment.node_id == "zombie", "it is welcome back"


async def test_a_node_whose_lease_ended_while_its_stream_was_open_is_told_and_comes_back() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        client = Client(stub)
        await client.send(request("a", "sleep=60"))
        await eventually(lambda: fake.started == ["a"])
        fake.reporting = False
        await eventually(lambda: fake.cancelled == ["a"])
        assert app.core.fleet.nodes["n1"].state is NodeState.LOST
        fake.reporting = True
        await eventually(lambda: fake.started == ["a", "a"], 15)
        assert fake.streams == 1
        client.call.cancel()


async def test_a_stopped_scheduler_loses_no_node_and_no_attempt() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        client = Client(stub)
        await client.send(request("a", "sleep=0.2"))
        await eventually(lambda: fake.started == ["a"])
        app.core._last_tick -= 5  # as if the process had been stopped while the leases ran out
        app.core.fleet.nodes["n1"].heard_at -= 5
        app.core.tick()
        assert app.core.fleet.nodes["n1"].state is NodeState.SERVING
        assert (await client.finish())["a"].attempts == 1


async def test_no_more_is_sent_than_lanes_and_one_more_per_device() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=3, devices=2) as fake:
        client = Client(stub)
        await client.send(*(request(f"r{i}", "sleep=0.02") for i in range(60)))
        await client.finish()
        assert fake.most_at_once == 8
        assert fake.refused == []


async def test_selectors_are_heeded_and_what_nobody_can_run_fails_after_the_limit() -> None:
    select = evaluation_pb2.DeviceSelector
    async with (
        scheduler(unmatched_seconds=0.5) as (app, stub),
        node(app.address, "plain", backends=("triton", "cuda")) as plain,
        node(
            app.address,
            "gpu",
            model="Fake H200",
            kind="cuda",
            devices=2,
            labels={"rack": "7"},
            backends=("triton", "cuda"),
        ) as gpu,
    ):
        await plain.at_work.wait()
        await gpu.at_work.wait()
        client = Client(stub)
        await client.send(
            request("model", device=select(model="h200")),
            request("kind", device=select(kind="cpu")),
            request("rack", device=select(node_labels={"rack": "7"})),
            request("pair", device=select(min_devices=2)),
            request("c++", backend="cuda"),
            request("big", device=select(min_memory_bytes=1 << 40)),
            request("other-rack", device=select(node_labels={"rack": "8"})),
            request("many", device=select(min_devices=3)),
        )
        results = await client.finish()
        where = {name: r.environment.node_id for name, r in results.items()}
        assert where == {
            **{"model": "gpu", "kind": "plain", "rack": "gpu", "pair": "gpu", "c++": "gpu"},
            **{"big": "", "other-rack": "", "many": ""},
        }
        for name in ("big", "other-rack", "many"):
            why = results[name].infrastructure_error
            assert (why.cause, why.retryable) == ("NO_MATCHING_DEVICE", True)
        for fields in ({"model": "b200"}, {"node_labels": {"rack": "8"}}, {"min_devices": 3}):
            refused = await failure(stub.EvaluateOnce(once("", device=select(**fields))))
            assert isinstance(refused, errors.NoMatchingDeviceError)


async def test_a_drained_node_finishes_what_it_runs_and_gets_nothing_more() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=1) as fake, connect(app) as peer:
        fleet = FleetServiceStub(peer)
        client = Client(stub)
        await client.send(request("runs", "sleep=0.3"), request("next", "sleep=0.1"), request("waits"))
        await eventually(lambda: fake.started == ["runs", "next"])
        shown = (await fleet.DrainNode(pb.DrainNodeRequest(node_id="n1"))).node
        assert (shown.state, shown.drained, shown.running) == (pb.NODE_STATE_DRAINING, True, 2)
        await client.until(lambda: len(client.results) == 2)
        await asyncio.sleep(0.3)
        assert fake.started == ["runs", "next"]
        assert (await fleet.Synchronize(fake.report())).desired_state == pb.NODE_STATE_DRAINING

        shown = (await fleet.UndrainNode(pb.UndrainNodeRequest(node_id="n1"))).node
        assert (shown.state, shown.drained) == (pb.NODE_STATE_SERVING, False)
        assert (await client.finish())["waits"].outcome == Outcome.CORRECT
        assert (await fleet.Synchronize(fake.report())).desired_state == pb.NODE_STATE_SERVING


async def test_a_drain_outlives_the_node_and_one_that_stops_cannot_be_undrained() -> None:
    async with scheduler() as (app, _), connect(app) as peer:
        fleet = FleetServiceStub(peer)
        async with node(app.address, "n1") as fake:
            await fake.at_work.wait()
            await fleet.DrainNode(pb.DrainNodeRequest(node_id="n1"))
            fake.draining = True
            await eventually(lambda: app.core.fleet.nodes["n1"].report.draining)
            await fleet.UndrainNode(pb.UndrainNodeRequest(node_id="n1"))
            stopping = await failure(fleet.UndrainNode(pb.UndrainNodeRequest(node_id="n1")))
            assert isinstance(stopping, errors.NodeStoppingError)
            await fleet.DrainNode(pb.DrainNodeRequest(node_id="n1"))
        await eventually(lambda: app.core.fleet.nodes["n1"].state is NodeState.LOST)
        async with node(app.address, "n1") as fake:
            await eventually(lambda: app.core.fleet.nodes["n1"].connected)
            (shown,) = (await fleet.ListNodes(pb.ListNodesRequest())).nodes
            assert (shown.drained, shown.state, shown.connected) == (True, pb.NODE_STATE_DRAINING, True)
        for call in (fleet.DrainNode(pb.DrainNodeRequest(node_id="x")), fleet.UndrainNode(pb.UndrainNodeRequest())):
            assert isinstance(await failure(call), errors.NodeNotFoundError)


async def test_a_twin_is_refused_and_a_restart_is_not() -> None:
    async with scheduler() as (app, _), node(app.address, "n1") as fake, connect(app) as peer:
        await fake.at_work.wait()
        stub = FleetServiceStub(peer)
        twin = fake.report()
        twin.instance_id, twin.address = "other", "127.0.0.1:1"
        assert isinstance(await failure(stub.Synchronize(twin)), errors.NodeIdInUseError)

        fake.instance_id = "after-restart"
        await eventually(lambda: app.core.fleet.nodes["n1"].report.instance_id == "after-restart")
        listed = (await stub.ListNodes(pb.ListNodesRequest())).nodes
        assert [(n.node_id, n.address, n.devices[0].lanes) for n in listed] == [("n1", fake.address, 2)]


async def test_a_report_that_makes_no_sense_is_refused_by_field() -> None:
    async with scheduler() as (app, _), connect(app) as peer:
        stub = FleetServiceStub(peer)
        bad = pb.SynchronizeRequest(address="nonsense", labels={str(i): "" for i in range(17)})
        error = await failure(stub.Synchronize(bad))
        assert isinstance(error, errors.InvalidRequestError)
        assert [v.field for v in error.violations] == ["node_id", "instance_id", "address", "devices", "labels"]
        for address in ("host:", ":1", "host:0", "host:65536", "host:²", "host:" + "1" * 5000):
            report = pb.SynchronizeRequest(node_id="n", instance_id="i", address=address, devices=[pb.Device()])
            error = await failure(stub.Synchronize(report))
            assert isinstance(error, errors.InvalidRequestError), address
            assert [v.field for v in error.violations] == ["address"]

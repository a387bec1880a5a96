"""The Evaluate stream over real sockets: batches, back-pressure, order, re-attachment, cancellation, bad input."""

from __future__ import annotations

import asyncio
import gc

import grpc
import pytest

from kerneldyno.rpc import errors
from kerneldyno.scheduler.app import RunningScheduler
from kerneldyno.scheduler.core.model import Evaluation, Key
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1.scheduler_service_pb2 import SchedulerServiceGetCapabilitiesRequest
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.scheduler.scheduler_harness import Client, Outcome, connect, request, sample, scheduler
from tests.waiting import eventually


async def test_a_batch_is_accepted_in_order_and_every_result_comes_complete() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1"):
        client = Client(stub)
        await client.send(request("a", labels={"k": "v"}), request("b", "outcome=INCORRECT"), request("c", "sleep=0.1"))
        results = await client.finish()
        assert client.accepted == ["a", "b", "c"]
        assert {key: Outcome.Name(r.outcome) for key, r in results.items()} == {
            "a": "CORRECT",
            "b": "INCORRECT",
            "c": "CORRECT",
        }
        a = results["a"]
        assert (dict(a.labels), a.attempts, a.cached, a.correct) == ({"k": "v"}, 1, False, True)
        assert all(a.HasField(name) for name in ("speedup", "compiled", "accept_time", "finish_time"))
        assert a.stages[0].stage == evaluation_pb2.STAGE_QUEUED
        assert await client.call.code() is grpc.StatusCode.OK


async def test_a_thousand_requests_of_four_clients_pass_a_small_queue_and_none_is_lost() -> None:
    async with scheduler(max_queued=50) as (app, _), node(app.address, "n1", lanes=4), node(app.address, "n2", lanes=4):
        deepest = 0

        async def watch_depth() -> None:
            nonlocal deepest
            while True:
                deepest = max(deepest, app.core.evaluations.waiting())
                await asyncio.sleep(0.001)

        async def one_client(name: str) -> None:
            async with connect(app) as peer:
                client = Client(SchedulerServiceStub(peer), name)
                for start in range(0, 250, 125):
                    await client.send(*(request(f"r{i}") for i in range(start, start + 125)))
                results = await client.finish(60)
                assert set(results) == {f"r{i}" for i in range(250)}
                assert all(r.outcome == Outcome.CORRECT for r in results.values())

        watching = asyncio.get_running_loop().create_task(watch_depth())
        await asyncio.gather(*(one_client(f"client{i}") for i in range(4)))
        watching.cancel()
        assert 40 <= deepest <= 50
        assert sample(app, "outcomes_total", outcome="CORRECT") == 1000


async def test_high_priority_overtakes_and_low_goes_last() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=1) as fake:
        client = Client(stub)
        await client.send(request("first", "sleep=0.4"), request("second", "sleep=0.1"))
        await eventually(lambda: len(fake.started) == 2)  # one in the lane, and one that waits at the node
        await client.send(
            request("low", priority=evaluation_pb2.PRIORITY_LOW),
            request("normal"),
            request("high", priority=evaluation_pb2.PRIORITY_HIGH),
        )
        await client.finish()
        assert set(fake.started[:2]) == {"first", "second"}
        assert fake.started[2:] == ["high", "normal", "low"]


async def test_a_client_that_comes_back_attaches_and_loses_nothing() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1"):
        client = Client(stub)
        await client.send(request("fast"), request("slow", "sleep=0.5"))
        await client.until(lambda: len(client.accepted) == 2)
        client.call.cancel()

        again = Client(stub)
        await again.send(attach=("fast", "slow", "never"))
        results = await again.finish()
        assert set(results) == {"fast", "slow"}
        assert again.unknown == ["never"]
        assert results["slow"].attempts == 1, "the work went on while nobody was connected"

        other = Client(stub, "someone-else")
        await other.send(attach=("fast",))
        await other.finish()
        assert other.unknown == ["fast"], "ids belong to their client"


async def test_the_same_id_is_the_same_work_only_with_the_same_body() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        client = Client(stub)
        await client.send(request("a", "sleep=0.2"), request("a", "sleep=0.2", entry_point="Model", labels={"x": "y"}))
        assert set(await client.finish()) == {"a"}
        assert fake.started == ["a"]

        again = Client(stub)
        await again.send(request("a", "sleep=0.2"))
        assert (await again.finish())["a"].outcome == Outcome.CORRECT
        assert fake.started == ["a"], "answered from what is known"

        changed = Client(stub)
        await changed.send(request("a", "outcome=INCORRECT"))
        result = (await changed.finish())["a"]
        assert result.outcome == Outcome.INVALID
        assert [v.field for v in result.invalid.violations] == ["id"]


async def test_bad_requests_are_answered_one_by_one_and_do_not_end_the_stream() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1"):
        await eventually(lambda: bool(app.core.fleet.nodes))
        client = Client(stub)
        await client.send(
            evaluation_pb2.EvalRequest(id="no-code", reference_code="ref"),
            request("big", kernel_code="x" * 1_048_577),
            request("backend", backend="fortran"),
            request("nan", tolerance=evaluation_pb2.Tolerance(atol=float("nan"))),
            request("good"),
        )
        results = await client.finish()
        fields = {key: [v.field for v in r.invalid.violations] for key, r in results.items()}
        assert fields == {
            "no-code": ["kernel_code"],
            "big": ["kernel_code"],
            "backend": ["backend"],
            "nan": ["tolerance.atol"],
            "good": [],
        }
        assert "1048577" in results["big"].invalid.violations[0].description
        assert "torch, triton" in results["backend"].invalid.violations[0].description
        assert results["good"].outcome == Outcome.CORRECT
        assert client.accepted == ["good"]
        assert all(r.HasField("correct") for r in results.values())


async def test_a_stream_without_a_client_id_or_with_two_is_refused() -> None:
    async with scheduler() as (_, stub):
        nameless = Client(stub, "")
        await nameless.send(request("a"))
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await nameless.finish()
        assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT

        client = Client(stub, "one")
        await client.send()
        client.client_id = "two"
        await client.send()
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await client.finish()
        error = errors.from_rpc_error(failed.value)
        assert isinstance(error, errors.InvalidRequestError)
        assert [v.field for v in error.violations] == ["client_id"]


async def test_cancelling_reaches_the_node_and_leaves_the_rest_alone() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=1) as fake:
        client = Client(stub)
        await client.send(request("running", "sleep=60"), request("next", "sleep=0.1"), request("queued"))
        await eventually(lambda: len(fake.started) == 2)
        await client.send(cancel=("running", "queued", "unheard-of"))
        results = await client.finish()
        assert results["running"].infrastructure_error.cause == "CANCELLED"
        assert results["queued"].infrastructure_error.cause == "CANCELLED"
        assert (results["running"].attempts, results["queued"].attempts) == (1, 0)
        assert results["next"].outcome == Outcome.CORRECT
        await eventually(lambda: fake.cancelled == ["running"])


async def test_a_cancellation_may_overtake_the_start_of_its_attempt() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=8) as fake:
        await eventually(lambda: bool(app.core.fleet.nodes))
        client = Client(stub)
        ids = [f"r{i}" for i in range(40)]
        await client.send(*(request(one, "sleep=0.5") for one in ids))
        while len(app.core.queue) or len(app.core.attempts) or not app.core.requests.get(Key("c", "r39")):
            for attempt in list(app.core.fleet.nodes["n1"].attempts.values()):
                app.core.requests.cancel(
                    next(iter(attempt.job.evaluations.values()))
                )  # in the first turn of the loop after the placement
            await asyncio.sleep(0)
        results = await client.finish()
        assert {r.infrastructure_error.cause for r in results.values()} == {"CANCELLED"}
        await eventually(lambda: len(fake.cancelled) == len(fake.started))
        again = Client(stub)
        await again.send(request("still-alive"))
        assert (await again.finish())["still-alive"].outcome == Outcome.CORRECT


async def test_two_clients_take_turns_however_much_one_of_them_sent() -> None:
    async with scheduler() as (app, stub):
        greedy, modest = Client(stub, "greedy"), Client(stub, "modest")
        await greedy.send(*(request(f"g{i}") for i in range(60)))
        await greedy.until(lambda: len(greedy.accepted) == 60)
        await modest.send(*(request(f"m{i}") for i in range(10)))
        await modest.until(lambda: len(modest.accepted) == 10)
        async with node(app.address, "n1", lanes=1) as fake:
            await asyncio.gather(greedy.finish(), modest.finish())
        assert len(fake.started) == 70
        assert sum(name.startswith("m") for name in fake.started[:24]) == 10


async def test_a_client_over_its_quota_waits_and_others_go_on() -> None:
    async with scheduler(max_queued_per_client=10) as (app, stub):
        much, little = Client(stub, "much"), Client(stub, "little")
        await much.send(*(request(f"r{i}") for i in range(50)))
        await much.until(lambda: len(much.accepted) == 10)
        await little.send(request("a"))
        await little.until(lambda: little.accepted == ["a"])
        await asyncio.sleep(0.3)
        assert app.core.clients.count == 11
        async with node(app.address, "n1", lanes=4):
            assert len(await much.finish()) == 50
            assert len(await little.finish()) == 1


async def test_a_call_that_is_cancelled_while_it_waits_leaves_the_line() -> None:
    async with scheduler(max_queued=1) as (app, stub):
        clients = first, second, gone = [Client(stub, name) for name in ("first", "second", "gone")]

        def waiting(count: int) -> bool:
            return app.registry.get_sample_value("kerneldyno_waiting_calls") == count

        for ahead, client in enumerate(clients):
            await client.send(request("a", work=str(ahead)))
            await eventually(lambda ahead=ahead: app.core.clients.count == 1 and waiting(ahead))
        gone.call.cancel()
        await eventually(lambda: waiting(1))
        async with node(app.address, "n1"):
            assert [len(await client.finish()) for client in (first, second)] == [1, 1]


async def test_work_of_a_client_that_never_comes_back_is_cancelled_after_the_grace() -> None:
    async with scheduler(client_grace_seconds=0.6) as (app, stub), node(app.address, "n1", lanes=1) as fake:
        gone, here = Client(stub, "gone"), Client(stub, "here")
        await gone.send(request("a", "sleep=60"))
        await eventually(lambda: fake.started == ["a"])
        await here.send(request("b", "sleep=60"))
        await here.until(lambda: here.accepted == ["b"])
        gone.call.cancel()
        await eventually(lambda: fake.cancelled == ["a"])
        await asyncio.sleep(0.5)
        assert app.core.clients.count == 1
        again = Client(stub, "gone")
        await again.send(attach=("a",))
        assert (await again.finish())["a"].infrastructure_error.cause == "CLIENT_GONE"
        await here.send(cancel=("b",))
        await here.finish()


async def test_finished_results_are_brought_back_no_faster_than_they_are_read() -> None:
    limits = {"max_unsent": 4, "max_unsent_bytes": 1 << 20}
    async with scheduler(**limits) as (app, stub), node(app.address, "n1", lanes=8), connect(app) as peer:
        client = Client(stub)
        await client.send(*(request(f"r{i}", "size=200000") for i in range(120)))
        await client.finish()
        again = Client(SchedulerServiceStub(peer))
        await again.send(attach=tuple(f"r{i}" for i in range(120)))
        await asyncio.sleep(1)
        gc.collect()
        in_memory = sum(type(one) is Evaluation for one in gc.get_objects())
        assert in_memory < 20
        assert await again.finish() == client.results


async def test_a_message_of_many_unknown_ids_leaves_others_their_turn() -> None:
    async with scheduler() as (app, stub), connect(app) as peer:
        client = Client(stub)
        count = 30_000
        unknown = tuple(f"u{i}" for i in range(count))
        await client.send(cancel=unknown, attach=unknown)
        other = SchedulerServiceStub(peer)
        turns = 0
        reading = asyncio.get_running_loop().create_task(client.until(lambda: len(client.unknown) == count, 60))
        while not reading.done():
            await other.GetCapabilities(SchedulerServiceGetCapabilitiesRequest())
            turns += 1
        await reading
        assert turns > 5


async def test_a_client_that_does_not_read_is_read_no_further_and_others_go_on() -> None:
    limits = {"max_queued": 20, "max_unsent": 20, "max_unsent_bytes": 1 << 20, "retain_results": 1_000}
    async with scheduler(**limits) as (app, stub), node(app.address, "n1", lanes=8), connect(app) as peer:
        silent = Client(SchedulerServiceStub(peer), "silent")
        writes = asyncio.get_running_loop().create_task(_flood(silent, 400))
        await eventually(lambda: len(app.core.attempts) == 0 and len(app.core.queue) == 0 and _done(app) > 20)
        await asyncio.sleep(0.5)
        before = _done(app)
        await asyncio.sleep(0.5)
        assert _done(app) == before < 400, "it goes on only when the client reads"

        client = Client(stub, "other")
        await client.send(*(request(f"o{i}") for i in range(60)))
        assert len(await client.finish()) == 60, "another client is not held up"

        await silent.until(lambda: len(silent.results) == 400, 60)
        await writes
        assert set(silent.results) == {f"s{i}" for i in range(400)}, "results owed to a stream are never dropped"


async def _flood(client: Client, count: int) -> None:
    for start in range(0, count, 10):
        await client.send(*(request(f"s{i}", "size=65536") for i in range(start, start + 10)))


def _done(app: RunningScheduler) -> float:
    return sample(app, "outcomes_total", outcome="CORRECT") or 0.0

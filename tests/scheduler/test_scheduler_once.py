"""Tests of EvaluateOnce and the other unary calls over real sockets, with deadlines."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from kerneldyno.rpc import errors
from kerneldyno.scheduler.core.model import Key
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1 import scheduler_service_pb2 as pb
from tests.scheduler.scheduler_harness import Client, Outcome, failure, once, request, scheduler
from tests.waiting import eventually


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
    async with (
        scheduler(max_queued=1, settle_seconds=0.0) as (app, stub),
        node(app.address, "n1", lanes=1, backends=("triton", "cuda", "torch")) as fake,
    ):
        await eventually(lambda: bool(app.core.fleet.nodes))
        bad = await failure(stub.EvaluateOnce(once("a", num_correct_trials=-1, backend="fortran")))
        assert isinstance(bad, errors.InvalidRequestError)
        assert [v.field for v in bad.violations] == ["backend", "num_correct_trials"]

        selector = evaluation_pb2.DeviceSelector(kind="cuda")
        assert isinstance(await failure(stub.EvaluateOnce(once("a", device=selector))), errors.NoMatchingDeviceError)
        # Only a GPU has counters; without this refusal, the fields would be ignored on a CPU.
        for needs_gpu in (
            {"profile_level": evaluation_pb2.PROFILE_LEVEL_COUNTERS},
            {"profile_level": evaluation_pb2.PROFILE_LEVEL_KERNELS},
            {"sanitize": evaluation_pb2.SANITIZE_WINNERS},
        ):
            refused = await failure(stub.EvaluateOnce(once("a", **needs_gpu)))
            assert isinstance(refused, errors.InvalidRequestError)
            assert [v.field for v in refused.violations] == list(needs_gpu)
        # A CPU does not run CUDA C++. Without this refusal, plain PyTorch would pass there under backend cuda.
        assert isinstance(await failure(stub.EvaluateOnce(once("a", backend="cuda"))), errors.NoMatchingDeviceError)

        await stub.EvaluateOnce(once("a"))
        reused = await failure(stub.EvaluateOnce(once("a", "outcome=INCORRECT")))
        assert isinstance(reused, errors.IdReusedError)

        client = Client(stub)
        await client.send(*(request(f"r{i}", "sleep=30") for i in range(3)))  # for a lane, one more, and the queue
        await eventually(lambda: len(app.core.queue) == 1 and len(fake.started) == 3)
        full = await failure(stub.EvaluateOnce(once("b")))
        assert isinstance(full, errors.QueueFullError)
        assert full.retry_seconds == 1.0
        client.call.cancel()
        for i in range(3):
            await stub.CancelEvaluation(pb.CancelEvaluationRequest(id=f"r{i}", client_id="c"))


async def test_what_needs_a_gpu_goes_to_a_node_with_one() -> None:
    async with (
        scheduler() as (app, stub),
        node(app.address, "cpu") as cpu,
        node(app.address, "gpu", profiling=True, kind="cuda") as gpu,
    ):
        await eventually(lambda: len(app.core.fleet.nodes) == 2)
        asked: list[dict[str, Any]] = [
            {"profile_level": evaluation_pb2.PROFILE_LEVEL_KERNELS},
            {"profile_level": evaluation_pb2.PROFILE_LEVEL_COUNTERS},
            {"sanitize": evaluation_pb2.SANITIZE_ALL},
        ]
        for number, fields in enumerate(asked):
            result = (await stub.EvaluateOnce(once(str(number), "coverage=0.5", **fields))).result
            assert result.outcome == Outcome.CORRECT
            assert result.HasField("profile") == ("profile_level" in fields)
        assert (len(gpu.started), cpu.started) == (len(asked), [])


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
        evaluation = app.core.requests.get(Key("", "a"))
        assert evaluation is not None
        await eventually(lambda: len(evaluation.watchers) == 2)
        call.cancel()
        await asyncio.sleep(0.3)
        assert fake.cancelled == [], "somebody else still waits for it"
        other.cancel()
        await eventually(lambda: fake.cancelled == ["a"])
        assert len(app.core.attempts) == 0
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

        forgotten = [Key("", f"r{i}") for i in range(3)]
        await eventually(lambda: not any(app.core.requests.get(key) for key in forgotten))
        gone = await failure(stub.GetEvaluation(pb.GetEvaluationRequest(id="r2")))
        assert isinstance(gone, errors.EvaluationNotFoundError)
        for i in range(3, 8):
            assert (await stub.GetEvaluation(pb.GetEvaluationRequest(id=f"r{i}"))).evaluation.result.id == f"r{i}"
        again = (await stub.EvaluateOnce(once("again", work="r2"))).result
        assert not again.cached, "what was forgotten is no answer either"


async def test_get_tells_of_every_state() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=1) as fake:
        await fake.at_work.wait()
        client = Client(stub)
        long = [request(name, "sleep=60", labels={"k": name}) for name in ("runs", "next")]
        await client.send(request("done", "outcome=INCORRECT"))
        await client.until(lambda: "done" in client.results)
        await client.send(*long, request("waits"))
        await client.until(lambda: len(client.accepted) == 4)
        await eventually(lambda: len(fake.started) == 3)
        await eventually(lambda: len({a.stage for a in app.core.fleet.nodes["n1"].attempts.values()}) == 2)

        async def shown(name: str) -> pb.Evaluation:
            answer = await stub.GetEvaluation(pb.GetEvaluationRequest(id=name, client_id="c"))
            evaluation: pb.Evaluation = answer.evaluation
            return evaluation

        runs, queued, waits, done = [await shown(name) for name in ("runs", "next", "waits", "done")]
        assert (runs.stage, runs.node_id, runs.attempts) == (evaluation_pb2.STAGE_LOADING, "n1", 1)
        assert (queued.stage, queued.node_id, queued.attempts) == (evaluation_pb2.STAGE_QUEUED, "n1", 1)
        assert (waits.stage, waits.node_id, waits.attempts) == (evaluation_pb2.STAGE_QUEUED, "", 0)
        assert (done.stage, done.node_id, done.attempts) == (evaluation_pb2.STAGE_DONE, "", 1)
        assert done.result == client.results["done"]
        assert not any(one.HasField("result") for one in (runs, queued, waits))
        assert dict(runs.labels) == {"k": "runs"}
        assert len({one.digest for one in (runs, queued, waits, done)}) == 4
        assert all(len(one.digest) == 64 and one.client_id == "c" for one in (runs, queued, waits, done))
        await stub.CancelEvaluations(pb.CancelEvaluationsRequest(client_id="c", all=True))
        assert (await shown("waits")).result.infrastructure_error.cause == "CANCELLED"
        client.call.cancel()


async def test_many_are_cancelled_by_id_or_all() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=2) as fake:
        clients = {name: Client(stub, name) for name in ("mine", "theirs")}
        for client in clients.values():
            await client.send(*(request(f"r{i}", "sleep=60") for i in range(5)), request("done", work="done"))
        await eventually(lambda: len(fake.started) >= 2 and app.core.clients.count >= 10)
        cancel = pb.CancelEvaluationsRequest
        some = await stub.CancelEvaluations(cancel(client_id="mine", ids=["r0", "r1", "r0", "unknown"]))
        assert some.cancelled == 2
        assert (await stub.CancelEvaluations(cancel(client_id="mine", ids=["r0", "r2"]))).cancelled == 1
        rest = await stub.CancelEvaluations(cancel(client_id="mine", all=True))
        assert rest.cancelled in (2, 3), "`done` may be done"
        assert (await stub.CancelEvaluations(cancel(client_id="mine", all=True))).cancelled == 0
        assert (await stub.CancelEvaluations(cancel(client_id="nobody", all=True))).cancelled == 0
        results = await clients["mine"].finish()
        assert {results[f"r{i}"].infrastructure_error.cause for i in range(5)} == {"CANCELLED"}
        assert clients["theirs"].results == {}, "others' work of the same name goes on"
        for bad in (
            cancel(client_id="mine"),
            cancel(client_id="mine", ids=["a"], all=True),
            cancel(ids=["a"] * 10_001),
        ):
            error = await failure(stub.CancelEvaluations(bad))
            assert isinstance(error, errors.InvalidRequestError)
            assert [v.field for v in error.violations] == ["ids"]
        assert (await stub.CancelEvaluations(cancel(client_id="theirs", all=True))).cancelled >= 5
        assert len(await clients["theirs"].finish()) == 6
        await eventually(lambda: not len(app.core.attempts))


async def test_a_total_timeout_ends_what_waits_and_what_runs() -> None:
    limit = {"seconds": 1}
    async with scheduler() as (app, stub):
        waits = (await stub.EvaluateOnce(once("waits", total_timeout=limit))).result
        assert (waits.infrastructure_error.cause, waits.attempts) == ("DEADLINE_EXCEEDED", 0)
        async with node(app.address, "n1") as fake:
            runs = (await stub.EvaluateOnce(once("runs", "sleep=60", total_timeout=limit))).result
            assert (runs.infrastructure_error.cause, runs.attempts) == ("DEADLINE_EXCEEDED", 1)
            await eventually(lambda: fake.cancelled == ["runs"])
            for seconds in (0, -1, 604_801):
                bad = await failure(stub.EvaluateOnce(once("bad", total_timeout={"seconds": seconds})))
                assert isinstance(bad, errors.InvalidRequestError)
                assert [v.field for v in bad.violations] == ["total_timeout"]


async def test_the_quota_of_a_client_is_refused_with_a_time_and_is_nobody_elses() -> None:
    async with scheduler(max_queued_per_client=2) as (app, stub):
        mine = [stub.EvaluateOnce(once(f"r{i}", client_id=f"me/{i}")) for i in range(2)]
        await eventually(lambda: app.core.clients.count == 2)
        full = await failure(stub.EvaluateOnce(once("r2", client_id="me/3")))
        assert isinstance(full, errors.QueueFullError)
        assert full.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert full.retry_seconds == 1.0
        theirs = stub.EvaluateOnce(once("r2", client_id="them"))
        await eventually(lambda: app.core.clients.count == 3)
        async with node(app.address, "n1"):
            for call in (*mine, theirs):
                assert (await call).result.outcome == Outcome.CORRECT
            assert (await stub.EvaluateOnce(once("r2", client_id="me/3"))).result.outcome == Outcome.CORRECT


async def test_a_request_can_be_validated_without_being_accepted() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as one:
        await one.at_work.wait()
        asked = request("", "")
        told = await stub.ValidateRequest(pb.ValidateRequestRequest(request=asked))
        assert (list(told.violations), told.runnable, len(told.digest)) == ([], True, 64)
        assert (told.effective.backend, told.effective.num_correct_trials) == (asked.backend or "triton", 5)
        asked.device.model = "none of these"
        assert not (await stub.ValidateRequest(pb.ValidateRequestRequest(request=asked))).runnable
        asked.num_warmup, asked.backend = 101, "unheard-of"
        told = await stub.ValidateRequest(pb.ValidateRequestRequest(request=asked))
        assert [each.field for each in told.violations] == ["backend", "num_warmup"]
        assert (told.HasField("effective"), told.digest, told.runnable) == (False, "", False)
        assert not (await stub.ListEvaluations(pb.ListEvaluationsRequest())).evaluations


async def test_capabilities_tell_limits_and_nodes() -> None:
    limits = {"max_queued": 123, "max_queued_per_client": 45}
    async with (
        scheduler(**limits) as (app, stub),
        node(app.address, "n1") as one,
        node(app.address, "n2", kind="cuda", devices=3, backends=("cuda",)) as two,
    ):
        await one.at_work.wait()
        await two.at_work.wait()
        client = Client(stub)
        await client.send(*(request(f"r{i}", "sleep=60", backend="cuda") for i in range(11)))
        await eventually(lambda: len(two.started) == 9)
        told = await stub.GetCapabilities(pb.SchedulerServiceGetCapabilitiesRequest())
        assert (told.nodes, told.devices, list(told.backends)) == (2, 4, ["cuda", "torch", "triton"])
        assert list(told.toolkits) == ["kernel_simple", "kernelbench"]
        assert (told.running, told.queued, told.store) == (9, 2, "memory")
        assert (told.limits.max_queued, told.limits.max_queued_per_client) == (123, 45)
        assert told.limits.max_source_bytes == 1 << 20
        assert told.limits.max_stage_timeout.seconds == 3600
        assert told.version
        await stub.CancelEvaluations(pb.CancelEvaluationsRequest(client_id="c", all=True))
        client.call.cancel()

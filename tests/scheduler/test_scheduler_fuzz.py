"""Mutated messages: each gets an answer with an expected status, and the scheduler works afterwards."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from kerneldyno.testing.scripted_node import node
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb
from kerneldyno.v1 import scheduler_service_pb2 as pb
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.scheduler.scheduler_harness import Client, Outcome, connect, once, request, sample, scheduler
from tests.waiting import eventually

ROUNDS = 500
#: The statuses with which a call may end, whatever was sent.
ANSWERS = {
    *(grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ALREADY_EXISTS),
    *(grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED),
    grpc.StatusCode.DEADLINE_EXCEEDED,
}
TEXTS = (
    *(
        "",
        " ",
        "\0",
        "\n",
        "a\u0000b",
        "x" * 101,
        "x" * 5_000,
        "é",
        "\U0001f600" * 50,
        "\ufeff",
        "\u202e",
        "../../etc/passwd",
    ),
    *(
        "'; DROP TABLE evaluations; --",
        "%s%n",
        "{}",
        "[]",
        "null",
        "nan",
        "host:²",
        "host:99999",
        "[::1]:80",
        ":",
        "fuzz",
    ),
)
INTEGERS = (0, 1, -1, 2, 127, 1 << 31, -(1 << 31), (1 << 31) - 1, (1 << 63) - 1, -(1 << 63), 1_000_000_000)
DOUBLES = (0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, -1.0)


class Mutator:
    """A mutator of messages. The same seed gives the same changes."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def mutate(self, message: Message, depth: int = 0) -> None:
        """Change a few fields of `message`."""
        fields: list[FieldDescriptor] = list(message.DESCRIPTOR.fields)
        for field in self.dice.sample(fields, min(len(fields), self.dice.randint(1, 3))):
            if self.dice.random() < 0.15:
                message.ClearField(field.name)
            elif field.message_type is not None and field.message_type.GetOptions().map_entry:
                values = getattr(message, field.name)
                for _ in range(self.dice.choice([1, 1, 20])):
                    values[self.dice.choice(TEXTS) + str(len(values))] = self.dice.choice(TEXTS)
            elif hasattr(getattr(message, field.name), "extend"):
                for _ in range(self.dice.choice([1, 1, 2, 40])):
                    self._add(message, field, depth)
            elif field.message_type is not None:
                if depth < 4:
                    inner = getattr(message, field.name)
                    inner.SetInParent()
                    self.mutate(inner, depth + 1)
            else:
                setattr(message, field.name, self._value(field))

    def _add(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        values = getattr(message, field.name)
        if field.message_type is None:
            values.append(self._value(field))
        elif depth < 4:
            self.mutate(values.add(), depth + 1)

    def _value(self, field: FieldDescriptor) -> Any:
        kind = field.cpp_type
        if kind == FieldDescriptor.CPPTYPE_STRING:
            return self.dice.choice(TEXTS)
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return self.dice.random() < 0.5
        if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return self.dice.choice(DOUBLES)
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            return self.dice.choice([0, 1, 2, 3, 10, 77, -1, (1 << 31) - 1, -(1 << 31)])
        value = self.dice.choice(INTEGERS)
        narrow = kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32)
        return max(-(1 << 31), min((1 << 31) - 1, value)) if narrow else value


def good_request(name: str) -> evaluation_pb2.EvalRequest:
    """Return a valid request with many fields set, to start from."""
    full = request(name, num_correct_trials=1, num_warmup=1, labels={"k": "v"}, salt=name)
    full.timeouts.load_timeout.seconds = 1
    full.total_timeout.seconds = 2
    full.device.node_labels["a"] = "b"
    full.device.ClearField("node_labels")
    full.tolerance.preset = evaluation_pb2.Tolerance.PRESET_ALLCLOSE
    return full


def good_event(token: str) -> evaluation_pb2.AttemptEvent:
    """Return a valid event with a result that has many fields set."""
    event = evaluation_pb2.AttemptEvent(attempt_token=token, stage=evaluation_pb2.STAGE_DONE, device="cpu:0")
    event.result.outcome = Outcome.CORRECT
    event.result.environment.torch_version = "fuzz"
    event.result.stages.add(stage=evaluation_pb2.STAGE_LOADING)
    return event


async def code_of(call: Any) -> grpc.StatusCode:
    """Return the status with which a call ended."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def drained(call: Any) -> grpc.StatusCode:
    """Read a stream to its end; return its status. If the client was still writing, its own gRPC says INTERNAL."""
    try:
        async with asyncio.timeout(20):
            while await call.read() is not grpc.aio.EOF:
                pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return await call.code()  # type: ignore[no-any-return]


def handled(app: Any, method: str) -> set[grpc.StatusCode]:
    """Return the statuses with which the server ended calls of methods whose names start with `method`."""
    return {
        grpc.StatusCode[metric.labels["grpc_code"]]
        for family in app.registry.collect()
        if family.name == "grpc_server_handled"
        for metric in family.samples
        if metric.name.endswith("_total") and metric.labels["grpc_method"].startswith(method) and metric.value
    }


async def works(app: Any, stub: Any) -> None:
    """Check that the scheduler still works."""
    async with node(app.address, "sane") as sane:
        await sane.at_work.wait()
        select = evaluation_pb2.DeviceSelector(model="Fake CPU")
        assert (await stub.EvaluateOnce(once("sane", device=select, skip_cache=True))).result.outcome == Outcome.CORRECT
        listed = await stub.ListEvaluations(pb.ListEvaluationsRequest(page_size=1000, full_results=True))
        assert listed.evaluations
        await stub.GetCapabilities(pb.SchedulerServiceGetCapabilitiesRequest())
    assert not handled(app, "") & {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}


async def test_single_requests() -> None:
    async with scheduler(unmatched_seconds=0.2) as (app, stub), node(app.address, "n1", lanes=8) as fake:
        await fake.at_work.wait()
        mutator = Mutator(1)

        async def one(number: int) -> grpc.StatusCode:
            message = pb.EvaluateOnceRequest(request=good_request(f"r{number}"), client_id=f"c{number % 7}")
            mutator.mutate(message if mutator.dice.random() < 0.2 else message.request)
            await stub.ValidateRequest(pb.ValidateRequestRequest(request=message.request), timeout=5)
            return await code_of(stub.EvaluateOnce(message, timeout=5))

        codes = [code for start in range(0, ROUNDS, 25) for code in await gather(one, range(start, start + 25))]
        assert set(codes) <= ANSWERS
        assert {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT} <= set(codes)
        await works(app, stub)


async def gather(call: Any, numbers: range) -> list[grpc.StatusCode]:
    """Make a call for each number, all at once; return the results."""
    return list(await asyncio.gather(*(call(number) for number in numbers)))


async def test_streams_of_requests() -> None:
    async with scheduler(unmatched_seconds=0.2) as (app, stub), node(app.address, "n1", lanes=8) as fake:
        await fake.at_work.wait()
        mutator = Mutator(2)
        for number in range(ROUNDS // 10):
            call = stub.Evaluate()
            try:
                for step in range(10):
                    requests = [good_request(f"r{number}-{step}")]
                    message = pb.EvaluateRequest(client_id="fuzz", requests=requests)
                    mutator.mutate(message if mutator.dice.random() < 0.3 else message.requests[0])
                    await call.write(message)
                await call.done_writing()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass  # the stream ended before all was sent
            await drained(call)
        codes = handled(app, "Evaluate")
        assert codes <= ANSWERS
        assert {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT} <= codes
        await works(app, stub)


async def test_reports_of_nodes() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake, connect(app) as peer:
        await fake.at_work.wait()
        mutator, fleet = Mutator(3), FleetServiceStub(peer)
        codes = set()
        for number in range(ROUNDS):
            report = fake.report()
            report.node_id, report.instance_id, report.address = f"f{number % 20}", f"i{number % 3}", ""
            mutator.mutate(report)
            codes.add(await code_of(fleet.Synchronize(report)))
            if number % 50 == 0:
                await code_of(stub.EvaluateOnce(once(f"a{number}"), timeout=0.2))
                await fleet.ListNodes(fleet_pb.ListNodesRequest())
        assert codes <= ANSWERS
        assert {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT} <= codes
        await eventually(lambda: len(app.core.fleet.live()) == 1)
        await works(app, stub)


async def test_streams_of_nodes() -> None:
    async with scheduler(lease_seconds=30.0, max_attempts=2) as (app, stub), connect(app) as peer:
        mutator, fleet = Mutator(4), FleetServiceStub(peer)
        report = fleet_pb.SynchronizeRequest(
            node_id="fuzz",
            instance_id="i",
            backends=["triton"],
            toolkits=["kernelbench"],
            devices=[fleet_pb.Device(name="cpu:0", kind="cpu", lanes=8, ready=True)],
        )
        client = Client(stub)
        await client.send(*(good_request(f"r{i}") for i in range(30)))
        for _ in range(ROUNDS // 10):
            await fleet.Synchronize(report)
            if (here := app.core.fleet.nodes.get("fuzz")) is not None:
                app.core.nodes.release(here)
            call = fleet.Work()
            try:
                await call.write(fleet_pb.WorkRequest(node_id="fuzz", instance_id="i"))
                for _ in range(10):
                    tokens = list(app.core.fleet.nodes["fuzz"].attempts) or ["t"]
                    message = fleet_pb.WorkRequest(events=[good_event(mutator.dice.choice(tokens))])
                    refusal = message.refusals.add(attempt_token=mutator.dice.choice(tokens))
                    refusal.why = fleet_pb.AttemptRefusal.WHY_FULL
                    mutator.mutate(mutator.dice.choice([message, message.events[0], message.events[0].result, refusal]))
                    await call.write(message)
                await call.done_writing()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass
            await drained(call)
        assert handled(app, "Work") <= ANSWERS
        results = await client.finish()
        assert len(results) == 30, "each request has its one result"
        await works(app, stub)


async def test_listings_and_cancellations() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake, connect(app) as peer:
        await fake.at_work.wait()
        for i in range(5):
            await stub.EvaluateOnce(once(f"r{i}"))
        mutator, fleet = Mutator(5), FleetServiceStub(peer)
        methods = [
            (stub.ListEvaluations, pb.ListEvaluationsRequest(page_size=10)),
            (stub.GetEvaluation, pb.GetEvaluationRequest(id="r0")),
            (stub.CancelEvaluation, pb.CancelEvaluationRequest(id="r0")),
            (stub.CancelEvaluations, pb.CancelEvaluationsRequest(ids=["r0"])),
            (fleet.DrainNode, fleet_pb.DrainNodeRequest(node_id="x")),
            (fleet.UndrainNode, fleet_pb.UndrainNodeRequest(node_id="x")),
            (fleet.ReleaseQuarantine, fleet_pb.ReleaseQuarantineRequest(node_id="x")),
        ]
        codes = set()
        for _ in range(ROUNDS // 2):
            method, start = mutator.dice.choice(methods)
            message = type(start).FromString(start.SerializeToString())
            mutator.mutate(message)
            codes.add(await code_of(method(message, timeout=5)))
        assert codes <= ANSWERS - {grpc.StatusCode.DEADLINE_EXCEEDED}
        await works(app, stub)


async def test_bytes_that_are_no_message_end_their_call_and_nothing_else() -> None:
    """gRPC refuses cut messages, and text that is not UTF-8, before the services see them."""
    async with scheduler() as (app, _), node(app.address, "n1") as fake, connect(app) as peer:
        await fake.at_work.wait()
        mutator = Mutator(6)
        whole = pb.EvaluateOnceRequest(request=good_request("a")).SerializeToString()
        once_call: Any = peer.unary_unary("/kerneldyno.v1.SchedulerService/EvaluateOnce")
        work_call: Any = peer.stream_stream("/kerneldyno.v1.FleetService/Work")
        refused = 0
        for _ in range(100):
            raw = bytearray(whole)
            for _ in range(mutator.dice.randint(1, 6)):
                raw[mutator.dice.randrange(len(raw))] = mutator.dice.randrange(256)
            raw = raw[: mutator.dice.randint(1, len(raw))]
            try:
                pb.EvaluateOnceRequest.FromString(bytes(raw))
            except DecodeError:
                refused += 1
                with pytest.raises(grpc.aio.AioRpcError):
                    await once_call(bytes(raw), timeout=5)
                stream = work_call()
                await stream.write(bytes(raw))
                await stream.done_writing()
                assert await drained(stream) is not grpc.StatusCode.OK
        assert refused > 20
        other = SchedulerServiceStub(peer)
        assert (await other.EvaluateOnce(once("b"))).result.outcome == Outcome.CORRECT
        assert sample(app, "nodes_lost_total", why="lease_expired") == 0

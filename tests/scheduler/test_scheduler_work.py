"""Tests of the Work stream, message by message: what a node may say and when, and what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from kerneldyno.rpc import errors
from kerneldyno.rpc.validation import missing_fields
from kerneldyno.scheduler.app import RunningScheduler
from kerneldyno.scheduler.service import dispatcher as work
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1 import scheduler_service_pb2 as scheduler_pb
from kerneldyno.v1.evaluation_pb2 import AttemptEvent
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from tests.scheduler.scheduler_harness import (
    Client,
    Outcome,
    connect,
    failing,
    once,
    request,
    sample,
    scheduler,
)
from tests.waiting import eventually


class Node:
    """A node that sends exactly what a test tells it to send."""

    def __init__(self, stub: Any, node_id: str = "raw") -> None:
        self.stub = stub
        self.node_id = node_id
        self.call: Any = None

    async def synchronize(self, *tokens: str, builders: int = 0) -> pb.SynchronizeResponse:
        """Report two lanes, and that it holds `tokens`."""
        report = pb.SynchronizeRequest(
            node_id=self.node_id,
            instance_id="i",
            backends=["triton"],
            toolkits=["kernelbench"],
            devices=[pb.Device(name="cpu:0", kind="cpu", lanes=2, ready=True)],
            attempt_tokens=tokens,
            builders=builders,
            environment=evaluation_pb2.Environment(torch_version="raw"),
        )
        response: pb.SynchronizeResponse = await self.stub.Synchronize(report)
        return response

    async def open(self, *tokens: str, events: tuple[AttemptEvent, ...] = (), **names: str) -> None:
        """Open a stream, and say that the node holds `tokens`."""
        self.call = self.stub.Work()
        who = {"node_id": self.node_id, "instance_id": "i"} | names
        await self.call.write(pb.WorkRequest(held_attempt_tokens=tokens, events=events, **who))

    async def say(self, *events: AttemptEvent, refusals: tuple[pb.AttemptRefusal, ...] = ()) -> None:
        """Send one more message."""
        await self.call.write(pb.WorkRequest(events=events, refusals=refusals))

    async def read(self) -> pb.WorkResponse:
        """Return the next message."""
        response = await asyncio.wait_for(self.call.read(), 10)
        assert response is not grpc.aio.EOF, "the stream ended"
        assert isinstance(response, pb.WorkResponse)
        return response

    async def hears_nothing(self, seconds: float = 0.4) -> bool:
        """Return whether nothing comes for a while. The stream cannot be used afterwards."""
        try:
            await asyncio.wait_for(self.call.read(), seconds)
        except TimeoutError:
            return True
        return False

    async def end(self) -> errors.KernelDynoError | None:
        """Wait for the end of the stream; return its error, or None."""
        async with asyncio.timeout(10):
            try:
                while await self.call.read() is not grpc.aio.EOF:
                    pass
            except grpc.aio.AioRpcError as error:
                return errors.from_rpc_error(error)
        return None


def done(token: str, outcome: Any = Outcome.CORRECT, **fields: Any) -> AttemptEvent:
    """Return an event with a result."""
    result = evaluation_pb2.EvalResult(outcome=outcome, compiled=True, correct=outcome == Outcome.CORRECT, **fields)
    return AttemptEvent(attempt_token=token, stage=evaluation_pb2.STAGE_DONE, result=result)


@asynccontextmanager
async def at_work(*names: str, **changes: Any) -> AsyncIterator[tuple[RunningScheduler, Any, Client, Node, list[str]]]:
    """Run a scheduler, a client that submits `names`, and a node that gets them; yield these and the tokens."""
    async with (
        scheduler(**{"lease_seconds": 30.0, "drain_seconds": 0.1, **changes}) as (app, stub),
        connect(app) as peer,
    ):
        node = Node(FleetServiceStub(peer))
        await node.synchronize()
        await node.open()
        client = Client(stub)
        tokens: list[str] = []
        if names:
            await client.send(*(request(name) for name in names))
            while len(tokens) < len(names):
                tokens += [one.attempt_token for one in (await node.read()).assignments]
        yield app, stub, client, node, tokens
        node.call.cancel()
        client.call.cancel()


async def test_a_stream_needs_names_and_a_lease() -> None:
    async with scheduler() as (app, _), connect(app) as peer:
        node = Node(FleetServiceStub(peer))
        await node.open()
        assert isinstance(await node.end(), errors.NotSynchronizedError)
        assert await node.call.code() is grpc.StatusCode.FAILED_PRECONDITION
        await node.synchronize()
        await node.open(instance_id="another")
        assert isinstance(await node.end(), errors.NotSynchronizedError)
        await node.open(node_id="", instance_id="")
        bad = await node.end()
        assert isinstance(bad, errors.InvalidRequestError)
        assert [v.field for v in bad.violations] == ["node_id", "instance_id"]
        silent = node.stub.Work()
        await silent.done_writing()
        assert await silent.read() is grpc.aio.EOF
        assert await silent.code() is grpc.StatusCode.OK


async def test_a_newer_stream_replaces_the_older_and_takes_over_its_attempts() -> None:
    async with at_work("a") as (app, _, client, node, tokens):
        older = node.call
        newer = Node(node.stub)
        await newer.open(*tokens)
        assert isinstance(await node.end(), errors.StreamReplacedError)
        assert await older.code() is grpc.StatusCode.ABORTED
        await newer.say(done(tokens[0]))
        assert list((await newer.read()).acknowledged_attempt_tokens) == tokens, "and it was not assigned again"
        assert (await client.finish())["a"].attempts == 1
        assert app.core.fleet.nodes["raw"].connected, "the end of the older one is not the end of the newer"
        newer.call.cancel()


async def test_what_a_node_does_not_hold_is_assigned_again_under_the_same_token() -> None:
    async with at_work("a", "b") as (_, _stub, client, node, tokens):
        node.call.cancel()
        await node.open(tokens[0], "never heard of")
        message = await node.read()
        assert [one.attempt_token for one in message.assignments] == tokens[1:]
        assert list(message.cancel_attempt_tokens) == ["never heard of"]
        await node.say(*(done(token) for token in tokens))
        assert {r.attempts for r in (await client.finish()).values()} == {1}


async def test_a_result_is_acknowledged_and_told_once_it_is_on_disk() -> None:
    async with at_work("a") as (app, _, client, node, tokens):
        waiting = asyncio.get_running_loop().create_task(client.until(lambda: bool(client.results)))
        with failing("before_commit=error"):
            await node.say(done(tokens[0]))
            await eventually(lambda: len(app.core.attempts) == 0)
            assert await node.hears_nothing()
            assert (await node.synchronize(*tokens)).cancel_attempt_tokens == [], "the node is to keep it"
            await node.open(*tokens)
            assert await node.hears_nothing(), "also when its stream breaks in between"
            assert not waiting.done()
        await waiting
        await node.open(*tokens, events=(done(tokens[0]),))
        told: set[str] = set()
        while not told:
            message = await node.read()
            assert not message.assignments
            told = {*message.acknowledged_attempt_tokens, *message.cancel_attempt_tokens}
        assert told == set(tokens)
        assert (await client.finish())["a"].outcome == Outcome.CORRECT
        assert sample(app, "outcomes_total", outcome="CORRECT") == 1


async def test_the_first_result_of_a_token_stands_and_every_copy_is_acknowledged() -> None:
    async with at_work("a", "b") as (app, _, client, node, tokens):
        await node.say(done(tokens[0], Outcome.INCORRECT), done(tokens[0]))
        assert list((await node.read()).acknowledged_attempt_tokens) == tokens[:1]
        await node.say(done(tokens[0]), done("never heard of"))
        heard: set[str] = set()
        while len(heard) < 2:
            heard |= set((await node.read()).acknowledged_attempt_tokens)
        assert heard == {tokens[0], "never heard of"}
        assert sample(app, "stale_completions_total") == 2
        await node.say(done(tokens[1]))
        results = await client.finish()
        assert (results["a"].outcome, results["b"].outcome) == (Outcome.INCORRECT, Outcome.CORRECT)


async def test_a_result_that_comes_after_the_lease_is_refused_and_counted() -> None:
    async with at_work("a", lease_seconds=1.5) as (app, _, client, node, tokens):
        message = await node.read()
        assert list(message.cancel_attempt_tokens) == tokens
        await node.say(done(tokens[0], Outcome.INCORRECT))
        assert list((await node.read()).acknowledged_attempt_tokens) == tokens, "it may forget it"
        assert sample(app, "stale_completions_total") == 1
        assert sample(app, "nodes_lost_total", why="lease_expired") == 1
        assert (await node.synchronize(*tokens)).cancel_attempt_tokens == tokens
        (again,) = (await node.read()).assignments
        assert again.attempt_token != tokens[0]
        await node.say(done(again.attempt_token))
        result = (await client.finish())["a"]
        assert (result.outcome, result.attempts) == (Outcome.CORRECT, 2)


async def test_messages_on_the_stream_keep_the_lease() -> None:
    async with at_work("a", lease_seconds=1.5) as (app, _, client, node, tokens):
        for _ in range(7):
            await asyncio.sleep(0.3)
            await node.say(AttemptEvent(attempt_token=tokens[0], stage=evaluation_pb2.STAGE_LOADING))
        assert sample(app, "nodes_lost_total", why="lease_expired") == 0
        await node.say(done(tokens[0]))
        assert (await client.finish())["a"].attempts == 1


async def test_snapshots_tell_where_an_evaluation_is() -> None:
    async with at_work("a") as (app, stub, _, node, tokens):
        ask = scheduler_pb.GetEvaluationRequest(id="a", client_id="c")
        assert (await stub.GetEvaluation(ask)).evaluation.stage == evaluation_pb2.STAGE_PREPARING
        await node.say(
            AttemptEvent(attempt_token="unknown", stage=evaluation_pb2.STAGE_LOADING),
            AttemptEvent(attempt_token=tokens[0], stage=evaluation_pb2.STAGE_TIMING, device="cpu:0"),
        )
        (attempt,) = app.core.fleet.nodes["raw"].attempts.values()
        await eventually(lambda: attempt.device == "cpu:0")
        shown = (await stub.GetEvaluation(ask)).evaluation
        assert (shown.stage, shown.node_id, shown.attempts) == (evaluation_pb2.STAGE_TIMING, "raw", 1)
        assert not shown.HasField("result")


@pytest.mark.parametrize("outcome", [0, 99, -1])
async def test_a_result_without_a_known_outcome_is_the_nodes_failure(outcome: int) -> None:
    async with at_work("a", max_attempts=1) as (_, _stub, client, node, tokens):
        await node.say(done(tokens[0], outcome))
        result = (await client.finish())["a"]
        assert (result.outcome, result.infrastructure_error.cause) == (Outcome.INFRASTRUCTURE_ERROR, "NODE_PROTOCOL")


async def test_what_a_result_says_of_its_request_is_not_believed() -> None:
    async with at_work("a") as (_, _stub, client, node, tokens):
        lies = {"id": "b", "digest": "00", "attempts": 7, "cached": True, "merged": True, "labels": {"k": "v"}}
        await node.say(done(tokens[0], **lies))
        result = (await client.finish())["a"]
        assert (result.id, result.attempts, result.cached, result.merged) == ("a", 1, False, False)
        assert (len(result.digest), dict(result.labels)) == (64, {})


async def test_a_cancellation_overtakes_or_follows_its_assignment() -> None:
    async with at_work("a") as (app, stub, client, node, tokens):
        await client.send(request("b"), cancel=("a",))
        heard: list[str] = []
        while not heard:
            message = await node.read()
            heard += message.cancel_attempt_tokens
        assert heard == tokens
        call = stub.EvaluateOnce(once("x"), timeout=0.5)
        assert (await failure_code(call)) is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: len(app.core.attempts) == 1)
        async with asyncio.timeout(10):
            while not (message := await node.read()).cancel_attempt_tokens:
                pass


async def failure_code(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code()


async def test_a_refusal_holds_the_node_for_as_long_as_it_says_whatever_it_says() -> None:
    async with at_work("a") as (app, _, client, node, tokens):
        huge = pb.AttemptRefusal(attempt_token=tokens[0], why=pb.AttemptRefusal.WHY_FULL)
        huge.retry_delay.seconds = 2**63 - 1
        backwards = pb.AttemptRefusal(attempt_token="unknown", why=pb.AttemptRefusal.WHY_FULL)
        backwards.retry_delay.seconds = -(2**63)
        await node.say(refusals=(huge, backwards, pb.AttemptRefusal(attempt_token="unknown", why=77)))  # type: ignore[arg-type]
        await eventually(lambda: len(app.core.attempts) == 0)
        other = Node(node.stub, "other")
        await other.synchronize()
        await other.open()
        (again,) = (await other.read()).assignments
        await other.say(done(again.attempt_token))
        result = (await client.finish())["a"]
        assert (result.outcome, result.attempts) == (Outcome.CORRECT, 1)
        other.call.cancel()


async def test_an_assignment_that_a_node_cannot_use_is_tried_elsewhere_and_is_no_verdict() -> None:
    async with at_work("a") as (app, _, client, node, tokens):
        text = "the request is not complete"
        await node.say(
            refusals=(pb.AttemptRefusal(attempt_token=tokens[0], why=pb.AttemptRefusal.WHY_INVALID, detail=text),)
        )
        await eventually(lambda: sample(app, "retries_total", cause="NODE_REFUSED") == 1)
        other = Node(node.stub, "other")
        await other.synchronize()
        await other.open()
        (again,) = (await other.read()).assignments
        assert missing_fields(again.request) == [], "the scheduler sends effective requests"
        await other.say(done(again.attempt_token))
        result = (await client.finish())["a"]
        assert (result.outcome, result.attempts) == (Outcome.CORRECT, 2)
        other.call.cancel()


async def test_many_large_assignments_come_in_messages_of_bounded_size() -> None:
    async with scheduler(lease_seconds=30.0, drain_seconds=0.1) as (app, stub), connect(app) as peer:
        client = Client(stub)
        for i in range(20):
            await client.send(request(f"r{i}", "#" + "x" * 1_000_000))
        await client.until(lambda: len(client.accepted) == 20)
        node = Node(FleetServiceStub(peer))
        report = pb.SynchronizeRequest(
            node_id="raw",
            instance_id="i",
            backends=["triton"],
            toolkits=["kernelbench"],
            devices=[pb.Device(name="cpu:0", kind="cpu", lanes=32, ready=True)],
        )
        await node.stub.Synchronize(report)
        await node.open()
        seen = 0
        while seen < 20:
            message = await node.read()
            assert message.ByteSize() < 6 << 20
            seen += len(message.assignments)
        assert len(app.core.fleet.nodes["raw"].attempts) == 20
        node.call.cancel()
        client.call.cancel()


async def test_a_stop_ends_the_streams_with_a_word() -> None:
    async with scheduler() as (app, _):
        peer = connect(app)
        node = Node(FleetServiceStub(peer))
        await node.synchronize()
        await node.open()
        await eventually(lambda: app.core.fleet.nodes["raw"].connected)
        ending = asyncio.get_running_loop().create_task(node.end())
    assert isinstance(await ending, errors.ShuttingDownError)
    await peer.close()


@pytest.mark.parametrize(
    ("said", "held"), [(None, 1.0), (2.5, 2.5), (0.0, 0.05), (-3.0, 0.05), (1e-9, 0.05), (3e9, 60.0)]
)
def test_a_node_says_within_bounds_when_to_try_it_again(said: float | None, held: float) -> None:
    refusal = pb.AttemptRefusal(why=pb.AttemptRefusal.WHY_FULL)
    if said is not None:
        refusal.retry_delay.FromNanoseconds(int(said * 1e9))
    assert work.hold_seconds(refusal, 1.0) == held


async def test_builds_come_beside_full_lanes_one_after_the_other() -> None:
    async with at_work("a", "b", "c") as (_, _, client, node, tokens):
        await node.synchronize(*tokens, builders=1)
        for name in ("d", "e"):
            one = request(name)
            one.kernel_files.add(path="native.cpp", content=f"// {name}")
            await client.send(one)
        (building,) = (await node.read()).assignments
        assert building.request.kernel_files[0].path == "native.cpp"
        cluster = node.stub.WatchCluster(pb.WatchClusterRequest())
        (there,) = (await cluster.read()).nodes
        assert (there.running, there.builders, there.building) == (4, 1, 1)
        await node.say(AttemptEvent(attempt_token=building.attempt_token, stage=evaluation_pb2.STAGE_BUILDING))
        await node.say(AttemptEvent(attempt_token=building.attempt_token, stage=evaluation_pb2.STAGE_QUEUED))
        await node.say(done(tokens[0]))
        (following,) = (await node.read()).assignments
        assert following.request.kernel_files[0].content == "// e"

"""Tests of blame: retries, work that kills nodes, nodes that fail again and again, and refusals of nodes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kerneldyno.rpc import errors
from kerneldyno.scheduler.core.model import Evaluation, NodeState, Verdict
from kerneldyno.scheduler.store.memory import MemoryStore
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from tests.scheduler.scheduler_harness import (
    CORRECT,
    Client,
    Outcome,
    World,
    cause,
    connect,
    digest_of,
    failure,
    once,
    outcome,
    request,
    sample,
    scheduler,
    spec,
)
from tests.waiting import eventually

# Rules of the state machine, without sockets


def crash(world: World, name: str, where: str | None = None) -> str:
    """Place `name` and lose its node, which then comes back. Return the id of the node."""
    attempt = world.place()[name]
    assert where in (None, attempt.node.id)
    world.core.nodes.lose(attempt.node, "it died")
    world.core.nodes.release(attempt.node)  # forget the node's failures: this is about the work
    world.report(attempt.node.id, instance_id=f"after {attempt.token}")
    return attempt.node.id


def poisoned(world: World, name: str = "poison") -> Evaluation:
    """Submit work, and let it take down three attempts on two nodes. Return its evaluation."""
    evaluation = world.submit(name, work="poison")
    world.report("n1")
    world.report("n2")
    for _ in range(3):
        world.pass_by(31, "n1", "n2")
        crash(world, name)
    return evaluation


@pytest.mark.parametrize("why", ["JUDGE_DIED", "NODE_LOST", "ATTEMPT_LOST", "NODE_PROTOCOL", "SOMETHING_ELSE"])
def test_a_failure_of_infrastructure_is_tried_on_another_node_three_times_in_all(why: str) -> None:
    world = World()
    world.report("n1", lanes=4)
    world.report("n2")
    evaluation = world.submit("a")
    seen = []
    for _ in range(3):
        world.pass_by(31, "n1", "n2")
        seen.append(world.run("a", Verdict.failed(why, "x", retryable=True)).node.id)
    assert seen[:2] in (["n1", "n2"], ["n2", "n1"])
    assert (outcome(evaluation), evaluation.attempts) == ("INFRASTRUCTURE_ERROR", 3)
    assert world.log.retries == [why] * 2
    crashed = why in ("JUDGE_DIED", "NODE_LOST", "ATTEMPT_LOST")
    assert cause(evaluation) == ("POISON" if crashed else why)
    assert bool(world.core.quarantine.entries()) == crashed


@pytest.mark.parametrize(
    "last", ["INCORRECT", "TIMEOUT", "OUT_OF_MEMORY", "REFERENCE_ERROR", "INVALID", "PROBLEM_TOO_LARGE"]
)
def test_a_verdict_is_never_tried_again(last: str) -> None:
    world = World()
    world.report("n1")
    evaluation = world.submit("a")
    world.run("a", Verdict(last))
    assert (outcome(evaluation), world.log.retries, world.placed()) == (last, [], {})


def test_a_final_failure_is_not_tried_again_and_is_no_crash() -> None:
    world = World()
    world.report("n1")
    evaluation = world.submit("a")
    world.run("a", Verdict.failed("JUDGE_DIED", "x", retryable=False))
    assert (cause(evaluation), evaluation.attempts, world.core.quarantine.entries()) == ("JUDGE_DIED", 1, [])


def test_work_that_takes_down_three_attempts_on_two_nodes_is_kept_from_running() -> None:
    world = World(quarantine_seconds=3600)
    first = poisoned(world)
    assert (cause(first), first.attempts) == ("POISON", 3)
    assert first.verdict is not None
    assert first.verdict.failure is not None
    assert "n1, n2" in first.verdict.failure.detail
    assert not first.verdict.failure.retryable
    assert world.log.quarantines == [("work", digest_of("poison").hex())]

    again = world.submit("again", work="poison")
    fresh = world.submit("fresh", work="poison", fresh=True)
    assert [cause(one) for one in (again, fresh)] == ["QUARANTINED"] * 2
    assert (again.attempts, world.placed()) == (0, {})
    salted = world.submit("salted", work="poison and salt")
    assert outcome(salted) is None

    world.pass_by(3590, "n1", "n2")
    assert cause(world.submit("still", work="poison")) == "QUARANTINED"
    world.pass_by(20, "n1", "n2")
    assert outcome(world.submit("over", work="poison")) is None
    assert world.core.quarantine.entries() == []


def test_quarantined_work_is_released_and_may_be_quarantined_again() -> None:
    world = World()
    poisoned(world)
    assert world.core.quarantine.release(digest_of("poison"))
    assert not world.core.quarantine.release(digest_of("poison"))
    assert cause(poisoned(world, "again")) == "POISON"
    assert len(world.core.quarantine.entries()) == 1


def test_crashes_on_one_node_only_are_the_nodes_fault() -> None:
    world = World()
    world.report("n1")
    evaluation = world.submit("a")
    for _ in range(3):
        world.pass_by(31, "n1")
        crash(world, "a", "n1")
    assert (cause(evaluation), evaluation.attempts) == ("NODE_LOST", 3)
    assert world.core.quarantine.entries() == []
    assert outcome(world.submit("again", work="a")) is None


def test_one_failure_that_is_no_crash_acquits_the_work() -> None:
    world = World()
    evaluation = world.submit("a")
    world.report("n1")
    world.report("n2")
    crash(world, "a")
    world.pass_by(31, "n1", "n2")
    world.run("a", Verdict.failed("NODE_PROTOCOL", "x", retryable=True))
    world.pass_by(31, "n1", "n2")
    crash(world, "a")
    assert (cause(evaluation), world.core.quarantine.entries()) == ("NODE_LOST", [])


def test_jobs_on_their_last_try_are_kept_apart() -> None:
    world = World()
    for name in ("a", "b"):
        world.submit(name)
    world.report("n1", lanes=4)
    for _ in range(2):
        world.place()
        world.core.nodes.lose(world.node("n1"), "it died")
        world.core.nodes.release(world.node("n1"))
        world.report("n1", lanes=4)
    world.submit("innocent")
    first = world.placed()
    assert len({"a", "b"} & first.keys()) == 1, "the next one that dies shall not take the other with it"
    assert "innocent" in first
    world.report("n2", lanes=4)
    assert world.placed() == {({"a", "b"} - first.keys()).pop(): "n2"}


def test_crashes_are_remembered_over_a_restart() -> None:
    store = MemoryStore()
    world = World(store)
    world.submit("a")
    world.report("n1")
    world.report("n2")
    crash(world, "a")
    crash(world, "a")
    after = World(store)
    after.core.recover(store.recover(), lambda payload: spec(payload=payload))
    for node_id in ("n1", "n2", "n3"):
        after.report(node_id)
    evaluation = after.core.requests.current(next(iter(store.recover().evaluations)))
    assert evaluation.job is not None
    assert (evaluation.job.attempts, evaluation.job.crashes) == (2, 2)
    crash(after, "a", "n3")
    assert cause(evaluation) == "POISON"
    store.close()


def test_quarantine_is_remembered_over_a_restart_and_so_is_its_release() -> None:
    store = MemoryStore()
    poisoned(World(store))
    after = World(store)
    after.core.recover(store.recover(), lambda payload: spec(payload=payload))
    assert cause(after.submit("again", work="poison")) == "QUARANTINED"
    after.core.quarantine.release(digest_of("poison"))
    last = World(store)
    last.core.recover(store.recover(), lambda payload: spec(payload=payload))
    assert outcome(last.submit("and again", work="poison")) is None
    store.close()


def test_a_node_in_quarantine_is_tried_with_one_attempt_until_one_succeeds() -> None:
    world = World(max_attempts=9)
    for i in range(9):
        world.submit(f"r{i}")
    world.report("bad", lanes=4)
    batches: list[tuple[float, int]] = []
    while len(batches) < 5:
        if placed := world.core.placement.place():
            batches.append((world.clock.now, len(placed)))
            for attempt in placed:
                world.core.results.complete(attempt.token, Verdict.failed("NODE_PROTOCOL", "x", retryable=True))
        world.pass_by(1, "bad")
    assert [size for _, size in batches] == [5, 1, 1, 1, 1]
    assert world.log.quarantines == [("node", "bad")]
    assert world.node("bad").state is NodeState.QUARANTINED
    gaps = [later - sooner for (sooner, _), (later, _) in itertools.pairwise(batches)]
    assert gaps == sorted(gaps)
    assert gaps[0] >= 10
    assert gaps[-1] >= 8 * 10 - 1
    while not (placed := world.core.placement.place()):
        world.pass_by(1, "bad")
    assert len(placed) == 1
    world.core.results.complete(placed[0].token, CORRECT)
    assert world.node("bad").state is NodeState.SERVING
    assert len(world.core.placement.place()) == 5


def test_quarantine_of_a_node_outlives_its_restart_and_ends_by_release() -> None:
    world = World(max_attempts=9)
    world.report("bad")
    world.submit("a")
    for _ in range(3):
        world.pass_by(31, "bad")
        world.run("a", Verdict.failed("NODE_PROTOCOL", "x", retryable=True))
    world.pass_by(12)
    world.report("bad", instance_id="restarted")
    assert world.node("bad").state is NodeState.QUARANTINED
    world.core.nodes.release(world.node("bad"))
    assert (world.node("bad").state, world.placed()) == (NodeState.SERVING, {"a": "bad"})


# Over sockets


async def test_work_that_kills_nodes_is_quarantined_seen_and_released() -> None:
    async with scheduler() as (app, stub), connect(app) as peer:
        fleet = FleetServiceStub(peer)
        client = Client(stub)
        await client.send(request("poison", "die=1"))
        for i in range(3):
            async with node(app.address, f"n{i}") as victim:
                await eventually(lambda victim=victim: victim.started == ["poison"])  # type: ignore[misc]
                await eventually(lambda i=i: app.core.fleet.nodes[f"n{i}"].state is NodeState.LOST)  # type: ignore[misc]
        result = (await client.finish())["poison"]
        assert (result.outcome, result.attempts) == (Outcome.INFRASTRUCTURE_ERROR, 3)
        assert (result.infrastructure_error.cause, result.infrastructure_error.retryable) == ("POISON", False)
        assert "n0, n1, n2" in result.infrastructure_error.detail
        assert sample(app, "quarantines_total", kind="work") == 1
        assert sample(app, "nodes_lost_total", why="found_dead") == 3

        async with node(app.address, "good") as good:
            await good.at_work.wait()
            refused = (await stub.EvaluateOnce(once("again", "die=1", work="poison"))).result
            assert refused.infrastructure_error.cause == "QUARANTINED"
            assert good.started == []
            (listed,) = (await fleet.ListQuarantines(fleet_pb.ListQuarantinesRequest())).quarantines
            assert (listed.digest, listed.node_id) == (result.digest, "")
            assert "n0, n1, n2" in listed.reason
            assert listed.end_time.seconds - listed.start_time.seconds == 3600

            await fleet.ReleaseQuarantine(fleet_pb.ReleaseQuarantineRequest(digest=listed.digest))
            assert not (await fleet.ListQuarantines(fleet_pb.ListQuarantinesRequest())).quarantines
            call = stub.EvaluateOnce(once("and-again", "die=1", work="poison"))
            await eventually(lambda: good.started == ["poison"])
            call.cancel()


async def test_a_node_that_keeps_failing_is_quarantined_seen_and_released() -> None:
    async with (
        scheduler(max_attempts=9) as (app, stub),
        node(app.address, "bad", lanes=1) as bad,
        connect(app) as peer,
    ):
        fleet = FleetServiceStub(peer)
        await bad.at_work.wait()
        client = Client(stub)
        await client.send(request("a", "outcome=INFRASTRUCTURE_ERROR cause=NODE_PROTOCOL node=bad"))
        await eventually(lambda: app.core.fleet.nodes["bad"].state is NodeState.QUARANTINED, 20)
        (listed,) = (await fleet.ListNodes(fleet_pb.ListNodesRequest())).nodes
        assert (listed.state, listed.failures) == (fleet_pb.NODE_STATE_QUARANTINED, 3)
        (kept,) = (await fleet.ListQuarantines(fleet_pb.ListQuarantinesRequest())).quarantines
        assert (kept.node_id, kept.digest) == ("bad", "")
        assert kept.reason.startswith("3 attempts")
        assert kept.end_time.ToNanoseconds() > kept.start_time.ToNanoseconds()

        async with node(app.address, "good"):
            assert (await client.finish())["a"].environment.node_id == "good"
        await fleet.ReleaseQuarantine(fleet_pb.ReleaseQuarantineRequest(node_id="bad"))
        assert (await stub.EvaluateOnce(once("b"))).result.environment.node_id == "bad"
        assert not (await fleet.ListQuarantines(fleet_pb.ListQuarantinesRequest())).quarantines


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, errors.InvalidRequestError),
        ({"node_id": "n1", "digest": "00"}, errors.InvalidRequestError),
        ({"digest": "no hex"}, errors.InvalidRequestError),
        ({"digest": "00"}, errors.QuarantineNotFoundError),
        ({"node_id": "n1"}, errors.QuarantineNotFoundError),
        ({"node_id": "nobody"}, errors.QuarantineNotFoundError),
    ],
)
async def test_what_is_not_in_quarantine_cannot_be_released(fields: dict[str, Any], kind: type[Exception]) -> None:
    async with scheduler() as (app, _), node(app.address, "n1") as fake, connect(app) as peer:
        await fake.at_work.wait()
        call = FleetServiceStub(peer).ReleaseQuarantine(fleet_pb.ReleaseQuarantineRequest(**fields))
        assert isinstance(await failure(call), kind)


async def test_a_node_that_is_full_or_stopping_is_asked_later_and_that_is_no_attempt() -> None:
    async with (
        scheduler() as (app, stub),
        node(app.address, "n1") as one,
        node(app.address, "n2") as two,
    ):
        await one.at_work.wait()
        await two.at_work.wait()
        client = Client(stub)
        await client.send(
            *(request(f"full{i}", "refuse=FULL node=n1") for i in range(4)),
            *(request(f"stops{i}", "refuse=DRAINING node=n1") for i in range(4)),
        )
        results = await client.finish()
        assert {(r.outcome, r.attempts, r.environment.node_id) for r in results.values()} == {
            (Outcome.CORRECT, 1, "n2")
        }
        assert app.core.fleet.nodes["n1"].failures == 0
        assert one.refused


async def test_what_a_node_calls_malformed_is_the_verdict_with_its_fields() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1"):
        result = (await stub.EvaluateOnce(once("a", "refuse=INVALID"))).result
        assert result.outcome == Outcome.INVALID
        assert [v.field for v in result.invalid.violations] == ["kernel_code"]
        assert app.core.fleet.nodes["n1"].failures == 0


async def test_a_refusal_that_contradicts_the_report_is_the_nodes_failure_and_tried_elsewhere() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=4) as one:
        await one.at_work.wait()
        client = Client(stub)
        await client.send(request("a", "refuse=NO_MATCHING_DEVICE node=n1"))
        await eventually(lambda: one.refused == ["a"])
        async with node(app.address, "n2"):
            result = (await client.finish())["a"]
        assert (result.environment.node_id, result.attempts) == ("n2", 2)
        assert sample(app, "retries_total", cause="NODE_REFUSED") == 1


async def test_failures_of_infrastructure_are_tried_elsewhere_and_at_most_three_times() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as one, node(app.address, "n2") as two:
        await one.at_work.wait()
        await two.at_work.wait()
        client = Client(stub)
        await client.send(
            request("here-only", "outcome=INFRASTRUCTURE_ERROR node=n1"),
            request("final", "outcome=INFRASTRUCTURE_ERROR retryable=no"),
            request("everywhere", "outcome=INFRASTRUCTURE_ERROR cause=NODE_PROTOCOL"),
        )
        results = await client.finish()
        assert results["here-only"].outcome == Outcome.CORRECT
        assert (results["final"].infrastructure_error.cause, results["final"].attempts) == ("JUDGE_DIED", 1)
        hopeless = results["everywhere"]
        assert (hopeless.outcome, hopeless.attempts) == (Outcome.INFRASTRUCTURE_ERROR, 3)
        assert hopeless.infrastructure_error.cause == "NODE_PROTOCOL"


@pytest.mark.parametrize("last", ["INCORRECT", "COMPILE_ERROR", "RUNTIME_ERROR", "TIMEOUT", "OUT_OF_MEMORY"])
async def test_a_candidates_own_failure_is_never_tried_again(last: str) -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        assert Outcome.Name((await stub.EvaluateOnce(once("a", f"outcome={last}"))).result.outcome) == last
        assert fake.started == ["a"]


def test_what_a_stopping_node_hands_back_is_nobodys_failure() -> None:
    world = World()
    world.report("n1")
    evaluation = world.submit("a")
    for _ in range(4):
        attempt = world.run("a", Verdict.failed("NODE_STOPPED", "it was stopped", retryable=True))
        assert (attempt.node.failures, attempt.node.held_until) == (0, 0.0)
    world.run("a")
    assert (outcome(evaluation), evaluation.attempts) == ("CORRECT", 1)

"""Tests of durability: restarts on one file, crashes between any two commits, a disk that fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from kerneldyno.rpc import channel, errors
from kerneldyno.scheduler.core.model import Key, NodeState, Priority, Requirement
from kerneldyno.scheduler.core.ports import RoleLostError
from kerneldyno.scheduler.core.records import Drained
from kerneldyno.scheduler.store.memory import MemoryStore
from kerneldyno.scheduler.store.postgres.store import PostgresStore
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb
from kerneldyno.v1 import scheduler_service_pb2 as pb
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.scheduler.postgres_store import open_postgres
from tests.scheduler.scheduler_harness import (
    CORRECT,
    CRASH,
    Client,
    HeldJournal,
    Outcome,
    Reader,
    World,
    cause,
    connect,
    failing,
    failure,
    once,
    outcome,
    request,
    sample,
    scheduler,
    spec,
)
from tests.waiting import eventually

# Rules of the state machine, without sockets: a new one goes on with what the old one wrote


def restarted(store: MemoryStore | PostgresStore, now: float = 0.0, **changes: Any) -> World:
    """Return a state machine after a crash. Its clock starts again, `now` seconds after the start of the first one."""
    world = World(store, **changes)
    world.clock.now += now
    world.core.recover(store.recover(), lambda payload: spec(payload=payload))
    return world


def test_a_node_that_comes_back_with_its_token_goes_on_and_decides() -> None:
    store = MemoryStore()
    before = World(store)
    before.submit("a")
    before.report("n1")
    token = before.place()["a"].token
    world = restarted(store)
    assert len(world.core.attempts) == 1
    assert world.node("n1").attempts.keys() == {token}
    assert world.report("n1", attempt_tokens=(token,)) == []
    assert world.placed() == {}
    assert world.core.results.complete(token, CORRECT)
    found = world.core.requests.get(Key("c", "a"))
    assert found is not None
    assert (outcome(found), found.attempts) == ("CORRECT", 1)
    store.close()


def test_a_node_that_does_not_come_back_loses_its_attempts_after_a_lease() -> None:
    store = MemoryStore()
    before = World(store)
    for name, node_id in (("a", "n1"), ("b", "n2")):
        before.submit(name)
        before.report(node_id)
        assert before.placed() == {name: node_id}
    world = restarted(store)
    world.pass_by(9)
    assert world.log.retries == []
    world.report("n2", instance_id="restarted")
    assert world.log.retries == ["NODE_LOST"], "another process does not hold what the old one did"
    world.pass_by(2, "n2")
    assert world.log.retries == ["NODE_LOST"] * 2
    assert [name for name, _ in world.log.lost] == ["n1"]
    found = {name: world.core.requests.get(Key("c", name)) for name in ("a", "b")}
    assert all(one is not None and one.job is not None and one.job.crashes == 1 for one in found.values())
    store.close()


def test_what_waited_waits_in_its_old_order_with_its_age_and_its_deadline() -> None:
    store = MemoryStore()
    before = World(store, unmatched_seconds=1e6)
    before.submit("old")
    before.submit("short", timeout_seconds=700.0)
    before.pass_by(601)
    before.submit("high", Priority.HIGH)
    before.submit("shared-low", Priority.LOW, work="w")
    before.submit("shared-high", Priority.HIGH, work="w")
    world = restarted(store, now=before.clock.now - 1000)
    world.core.tick()
    world.report("n1")
    order = []
    while placed := world.place():
        for name, attempt in placed.items():
            order.append(name)
            world.core.results.complete(attempt.token, CORRECT)
    assert order == ["old", "short", "high", "shared-low"]
    late = restarted(store)
    assert late.core.evaluations.waiting() == 0

    before.submit("in-time", timeout_seconds=100.0)
    world = restarted(store, now=before.clock.now - 1000 + 50)
    (evaluation,) = world.core.clients.unfinished("c")
    world.pass_by(49)
    assert outcome(evaluation) is None
    world.pass_by(2)
    assert cause(evaluation) == "DEADLINE_EXCEEDED", "the time without a scheduler counts"
    store.close()


def test_clients_have_their_grace_anew_and_their_quota_as_before() -> None:
    store = MemoryStore()
    before = World(store)
    for i in range(3):
        before.submit(f"r{i}", client="team/a")
    world = restarted(store, max_queued_per_client=3, client_grace_seconds=100, unmatched_seconds=1e6)
    assert not world.core.requests.has_room("team")
    world.pass_by(90)
    world.core.requests.call_opened("team/a")
    world.pass_by(100)
    assert world.core.clients.count == 3
    world.core.requests.call_closed("team/a")
    world.pass_by(101)
    assert world.core.clients.count == 0
    assert world.core.requests.has_room("team")
    store.close()


def test_what_the_nodes_offer_is_not_known_before_they_had_the_time_to_come_back() -> None:
    store = MemoryStore()
    before = World(store)
    before.submit("a")
    before.report("n1")
    before.place()
    before.submit("b")
    world = restarted(store)
    world.report("other", backends=frozenset({"cuda"}))
    assert (
        world.core.capabilities.backends(),
        world.core.capabilities.toolkits(),
        world.core.capabilities.profiling(),
    ) == (None, None, True)
    world.pass_by(9, "other")
    assert world.core.capabilities.backends() is None
    world.pass_by(2, "other")
    assert (world.core.capabilities.backends(), world.core.capabilities.profiling()) == (["cuda"], False)
    fresh = World()
    assert fresh.core.capabilities.backends() is None
    fresh.report("n1")
    assert fresh.core.capabilities.backends() == ["triton"]
    store.close()


def test_drains_count_before_the_node_is_there() -> None:
    store = MemoryStore()
    before = World(store)
    for node_id in ("n1", "n2"):
        before.report(node_id)
        before.core.nodes.drain(node_id, True)
    before.core.nodes.drain("n2", False)
    world = restarted(store)
    world.report("n1")
    world.report("n2")
    world.submit("a")
    assert (world.node("n1").state, world.placed()) == (NodeState.DRAINING, {"a": "n2"})
    store.close()


@pytest.mark.parametrize("records", range(12))
@pytest.mark.parametrize("kind", ["memory", "postgres"])
def test_a_crash_between_any_two_batches_loses_nothing_that_was_told(
    records: int, kind: str, request: pytest.FixtureRequest
) -> None:
    """The disk gets only the first `records` batches of a short run; then the process dies."""
    url = request.getfixturevalue("postgres").schema() if kind == "postgres" else ""
    store: MemoryStore | PostgresStore = open_postgres(url) if url else MemoryStore()
    journal = HeldJournal(store)
    world, told = World(store, journal), Reader()
    accepted: list[str] = []
    left = records

    def commit() -> None:
        nonlocal left
        if left > 0:
            journal.commit()
            left -= 1

    for name, work in (("a", "w"), ("b", "w"), ("c", "v")):
        evaluation = world.submit(name, work=work)
        journal.after_commit(lambda name=name: accepted.append(name))  # type: ignore[misc]
        world.core.requests.watch(evaluation, told)
        commit()
    world.report("n1", lanes=4)
    placed = world.place()
    commit()
    world.core.results.complete(placed["a"].token, CORRECT)
    commit()
    world.core.results.complete(placed["c"].token, CRASH)
    commit()
    world.pass_by(31, "n1")
    again = world.place()["c"]
    commit()
    world.core.requests.cancel(world.core.clients.unfinished("c")[0])
    commit()
    assert not world.core.results.complete(again.token, CORRECT)

    if isinstance(store, PostgresStore):  # another process takes over, and the former one can write no more
        former, store = store, open_postgres(url)
        with pytest.raises(RoleLostError):
            former.write([Drained("n9", True)])
        former.close()
    after = restarted(store, now=31)
    for name in accepted:
        found = after.core.requests.get(Key("c", name))
        assert found is not None, "what was accepted is known"
        assert (found.verdict is not None) >= (name in told.seen), "what was told stands"
        assert (found.verdict is None) == (found.job is not None)
    after.report("n1", lanes=4, instance_id="new")
    after.pass_by(31, "n1")
    while placed := after.place():
        for attempt in placed.values():
            after.core.results.complete(attempt.token, CORRECT)
    for name in accepted:
        found = after.core.requests.get(Key("c", name))
        assert found is not None
        assert outcome(found) == "CORRECT" or (name, cause(found)) == ("c", "CANCELLED")
    assert after.core.clients.count == 0
    store.close()


# Over sockets


async def test_a_restart_loses_nothing_and_starts_nothing_twice(durable: str) -> None:
    store = durable
    async with scheduler(store=store, drain_seconds=0.0) as (first, _):
        port = str(first.address)
        peer = connect(first)
        runs_on = node(first.address, "n1", lanes=2)
        fake = await runs_on.__aenter__()
        client = Client(SchedulerServiceStub(peer))
        await client.send(request("done"), request("again", work="done"))
        await client.until(lambda: len(client.results) == 2)
        labels = {"k": "v"}
        await client.send(
            *(request(f"runs{i}", "sleep=2", labels=labels) for i in range(3)),
            *(request(f"waits{i}") for i in range(4)),
        )
        await client.until(lambda: len(client.accepted) == 9)
        await eventually(lambda: len(fake.started) == 4)
        ended = asyncio.get_running_loop().create_task(_code(client))
    assert await ended is grpc.StatusCode.UNAVAILABLE
    await peer.close()
    assert set(fake.attempts) == set(first.core.fleet.nodes["n1"].attempts)
    assert fake.cancelled == [], "what runs goes on without the scheduler"

    async with scheduler(store=store, listen=port) as (second, stub):
        told = await stub.GetCapabilities(pb.SchedulerServiceGetCapabilitiesRequest())
        assert (told.store, told.queued, told.running) == (store.partition(":")[0].removesuffix("ql"), 4, 3)
        again = Client(stub)
        await again.send(request("runs0", "sleep=2", labels=labels), request("done"))
        names = [f"runs{i}" for i in range(3)] + [f"waits{i}" for i in range(4)]
        await again.send(attach=(*names[1:], "again", "never"))
        results = await again.finish(30)
        assert again.unknown == ["never"]
        assert {results[name].outcome for name in names} == {Outcome.CORRECT}
        assert {results[name].attempts for name in names} == {1}
        assert dict(results["runs1"].labels) == labels
        assert results["done"] == client.results["done"]
        assert results["again"] == client.results["again"]
        assert sorted(fake.started) == sorted(["done", *names]), "each was started once"
        await eventually(lambda: not fake.attempts)
        assert fake.duplicates == []
        assert sample(second, "placements_total") == 4, "those that ran were not placed again"
        cached = (await stub.EvaluateOnce(once("cached", work="done"))).result
        assert cached.cached, "results of an earlier process answer, too"
        reused = await failure(stub.EvaluateOnce(once("done", "outcome=INCORRECT", client_id="c")))
        assert isinstance(reused, errors.IdReusedError)
    await runs_on.__aexit__(None, None, None)


async def _code(client: Client) -> grpc.StatusCode:
    try:
        await client.finish()
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_drains_and_quarantines_outlive_a_restart(durable: str) -> None:
    store = durable
    async with scheduler(store=store) as (first, stub):
        client = Client(stub)
        await client.send(request("poison", "die=1"))
        for i in range(3):
            async with node(first.address, f"n{i}"):
                await eventually(lambda i=i: f"n{i}" in first.core.fleet.nodes)  # type: ignore[misc]
                await eventually(lambda i=i: first.core.fleet.nodes[f"n{i}"].state is NodeState.LOST)  # type: ignore[misc]
        assert (await client.finish())["poison"].infrastructure_error.cause == "POISON"
        async with connect(first) as peer:
            await FleetServiceStub(peer).DrainNode(fleet_pb.DrainNodeRequest(node_id="n0"))

    async with (
        scheduler(store=store) as (second, stub),
        connect(second) as peer,
        node(second.address, "n0") as drained,
        node(second.address, "n1") as serving,
    ):
        await drained.at_work.wait()
        await serving.at_work.wait()
        assert second.core.fleet.nodes["n0"].state is NodeState.DRAINING
        refused = (await stub.EvaluateOnce(once("again", "die=1", work="poison"))).result
        assert refused.infrastructure_error.cause == "QUARANTINED"
        assert (await stub.EvaluateOnce(once("a"))).result.environment.node_id == "n1"
        fleet = FleetServiceStub(peer)
        (kept,) = (await fleet.ListQuarantines(fleet_pb.ListQuarantinesRequest())).quarantines
        assert kept.digest == refused.digest
        await fleet.UndrainNode(fleet_pb.UndrainNodeRequest(node_id="n0"))
        await fleet.ReleaseQuarantine(fleet_pb.ReleaseQuarantineRequest(digest=kept.digest))

    async with scheduler(store=store) as (third, _), connect(third) as peer, node(third.address, "n0") as fake:
        await fake.at_work.wait()
        assert third.core.fleet.nodes["n0"].state is NodeState.SERVING
        assert not (await FleetServiceStub(peer).ListQuarantines(fleet_pb.ListQuarantinesRequest())).quarantines


async def test_with_the_memory_store_a_stop_tells_the_nodes_to_forget(tmp_path: Path) -> None:
    async with scheduler(drain_seconds=0.0) as (app, stub):
        runs_on = node(app.address, "n1")
        fake = await runs_on.__aenter__()
        client = Client(stub)
        await client.send(request("a", "sleep=60"))
        await eventually(lambda: fake.started == ["a"])
    assert fake.cancelled == ["a"]
    await runs_on.__aexit__(None, None, None)


async def test_a_disk_that_fails_stalls_and_nothing_more(tmp_path: Path) -> None:
    async with (
        scheduler(store=f"sqlite:{tmp_path / 'journal.sqlite'}") as (app, stub),
        node(app.address, "n1") as fake,
        connect(app) as peer,
    ):
        await fake.at_work.wait()
        client, before = Client(stub), Client(stub, "before")
        await before.send(request("runs", "sleep=0.5"))
        await before.until(lambda: before.accepted == ["runs"])
        loop = asyncio.get_running_loop()
        told = loop.create_task(client.until(lambda: bool(client.accepted or client.results)))
        answered = loop.create_task(before.until(lambda: bool(before.results)))
        with failing("before_commit=error"):
            await client.send(*(request(f"r{i}") for i in range(20)))
            await eventually(lambda: app.core.clients.count > 1)
            await eventually(lambda: sample(app, "journal_stalled") == 1)
            assert (sample(app, "journal_commit_failures_total") or 0) > 0
            stalled = await failure(stub.EvaluateOnce(once("a")))
            assert isinstance(stalled, errors.JournalStalledError)
            assert stalled.code is grpc.StatusCode.UNAVAILABLE
            assert stalled.retry_seconds == 2.0
            await asyncio.sleep(0.5)
            await eventually(lambda: all(held.result is not None for held in fake.attempts.values()))
            assert fake.started == ["runs"], "no attempt is handed out whose token is not on disk"
            seen = await stub.GetCapabilities(pb.SchedulerServiceGetCapabilitiesRequest(), timeout=5)
            assert seen.nodes == 1
            nodes = await FleetServiceStub(peer).ListNodes(fleet_pb.ListNodesRequest(), timeout=5)
            assert nodes.nodes[0].connected
            for call in (
                stub.GetEvaluation(pb.GetEvaluationRequest(id="r0", client_id="c"), timeout=10),
                stub.CancelEvaluation(pb.CancelEvaluationRequest(id="r0", client_id="c"), timeout=10),
                stub.ListEvaluations(pb.ListEvaluationsRequest(), timeout=10),
            ):
                assert isinstance(await failure(call), errors.JournalStalledError), (
                    "what might be taken back is not told"
                )
            assert not told.done(), "nothing is accepted that is not on disk"
            assert not answered.done(), "nor any result told"
        await told
        await answered
        results = await client.finish()
        assert len(results) == 20
        assert {r.outcome for name, r in results.items() if name != "r0"} == {Outcome.CORRECT}
        assert (await before.finish())["runs"].attempts == 1
        assert (await stub.EvaluateOnce(once("a"))).result.outcome == Outcome.CORRECT
        await eventually(lambda: sample(app, "journal_stalled") == 0)
        await eventually(lambda: not fake.attempts)


async def test_while_the_journal_is_behind_streams_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerneldyno.scheduler.store.journal.MAX_PENDING", 10)
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        await fake.at_work.wait()
        client = Client(stub)
        with failing("before_commit=error"):
            await client.send(*(request(f"r{i}") for i in range(100)))
            await eventually(lambda: not app.core.requests.has_room("c"))
            await asyncio.sleep(0.5)
            assert app.core.clients.count < 40
        assert len(await client.finish()) == 100


async def test_a_second_scheduler_on_the_same_file_does_not_start(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'journal.sqlite'}"
    async with scheduler(store=store) as (app, stub), node(app.address, "n1"):
        with pytest.raises(Exception, match="in use by another scheduler"):
            async with scheduler(store=store):
                pytest.fail("it started")
        assert (await stub.EvaluateOnce(once("a"))).result.outcome == Outcome.CORRECT


async def test_after_a_restart_each_evaluation_still_says_which_speedup_counts(durable: str) -> None:
    store = durable
    kind = evaluation_pb2.SPEEDUP_KIND_END_TO_END
    async with scheduler(store=store, drain_seconds=0.0) as (app, stub):
        async with node(app.address, "n1"):
            await stub.EvaluateOnce(once("done", "speedup=2", client_id="c", work="w", speedup_kind=kind))
            await stub.EvaluateOnce(once("same", "speedup=2", client_id="c", work="w"))
        client = Client(stub)
        await client.send(request("waits", "speedup=2", speedup_kind=kind))
        await client.until(lambda: client.accepted == ["waits"])
        client.call.cancel()
    async with scheduler(store=store) as (app, stub), node(app.address, "n1"):
        client = Client(stub)
        await client.send(attach=("done", "same", "waits"))
        results = await client.finish()
        usual = evaluation_pb2.SPEEDUP_KIND_DEVICE
        assert {name: one.speedup_kind for name, one in results.items()} == {"done": kind, "same": usual, "waits": kind}


async def test_the_request_that_a_node_gets_after_a_restart_is_the_same(durable: str) -> None:
    store = durable
    select = evaluation_pb2.DeviceSelector(kind="cuda", node_labels={"rack": "7"}, min_devices=2)
    async with scheduler(store=store) as (app, stub):
        client = Client(stub)
        await client.send(request("a", device=select, num_perf_trials=7, salt="s", reference_code="r" * 100_000))
        await client.until(lambda: client.accepted == ["a"])
        (evaluation,) = app.core.clients.unfinished("c")
        assert evaluation.job is not None
        before = evaluation.job
        client.call.cancel()
    async with scheduler(store=store) as (app, stub):
        (evaluation,) = app.core.clients.unfinished("c")
        assert evaluation.job is not None
        assert evaluation.job.spec == before.spec
        assert evaluation.job.id == before.id
        assert evaluation.job.spec.requirement == Requirement(
            "triton",
            "kernelbench",
            device_kind="cuda",
            node_labels=frozenset({("rack", "7")}),
            min_devices=2,
        )
        peer = grpc.aio.insecure_channel(str(app.address), options=channel.client_options())
        stub = SchedulerServiceStub(peer)
        async with node(app.address, "gpu", kind="cuda", devices=2, labels={"rack": "7"}):
            again = Client(stub)
            await again.send(attach=("a",))
            assert (await again.finish())["a"].outcome == Outcome.CORRECT
        await peer.close()

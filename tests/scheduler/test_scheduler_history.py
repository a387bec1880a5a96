"""Tests of ListEvaluations and WatchCluster over real sockets."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from kerneldyno.rpc import errors
from kerneldyno.scheduler.app import RunningScheduler
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb
from kerneldyno.v1 import scheduler_service_pb2 as pb
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from tests.scheduler.scheduler_harness import (
    Client,
    Outcome,
    connect,
    failing,
    failure,
    once,
    request,
    sample,
    scheduler,
)
from tests.waiting import eventually


async def listed(stub: Any, **filters: Any) -> list[str]:
    """Return the ids that one call lists."""
    answer = await stub.ListEvaluations(pb.ListEvaluationsRequest(**filters))
    return [one.id for one in answer.evaluations]


async def pages(stub: Any, **filters: Any) -> list[list[str]]:
    """Return the ids of each page."""
    found, token = [], ""
    while True:
        answer = await stub.ListEvaluations(pb.ListEvaluationsRequest(page_token=token, **filters))
        found.append([one.id for one in answer.evaluations])
        token = answer.next_page_token
        if not token:
            return found


@asynccontextmanager
async def history() -> AsyncIterator[tuple[RunningScheduler, Any]]:
    """Run a scheduler with evaluations in many states, accepted in this order; yield it and a stub."""
    async with scheduler(drain_seconds=0.1) as (app, stub), node(app.address, "n1", lanes=1) as fake:
        await fake.at_work.wait()
        mine, theirs = Client(stub, "mine"), Client(stub, "theirs")
        await mine.send(
            request("right", labels={"run": "1", "step": "a"}),
            request("wrong", "outcome=INCORRECT", labels={"run": "1", "step": "b"}),
            request("late", "outcome=TIMEOUT", labels={"run": "2"}),
        )
        await mine.until(lambda: len(mine.results) == 3)
        await theirs.send(request("other"))
        await theirs.until(lambda: len(theirs.results) == 1)
        await mine.send(request("runs", "sleep=60", labels={"run": "2"}))
        await eventually(lambda: "runs" in fake.started)
        await mine.send(request("next", "sleep=60"), request("waits", labels={"run": "2"}))
        await mine.until(lambda: len(mine.accepted) == 6)
        yield app, stub
        mine.call.cancel()
        theirs.call.cancel()


async def test_each_filter_and_all_of_them_together() -> None:
    async with history() as (_, stub):
        assert await listed(stub) == ["waits", "next", "runs", "other", "late", "wrong", "right"], "newest first"
        assert await listed(stub, client_id="theirs") == ["other"]
        assert await listed(stub, client_id="the") == []
        assert await listed(stub, outcomes=[Outcome.CORRECT]) == ["other", "right"]
        assert await listed(stub, outcomes=[Outcome.INCORRECT, Outcome.TIMEOUT]) == ["late", "wrong"]
        assert await listed(stub, unfinished=True) == ["waits", "next", "runs"]
        assert await listed(stub, unfinished=True, outcomes=[Outcome.CORRECT]) == []
        assert await listed(stub, labels={"run": "1"}) == ["wrong", "right"]
        assert await listed(stub, labels={"run": "1", "step": "b"}) == ["wrong"]
        assert await listed(stub, labels={"run": "%"}) == []
        assert await listed(stub, labels={"run": "2"}, unfinished=True, client_id="mine") == ["waits", "runs"]
        everything = (await stub.ListEvaluations(pb.ListEvaluationsRequest())).evaluations
        by_id = {one.id: one for one in everything}
        assert await listed(stub, digest=by_id["late"].digest) == ["late"]
        assert await listed(stub, digest=by_id["late"].digest.upper()) == ["late"]
        assert await listed(stub, digest="00") == []
        when = by_id["other"].accept_time
        assert await listed(stub, accepted_before=when) == ["late", "wrong", "right"]
        after = await listed(stub, accepted_after=when)
        assert after == ["waits", "next", "runs", "other"], "times are as exact as they are shown"
        assert await listed(stub, accepted_after=when, accepted_before=by_id["runs"].accept_time) == ["other"]


async def test_a_list_shows_where_each_is_and_its_result_in_brief_or_in_full() -> None:
    async with history() as (_, stub):
        brief = {one.id: one for one in (await stub.ListEvaluations(pb.ListEvaluationsRequest())).evaluations}
        assert brief["runs"].node_id == "n1"
        assert brief["runs"].attempts == 1
        assert (brief["waits"].stage, brief["waits"].node_id) == (evaluation_pb2.STAGE_QUEUED, "")
        assert not any(brief[name].HasField("result") for name in ("runs", "next", "waits"))
        wrong = brief["wrong"]
        assert (wrong.stage, wrong.attempts, wrong.client_id) == (evaluation_pb2.STAGE_DONE, 1, "mine")
        assert (wrong.result.outcome, wrong.result.id, dict(wrong.result.labels)) == (
            Outcome.INCORRECT,
            "wrong",
            {"run": "1", "step": "b"},
        )
        assert wrong.result.HasField("finish_time")
        assert not wrong.result.HasField("environment")
        full = await stub.ListEvaluations(pb.ListEvaluationsRequest(full_results=True))
        for one in full.evaluations:
            told = await stub.GetEvaluation(pb.GetEvaluationRequest(id=one.id, client_id=one.client_id))
            assert one == told.evaluation


async def test_pages_hold_everything_once_also_while_more_comes() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=4):
        client = Client(stub)
        await client.send(*(request(f"r{i:03}") for i in range(250)))
        await client.finish()
        names = [f"r{i:03}" for i in reversed(range(250))]
        found = await pages(stub, page_size=100)
        assert [len(page) for page in found] == [100, 100, 50]
        assert list(itertools.chain(*found)) == names
        assert [len(page) for page in await pages(stub, page_size=125)] == [125, 125], "no empty page at the end"
        assert [len(page) for page in await pages(stub)] == [100, 100, 50]
        assert await pages(stub, page_size=1000) == [names]
        first = await stub.ListEvaluations(pb.ListEvaluationsRequest(page_size=200))
        await stub.EvaluateOnce(once("new"))
        assert await listed(stub, page_size=200, page_token=first.next_page_token) == names[200:]
        assert await listed(stub, page_size=7, full_results=True, page_token=first.next_page_token) == names[200:207]


async def test_a_page_is_bounded_in_bytes() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=4):
        client = Client(stub)
        await client.send(*(request(f"r{i}", "size=1500000") for i in range(20)))
        await client.finish(60)
        sizes, token, seen = [], "", []
        while True:
            asked = pb.ListEvaluationsRequest(full_results=True, page_token=token)
            answer = await stub.ListEvaluations(asked)
            sizes.append(answer.ByteSize())
            seen += [one.id for one in answer.evaluations]
            token = answer.next_page_token
            if not token:
                break
        assert seen == [f"r{i}" for i in reversed(range(20))]
        assert max(sizes) < 12 << 20
        assert len(sizes) == 4


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"page_size": -1}, "page_size"),
        ({"page_size": 1001}, "page_size"),
        ({"page_token": "nonsense"}, "page_token"),
        ({"page_token": "é"}, "page_token"),
        ({"page_token": "W10="}, "page_token"),
        ({"page_token": "bnVsbA=="}, "page_token"),
        ({"page_token": base64.b64encode(b"[" * 50_000).decode()}, "page_token"),
        ({"outcomes": [0]}, "outcomes[0]"),
        ({"outcomes": [1, 77]}, "outcomes[1]"),
        ({"digest": "xyz"}, "digest"),
        ({"accepted_after": Timestamp(seconds=2**62)}, "accepted_after"),
        ({"accepted_before": Timestamp(nanos=-5)}, "accepted_before"),
    ],
)
async def test_a_filter_that_makes_no_sense_is_named(fields: dict[str, Any], field: str) -> None:
    async with scheduler() as (_, stub):
        error = await failure(stub.ListEvaluations(pb.ListEvaluationsRequest(**fields)))
        assert isinstance(error, errors.InvalidRequestError)
        assert [v.field for v in error.violations] == [field]


async def test_a_token_belongs_to_its_filters() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1"):
        client = Client(stub)
        await client.send(*(request(f"r{i}") for i in range(5)))
        await client.finish()
        token = (await stub.ListEvaluations(pb.ListEvaluationsRequest(client_id="c", page_size=2))).next_page_token
        assert await listed(stub, client_id="c", page_size=2, page_token=token) == ["r2", "r1"]
        for other in (
            {},
            {"client_id": "d"},
            {"client_id": "c", "labels": {"k": "v"}},
            {"client_id": "c", "unfinished": True},
        ):
            error = await failure(stub.ListEvaluations(pb.ListEvaluationsRequest(page_token=token, **other)))
            assert isinstance(error, errors.InvalidRequestError)
            assert "start again without a page_token" in error.violations[0].description
        _, mark = json.loads(base64.urlsafe_b64decode(token))
        for number in (-1, 2**63, 10**30, None, "1", 1.5):
            forged = base64.urlsafe_b64encode(json.dumps([number, mark]).encode()).decode()
            call = stub.ListEvaluations(pb.ListEvaluationsRequest(client_id="c", page_token=forged))
            assert isinstance(await failure(call), errors.InvalidRequestError)


async def test_a_list_shows_nothing_that_a_crash_could_take_back() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        await fake.at_work.wait()
        client = Client(stub)
        with failing("before_commit=error"):
            await client.send(request("a"))
            await eventually(lambda: len(app.core.attempts) == 1)
            await eventually(lambda: sample(app, "journal_stalled") == 1)
            refused = await failure(stub.ListEvaluations(pb.ListEvaluationsRequest(), timeout=10))
            assert isinstance(refused, errors.JournalStalledError)
        await eventually(lambda: sample(app, "journal_stalled") == 0)
        assert await listed(stub) == ["a"]
        await client.finish()


# WatchCluster


async def snapshot(watch: Any, seconds: float = 10) -> fleet_pb.WatchClusterResponse:
    """Return the next snapshot."""
    response = await asyncio.wait_for(watch.read(), seconds)
    assert isinstance(response, fleet_pb.WatchClusterResponse)
    return response


async def test_a_watch_shows_the_present_at_once_and_each_change_until_the_stop() -> None:
    async with scheduler() as (app, stub):
        peer = connect(app)
        fleet = FleetServiceStub(peer)
        watch = fleet.WatchCluster(fleet_pb.WatchClusterRequest())
        first = await snapshot(watch)
        assert (len(first.nodes), first.queued, first.running, dict(first.outcomes)) == (0, 0, 0, {})
        assert first.HasField("snapshot_time")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(reading := asyncio.ensure_future(watch.read())), 0.7)
        call = stub.EvaluateOnce(once("a", "sleep=0.5"))
        waiting: Any = await asyncio.wait_for(reading, 10)
        assert (waiting.queued, waiting.running) == (1, 0)
        async with node(app.address, "n1"):
            seen = []
            while True:
                seen.append(await snapshot(watch))
                if seen[-1].outcomes.get("CORRECT"):
                    break
            await call
            assert any(one.running == 1 and one.nodes[0].running == 1 for one in seen)
            last = seen[-1]
            assert (last.queued, last.running) == (0, 0)
            assert (last.nodes[0].node_id, last.nodes[0].connected) == ("n1", True)
            await fleet.DrainNode(fleet_pb.DrainNodeRequest(node_id="n1"))
            while not (await snapshot(watch)).nodes[0].drained:
                pass
        while (await snapshot(watch)).nodes[0].state != fleet_pb.NODE_STATE_LOST:
            pass
        ending = asyncio.ensure_future(watch.read())
    error = await failure(ending)
    assert isinstance(error, errors.ShuttingDownError)
    await peer.close()


async def test_a_slow_reader_misses_snapshots_but_never_the_newest() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=8, devices=8) as fake, connect(app) as peer:
        await fake.at_work.wait()
        fleet = FleetServiceStub(peer)
        slow = fleet.WatchCluster(fleet_pb.WatchClusterRequest())
        quick = fleet.WatchCluster(fleet_pb.WatchClusterRequest())
        client = Client(stub)
        for i in range(8):
            await client.send(*(request(f"r{i}-{k}") for k in range(20)))
            await client.until(lambda i=i: len(client.results) == 20 * (i + 1))  # type: ignore[misc]
            await asyncio.sleep(0.1)
        done = 0
        while done < 160:
            now = await snapshot(quick)
            assert now.outcomes["CORRECT"] >= done, "they never go back"
            done = now.outcomes["CORRECT"]
        read = 0
        while (await snapshot(slow)).outcomes["CORRECT"] < 160:
            read += 1
        assert read < 40, "at most a few a second"
        assert (await client.finish()).keys()


async def test_nobody_who_watches_costs_nothing_and_one_who_left_is_forgotten() -> None:
    async with scheduler() as (app, _), connect(app) as peer:
        fleet = FleetServiceStub(peer)
        watches = [fleet.WatchCluster(fleet_pb.WatchClusterRequest()) for _ in range(5)]
        for watch in watches:
            await snapshot(watch)
        for watch in watches:
            watch.cancel()
        (found,) = [one for one in app.core.observers if type(one).__name__ == "ClusterWatch"]
        await eventually(lambda: found._watchers == 0)  # type: ignore[attr-defined]

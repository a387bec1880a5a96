"""Tests of the calls of operators, with a scheduler on a real socket: history, cancelling many, and the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from kerneldyno.client import AsyncClient, CallFailedError, Client, ClientClosedError, EvalRequest, UnavailableError
from kerneldyno.client.errors import InvalidRequestError, KernelDynoError, NodeNotFoundError, QuarantineNotFoundError
from kerneldyno.rpc.errors import RateLimitedError
from kerneldyno.v1.evaluation_pb2 import STAGE_DONE, EvalResult
from kerneldyno.v1.fleet_service_pb2 import NODE_STATE_DRAINING, NODE_STATE_SERVING, Quarantine
from kerneldyno.v1.scheduler_service_pb2 import Evaluation
from tests.client.fake_fleet import FakeFleet
from tests.waiting import eventually

NOW = datetime.now(UTC)


class LaterVersionError(KernelDynoError):
    """An error with a reason that this client does not know: the client can only use the message."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "A_REASON_OF_A_LATER_VERSION"


def submit(scheduler: FakeFleet, client_id: str, id: str, code: str = "ok", **labels: str) -> None:
    scheduler.submit(client_id, EvalRequest(id=id, kernel_code=code, labels=labels))


async def ids(evaluations: AsyncIterator[Evaluation]) -> list[str]:
    return [evaluation.id async for evaluation in evaluations]


@pytest.fixture
async def history(scheduler: FakeFleet) -> FakeFleet:
    """Four evaluations of one client and one of another; two never end."""
    submit(scheduler, "trainer", "a", step="1")
    submit(scheduler, "trainer", "b", "hang", step="1", group="x")
    submit(scheduler, "trainer", "c", step="2")
    submit(scheduler, "trainer", "d", "hang", step="2")
    submit(scheduler, "other", "e")
    await eventually(lambda: sum(work.task.done() for work in scheduler.work.values()) == 3)
    return scheduler


class TestList:
    async def test_newest_first_over_all_pages_and_clients(self, history: FakeFleet) -> None:
        async with AsyncClient(history.address) as client:
            found = [evaluation async for evaluation in client.list(page_size=2)]
        assert [evaluation.id for evaluation in found] == ["e", "d", "c", "b", "a"]
        assert [evaluation.stage == STAGE_DONE for evaluation in found] == [True, False, True, False, True]
        assert [request.page_token for request in history.lists] == ["", "2", "4"]
        assert found[0].result.outcome == EvalResult.CORRECT
        assert found[0].result.logs == ""

    async def test_pages_are_fetched_only_as_they_are_needed(self, history: FakeFleet) -> None:
        async with AsyncClient(history.address) as client:
            evaluations = client.list(page_size=2)
            assert (await anext(evaluations)).id == "e"
            await evaluations.aclose()
        assert len(history.lists) == 1

    async def test_each_filter(self, history: FakeFleet) -> None:
        async with AsyncClient(history.address) as client:
            assert await ids(client.list(client_id="other")) == ["e"]
            assert await ids(client.list(unfinished=True)) == ["d", "b"]
            assert await ids(client.list(outcomes=["CORRECT"], client_id="trainer")) == ["c", "a"]
            assert await ids(client.list(outcomes=[EvalResult.TIMEOUT, "OUT_OF_MEMORY"])) == []
            assert await ids(client.list(labels={"step": "1"})) == ["b", "a"]
            assert await ids(client.list(labels={"step": "1", "group": "x"})) == ["b"]
            assert await ids(client.list(accepted_after=NOW - timedelta(hours=1))) == ["e", "d", "c", "b", "a"]
            assert await ids(client.list(accepted_before=NOW - timedelta(hours=1))) == []
            digest = history.work["trainer", "b"].listed.digest
            assert await ids(client.list(digest=digest, client_id="trainer")) == ["d", "b"]
            (whole, *_) = [evaluation async for evaluation in client.list(full_results=True)]
            assert whole.result.logs == "what it wrote"

    async def test_a_filter_that_makes_no_sense_is_refused_before_anything_is_sent(self, history: FakeFleet) -> None:
        async with AsyncClient(history.address) as client:
            with pytest.raises(ValueError, match="time zone"):
                client.list(accepted_after=datetime(2026, 1, 1))
            with pytest.raises(ValueError, match="RIGHT"):
                client.list(outcomes=["RIGHT"])
            assert history.lists == []

    async def test_what_the_scheduler_refuses_is_a_typed_error(self, history: FakeFleet) -> None:
        async with AsyncClient(history.address) as client:
            with pytest.raises(InvalidRequestError) as caught:
                await ids(client.list(page_size=1001))
        assert [violation.field for violation in caught.value.violations] == ["page_size"]
        async with AsyncClient("127.0.0.1:1") as client:
            with pytest.raises(UnavailableError):
                await ids(client.list())


class TestCancel:
    async def test_many_by_id_of_this_client_alone(self, history: FakeFleet) -> None:
        submit(history, "other", "d", "hang")
        async with AsyncClient(history.address, client_id="trainer") as client:
            assert await client.cancel_many(["a", "d", "unknown"]) == 1
            assert await client.cancel_many([]) == 0
        assert history.cancelled == ["d"]
        assert not history.work["other", "d"].judging.cancelling()

    async def test_more_than_one_call_may_carry(self, scheduler: FakeFleet) -> None:
        submit(scheduler, "trainer", "last", "hang")
        async with AsyncClient(scheduler.address, client_id="trainer") as client:
            assert await client.cancel_many([*(f"r{i}" for i in range(20_000)), "last"]) == 1
        assert scheduler.cancelled == ["last"]

    async def test_all_of_this_client_alone(self, history: FakeFleet) -> None:
        submit(history, "other", "f", "hang")
        async with AsyncClient(history.address, client_id="trainer") as client:
            assert await client.cancel_all() == 2
            await eventually(lambda: history.work["trainer", "b"].task.done())
            assert (await client.get("b")).result.infrastructure_error.cause == "CANCELLED"
            assert await client.cancel_all() == 0
        assert sorted(history.cancelled) == ["b", "d"]


class TestNodes:
    async def test_drain_and_undrain(self, scheduler: FakeFleet) -> None:
        async with AsyncClient(scheduler.address) as client:
            node = await client.drain("node-a")
            assert (node.drained, node.state) == (True, NODE_STATE_DRAINING)
            assert [node.drained for node in await client.nodes()] == [True, False]
            node = await client.undrain("node-a")
            assert (node.drained, node.state) == (False, NODE_STATE_SERVING)

    async def test_an_unknown_node_is_an_error(self, scheduler: FakeFleet) -> None:
        async with AsyncClient(scheduler.address) as client:
            for call in (client.drain, client.undrain):
                with pytest.raises(NodeNotFoundError, match="no node 'node-x' is registered"):
                    await call("node-x")

    async def test_quarantines_and_their_release(self, scheduler: FakeFleet) -> None:
        scheduler.quarantines = [Quarantine(node_id="node-a", reason="r"), Quarantine(digest="ab" * 32, reason="s")]
        async with AsyncClient(scheduler.address) as client:
            assert [one.reason for one in await client.quarantines()] == ["r", "s"]
            await client.release(digest="ab" * 32)
            assert [one.node_id for one in await client.quarantines()] == ["node-a"]
            await client.release(node_id="node-a")
            assert await client.quarantines() == []
            with pytest.raises(QuarantineNotFoundError, match="not in quarantine"):
                await client.release(node_id="node-a")
            for given in ({}, {"node_id": "n", "digest": "d"}):
                with pytest.raises(ValueError, match="either"):
                    await client.release(**given)


class TestWatch:
    async def test_a_snapshot_at_once_and_after_each_change(self, scheduler: FakeFleet) -> None:
        async with AsyncClient(scheduler.address) as client:
            snapshots = client.watch()
            first = await anext(snapshots)
            assert [node.drained for node in first.nodes] == [False, False]
            assert first.outcomes == {"CORRECT": 3}
            await client.drain("node-a")
            assert [node.drained for node in (await anext(snapshots)).nodes] == [True, False]
            await snapshots.aclose()
            await eventually(lambda: scheduler.watching == 0)

    async def test_broken_streams_and_restarts_are_mended(self, scheduler: FakeFleet) -> None:
        async with AsyncClient(scheduler.address) as client:
            snapshots = client.watch()
            await anext(snapshots)
            await scheduler.break_streams()
            await anext(snapshots)
            await scheduler.stop()
            following = asyncio.ensure_future(anext(snapshots))
            await asyncio.sleep(0.3)
            assert not following.done()
            scheduler.nodes["node-a"].running = 7
            await scheduler.start()
            assert (await following).nodes[0].running == 7
            await snapshots.aclose()

    async def test_a_scheduler_that_stays_away_ends_it(self, scheduler: FakeFleet) -> None:
        async with AsyncClient(scheduler.address, reconnect_timeout=0.5) as client:
            snapshots = client.watch()
            await anext(snapshots)
            await asyncio.sleep(0.6)  # time that the caller spends between snapshots does not count
            await scheduler.break_streams()
            await anext(snapshots)
            await scheduler.stop()
            with pytest.raises(UnavailableError, match=r"more than 0\.5 s"):
                await anext(snapshots)

    async def test_a_refusal_is_an_error_at_once_unless_it_says_when_to_come_back(self, scheduler: FakeFleet) -> None:
        scheduler.refusals.append(RateLimitedError("later", retry_seconds=0.6))
        async with AsyncClient(scheduler.address, reconnect_timeout=0.1) as client:
            snapshots = client.watch()
            began = asyncio.get_running_loop().time()
            await anext(snapshots)
            assert asyncio.get_running_loop().time() - began >= 0.6
            await snapshots.aclose()
            for refusal in (InvalidRequestError("no watching here"), LaterVersionError("no watching here")):
                scheduler.refusals.append(refusal)
                with pytest.raises(KernelDynoError, match="no watching here"):
                    await anext(client.watch())

    async def test_closing_the_client_tells_whoever_watches(self, scheduler: FakeFleet) -> None:
        async with AsyncClient(scheduler.address) as client:
            snapshots = client.watch()
            await anext(snapshots)
            following = asyncio.ensure_future(anext(snapshots))
            await asyncio.sleep(0.1)
        with pytest.raises(ClientClosedError):
            await following
        with pytest.raises(ClientClosedError):
            client.watch()

    async def test_closing_the_client_tells_whoever_waits_for_the_scheduler(self) -> None:
        async with AsyncClient("127.0.0.1:1") as client:
            following = asyncio.ensure_future(anext(client.watch()))
            await asyncio.sleep(0.3)
        with pytest.raises(ClientClosedError):
            await following

    async def test_cancelling_the_callers_task_is_not_an_error_of_the_client(self, scheduler: FakeFleet) -> None:
        async with AsyncClient(scheduler.address) as client:
            snapshots = client.watch()
            await anext(snapshots)
            following = asyncio.ensure_future(anext(snapshots))
            await asyncio.sleep(0.1)
            following.cancel()
            with pytest.raises(asyncio.CancelledError):
                await following
            await eventually(lambda: scheduler.watching == 0)


async def test_all_of_it_without_asyncio(history: FakeFleet) -> None:
    def use() -> Iterator[object]:
        with Client(history.address, client_id="trainer") as client:
            yield [evaluation.id for evaluation in client.list(unfinished=True, page_size=1)]
            yield client.cancel_many(["b"])
            yield client.cancel_all()
            yield client.drain("node-a").drained
            for snapshot in client.watch():
                yield snapshot.nodes[0].drained
                break
            yield client.undrain("node-a").drained
            yield [one.node_id for one in client.quarantines()]
            client.release(node_id="node-a")
            yield client.quarantines()

    history.quarantines = [Quarantine(node_id="node-a")]
    found = await asyncio.to_thread(lambda: list(use()))
    assert found == [["d", "b"], 1, 1, True, True, False, ["node-a"], []]
    await eventually(lambda: history.watching == 0)


async def test_a_scheduler_without_these_calls_says_so() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            with pytest.raises(CallFailedError, match="UNIMPLEMENTED"):
                await client.quarantines()
            with pytest.raises(CallFailedError, match="UNIMPLEMENTED"):
                await anext(client.watch())
    finally:
        await server.stop(None)

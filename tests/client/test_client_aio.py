"""AsyncClient against a scheduler on a real socket: order, window, breaks, restarts, deadlines, cancellation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from kerneldyno.client import (
    AlreadyFinishedError,
    AsyncClient,
    CallFailedError,
    ClientClosedError,
    DeadlineExceededError,
    DuplicateIdError,
    EvalRequest,
    EvalResult,
    EvaluationNotFoundError,
    InvalidRequestError,
    UnavailableError,
)
from kerneldyno.client.ledger import MAX_MESSAGE_BYTES
from kerneldyno.rpc.validation import Violation
from kerneldyno.v1.evaluation_pb2 import STAGE_DONE
from tests.client.fake_fleet import FakeFleet
from tests.waiting import eventually


def request(id: str = "", code: str = "ok", **fields: object) -> EvalRequest:
    return EvalRequest(id=id, kernel_code=code, **fields)  # type: ignore[arg-type]


async def collect(results: AsyncIterator[EvalResult]) -> list[EvalResult]:
    return [result async for result in results]


async def test_results_come_in_completion_order(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address) as client:
        requests = [request("slow", "sleep 0.3"), request("fast"), request("middle", "sleep 0.1")]
        results = await collect(client.evaluate(requests))
    assert [result.id for result in results] == ["fast", "middle", "slow"]
    assert all(result.outcome == EvalResult.CORRECT for result in results)


async def test_no_requests_no_results_and_no_connection() -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        assert await collect(client.evaluate([])) == []


@pytest.mark.parametrize("kind", ["generator", "async generator"])
async def test_lazy_sources(scheduler: FakeFleet, kind: str) -> None:
    def plain() -> Iterator[EvalRequest]:
        yield from (request(f"r{i}") for i in range(50))

    async def awaited() -> AsyncIterator[EvalRequest]:
        for i in range(50):
            await asyncio.sleep(0.001)
            yield request(f"r{i}")

    async with AsyncClient(scheduler.address, window=7) as client:
        results = await collect(client.evaluate(plain() if kind == "generator" else awaited()))
    assert sorted(result.id for result in results) == sorted(f"r{i}" for i in range(50))


async def test_missing_ids_are_filled_in_without_touching_the_callers_message(scheduler: FakeFleet) -> None:
    one = request(labels={"sample": "7"})
    async with AsyncClient(scheduler.address) as client:
        results = await collect(client.evaluate([one, one, one]))
    assert one.id == ""
    assert len({result.id for result in results}) == 3
    assert all(result.id and result.labels["sample"] == "7" for result in results)


async def test_an_id_used_twice_is_an_error_before_anything_is_sent(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address) as client:
        with pytest.raises(DuplicateIdError, match="'a'"):
            client.evaluate([request("a"), request("b"), request("a")])
        assert scheduler.messages == []


async def test_an_id_used_twice_in_a_generator_ends_the_call_and_cancels_the_rest(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address) as client:
        with pytest.raises(DuplicateIdError):
            await collect(client.evaluate(iter([request("a", "hang"), request("a")])))
        assert scheduler.cancelled == scheduler.runs


async def test_what_the_callers_iterator_raises_reaches_the_caller(scheduler: FakeFleet) -> None:
    def broken() -> Iterator[EvalRequest]:
        yield request("a", "hang")
        raise LookupError("the data set is gone")

    async with AsyncClient(scheduler.address) as client:
        with pytest.raises(LookupError, match="data set"):
            await collect(client.evaluate(broken()))


async def test_the_window_bounds_what_is_under_way_and_what_is_read(scheduler: FakeFleet) -> None:
    taken: list[str] = []

    def source() -> Iterator[EvalRequest]:
        for i in range(100):
            taken.append(f"r{i}")
            yield request(f"r{i}")

    async with AsyncClient(scheduler.address, window=5) as client:
        results = client.evaluate(source())
        await anext(results)
        # The caller has taken one result and takes no more, so only one place in the window is free again.
        await asyncio.sleep(0.3)
        assert len(taken) == 6
        assert len(scheduler.runs) == 6
        assert len(await collect(results)) == 99


async def test_large_requests_are_split_over_messages(scheduler: FakeFleet) -> None:
    mebibyte = "#" * 2**20
    async with AsyncClient(scheduler.address) as client:
        requests = [request(f"r{i}", mebibyte, reference_code=mebibyte) for i in range(14)]
        assert len(await collect(client.evaluate(requests))) == 14
    assert all(message.ByteSize() <= MAX_MESSAGE_BYTES for message in scheduler.messages)
    assert sum(len(message.requests) for message in scheduler.messages) == 14


async def test_a_request_that_no_message_can_hold_is_invalid_and_hurts_nobody_else(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address) as client:
        requests = [request("huge", "#" * 13 * 2**20), request("ok")]
        results = {result.id: result for result in await collect(client.evaluate(requests))}
    assert results["ok"].outcome == EvalResult.CORRECT
    assert results["huge"].outcome == EvalResult.INVALID
    assert "bytes" in results["huge"].invalid.violations[0].description


async def test_a_broken_stream_is_reattached_and_nothing_runs_twice(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address) as client:
        results = asyncio.create_task(collect(client.evaluate([request(f"r{i}", "sleep 0.5") for i in range(20)])))
        await eventually(lambda: len(scheduler.runs) == 20)
        await scheduler.break_streams()
        assert len({result.id for result in await results}) == 20
    assert len(scheduler.runs) == 20
    assert len(scheduler.attached) == 20


async def test_a_stream_that_breaks_again_and_again_loses_nothing(scheduler: FakeFleet) -> None:
    scheduler.breaks_after = 3
    async with AsyncClient(scheduler.address, window=8) as client:
        results = await collect(client.evaluate([request(f"r{i}") for i in range(20)]))
    assert sorted(result.id for result in results) == sorted(f"r{i}" for i in range(20))
    assert len(scheduler.runs) == 20


async def test_a_restarted_scheduler_that_forgot_everything_is_given_the_work_again(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address) as client:
        results = asyncio.create_task(collect(client.evaluate([request(f"r{i}", "sleep 0.4") for i in range(10)])))
        await eventually(lambda: len(scheduler.runs) == 10)
        await scheduler.stop()
        scheduler.forget()
        await asyncio.sleep(0.5)
        await scheduler.start()
        found = await results
    assert sorted(result.id for result in found) == sorted(f"r{i}" for i in range(10))
    assert all(result.outcome == EvalResult.CORRECT for result in found)
    assert len(scheduler.runs) == 20


async def test_a_scheduler_that_stays_away_ends_the_call_and_says_what_is_owed(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address, reconnect_timeout=1.0) as client:
        results = client.evaluate([request("a"), request("b", "hang"), request("c", "hang")])
        assert (await anext(results)).id == "a"
        await scheduler.stop()
        began = time.monotonic()
        with pytest.raises(UnavailableError, match="2 results are outstanding") as caught:
            await anext(results)
        assert time.monotonic() - began < 3.0
    assert set(caught.value.outstanding) == {"b", "c"}


async def test_a_slow_source_does_not_count_as_an_absent_scheduler(scheduler: FakeFleet) -> None:
    async def slow() -> AsyncIterator[EvalRequest]:
        for id in ("a", "b"):
            await asyncio.sleep(0.6)
            await scheduler.break_streams()
            yield request(id)

    async with AsyncClient(scheduler.address, reconnect_timeout=0.5) as client:
        assert [result.id for result in await collect(client.evaluate(slow()))] == ["a", "b"]


async def test_a_refused_stream_is_a_typed_error_at_once(scheduler: FakeFleet) -> None:
    scheduler.refuse = grpc.StatusCode.PERMISSION_DENIED
    async with AsyncClient(scheduler.address) as client:
        with pytest.raises(CallFailedError, match="refused by the test") as caught:
            await collect(client.evaluate([request("a")]))
    assert caught.value.status is grpc.StatusCode.PERMISSION_DENIED


async def test_breaking_out_cancels_what_is_outstanding(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address) as client:
        async for result in client.evaluate([request("a"), request("b", "hang"), request("c", "hang")]):
            assert result.id == "a"
            break
        await eventually(lambda: set(scheduler.cancelled) == {"b", "c"})


async def test_breaking_out_cancels_even_while_the_scheduler_reads_no_further(scheduler: FakeFleet) -> None:
    async def source() -> AsyncIterator[EvalRequest]:
        yield request("a", "hang")
        await eventually(lambda: scheduler.runs == ["a"])
        scheduler.room.clear()
        for i in range(40):
            yield request(f"r{i}", "#" * 2**20)  # more than a connection can buffer

    async with AsyncClient(scheduler.address, window=50) as client:
        results = client.evaluate(source(), timeout=1.0)
        assert (await anext(results)).infrastructure_error.cause == "DEADLINE_EXCEEDED"
        await results.aclose()
        assert scheduler.cancelled == ["a"]


async def test_cancelling_the_callers_task_cancels_what_is_outstanding(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address) as client:
        task = asyncio.create_task(collect(client.evaluate([request("a", "hang")])))
        await eventually(lambda: scheduler.runs == ["a"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert scheduler.cancelled == ["a"]


async def test_closing_the_client_cancels_and_tells_whoever_still_iterates(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address) as client:
        task = asyncio.create_task(collect(client.evaluate([request("a", "hang")])))
        await eventually(lambda: scheduler.runs == ["a"])
    with pytest.raises(ClientClosedError):
        await task
    assert scheduler.cancelled == ["a"]
    with pytest.raises(ClientClosedError):
        client.evaluate([])


async def test_at_the_deadline_a_collection_is_answered_wholly(scheduler: FakeFleet) -> None:
    requests = [request("done")] + [request(f"r{i}", "hang", labels={"n": str(i)}) for i in range(9)]
    async with AsyncClient(scheduler.address, window=3) as client:
        began = time.monotonic()
        results = {result.id: result for result in await collect(client.evaluate(requests, timeout=0.5))}
        assert time.monotonic() - began < 2.0
    assert len(results) == 10
    assert results.pop("done").outcome == EvalResult.CORRECT
    for id, result in results.items():
        assert result.outcome == EvalResult.INFRASTRUCTURE_ERROR
        assert result.infrastructure_error.cause == "DEADLINE_EXCEEDED"
        assert id == "r" + result.labels["n"]
    assert sorted(scheduler.cancelled) == sorted(id for id in scheduler.runs if id != "done")
    assert len(scheduler.runs) == 4


async def test_at_the_deadline_a_generator_is_read_no_further(scheduler: FakeFleet) -> None:
    async def endless() -> AsyncIterator[EvalRequest]:
        while True:
            yield request(code="hang")

    async with AsyncClient(scheduler.address, window=4) as client:
        results = await collect(client.evaluate(endless(), timeout=0.3))
    assert [result.infrastructure_error.cause for result in results] == ["DEADLINE_EXCEEDED"] * 4


async def test_the_deadline_holds_while_the_scheduler_is_away() -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        results = await collect(client.evaluate([request("a")], timeout=0.3))
    assert [result.infrastructure_error.cause for result in results] == ["DEADLINE_EXCEEDED"]


async def test_two_calls_at_once_do_not_mix(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address) as client:
        left, right = await asyncio.gather(
            collect(client.evaluate([request(f"l{i}", "sleep 0.05") for i in range(30)])),
            collect(client.evaluate([request(f"r{i}", "sleep 0.05") for i in range(30)])),
        )
    assert {result.id[0] for result in left} == {"l"}
    assert {result.id[0] for result in right} == {"r"}
    assert len(left) == len(right) == 30


async def test_single_calls(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address, client_id="trainer-1") as client:
        assert (await client.evaluate_once(request("a"))).outcome == EvalResult.CORRECT
        evaluation = await client.get("a")
        assert evaluation.stage == STAGE_DONE
        assert evaluation.result.id == "a"
        assert evaluation.client_id == "trainer-1"
        assert list((await client.capabilities()).backends) == ["triton"]
        assert [node.node_id for node in await client.nodes()] == ["node-a", "node-b"]
        with pytest.raises(AlreadyFinishedError):
            await client.cancel("a")
        with pytest.raises(EvaluationNotFoundError, match="'nobody'"):
            await client.get("nobody")
        scheduler.refusals.append(InvalidRequestError(violations=[Violation("kernel_code", "must not be empty")]))
        with pytest.raises(InvalidRequestError) as caught:
            await client.evaluate_once(EvalRequest(id="empty"))
        assert [violation.field for violation in caught.value.violations] == ["kernel_code"]
        with pytest.raises(DeadlineExceededError):
            await client.evaluate_once(request("b", "hang"), timeout=0.2)


async def test_cancel_ends_an_evaluation_whose_result_says_so(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address) as client:
        results = asyncio.create_task(collect(client.evaluate([request("a", "hang")])))
        await eventually(lambda: scheduler.runs == ["a"])
        await client.cancel("a")
        assert [result.infrastructure_error.cause for result in await results] == ["CANCELLED"]


async def test_an_unreachable_scheduler_is_a_typed_error_that_names_it() -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
            await client.capabilities()


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="window"):
        AsyncClient(window=0)

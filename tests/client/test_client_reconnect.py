"""Tests of evaluate() when the scheduler crashes or refuses: nothing is lost or run twice, and work goes on soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, UnavailableError
from kerneldyno.rpc.backoff import Backoff
from kerneldyno.rpc.errors import KernelDynoError, QueueFullError, RateLimitedError, ShuttingDownError
from tests.client.fake_fleet import FakeFleet
from tests.waiting import eventually


def request(id: str, code: str = "ok") -> EvalRequest:
    return EvalRequest(id=id, kernel_code=code)


async def collect(results: AsyncIterator[EvalResult]) -> list[EvalResult]:
    return [result async for result in results]


async def test_a_scheduler_that_kept_its_work_across_a_crash_runs_nothing_twice(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address) as client:
        results = asyncio.create_task(collect(client.evaluate([request(f"r{i}", "sleep 1") for i in range(10)])))
        await eventually(lambda: len(scheduler.runs) == 10)
        await scheduler.stop()
        await asyncio.sleep(0.3)
        await scheduler.start()
        found = await results
    assert sorted(result.id for result in found) == sorted(f"r{i}" for i in range(10))
    assert len(scheduler.runs) == 10
    assert sorted(scheduler.attached) == sorted(f"r{i}" for i in range(10))


async def test_what_ended_while_the_scheduler_was_away_is_delivered(scheduler: FakeFleet) -> None:
    async with AsyncClient(scheduler.address) as client:
        results = asyncio.create_task(collect(client.evaluate([request("a", "sleep 0.2"), request("b", "sleep 1.5")])))
        await eventually(lambda: len(scheduler.runs) == 2)
        await scheduler.stop()
        await eventually(lambda: scheduler.work[client.client_id, "a"].task.done())
        await scheduler.start()
        assert [result.id for result in await results] == ["a", "b"]
    assert len(scheduler.runs) == 2


async def test_only_what_the_scheduler_does_not_know_is_submitted_again(scheduler: FakeFleet) -> None:
    """A crash before the scheduler has stored a request loses that request only: nothing else is run again."""
    async with AsyncClient(scheduler.address) as client:
        results = asyncio.create_task(collect(client.evaluate([request(f"r{i}", "sleep 1") for i in range(6)])))
        await eventually(lambda: len(scheduler.runs) == 6)
        await scheduler.stop()
        for id in ("r2", "r4"):
            scheduler.work.pop((client.client_id, id)).task.cancel()
        await scheduler.start()
        assert len({result.id for result in await results}) == 6
    assert sorted(scheduler.runs) == ["r0", "r1", "r2", "r2", "r3", "r4", "r4", "r5"]


async def test_after_an_outage_the_client_is_back_within_three_seconds(scheduler: FakeFleet) -> None:
    """The outage is long enough for every pause, that of the channel too, to grow to its maximum."""
    async with AsyncClient(scheduler.address) as client:
        results = asyncio.create_task(collect(client.evaluate([request("a", "sleep 0.5")])))
        await eventually(lambda: scheduler.runs == ["a"])
        await scheduler.stop()
        await asyncio.sleep(4)
        await scheduler.start()
        back = asyncio.get_running_loop().time()
        await results
    assert scheduler.opened[-1] - back < 3.0


@pytest.mark.parametrize("kind", [RateLimitedError, QueueFullError, ShuttingDownError])
async def test_a_refusal_that_says_when_to_come_back_is_waited_out(
    scheduler: FakeFleet, kind: type[KernelDynoError]
) -> None:
    """The client waits longer than for an absent scheduler, because this scheduler is not absent."""
    scheduler.refusals.extend(kind("later", retry_seconds=0.8) for _ in range(2))
    async with AsyncClient(scheduler.address, reconnect_timeout=0.5) as client:
        (result,) = await collect(client.evaluate([request("a")]))
    assert result.outcome == EvalResult.CORRECT
    first, second, third = scheduler.opened
    assert second - first >= 0.8
    assert third - second >= 0.8


async def test_a_refusal_that_does_not_say_when_is_tried_until_patience_ends(scheduler: FakeFleet) -> None:
    scheduler.refuse = grpc.StatusCode.RESOURCE_EXHAUSTED
    async with AsyncClient(scheduler.address, reconnect_timeout=0.5) as client:
        with pytest.raises(UnavailableError, match="refused by the test") as caught:
            await collect(client.evaluate([request("a")]))
    assert caught.value.outstanding == ("a",)
    assert len(scheduler.opened) > 1


async def test_a_deadline_is_kept_while_a_refusal_is_waited_out(scheduler: FakeFleet) -> None:
    scheduler.refusals.append(RateLimitedError("later", retry_seconds=60))
    async with AsyncClient(scheduler.address) as client:
        async with asyncio.timeout(8):
            (result,) = await collect(client.evaluate([request("a")], timeout=0.3))
    assert result.infrastructure_error.cause == "DEADLINE_EXCEEDED"
    assert scheduler.runs == []


async def test_a_stream_that_breaks_as_work_is_resubmitted_loses_nothing(scheduler: FakeFleet) -> None:
    """The scheduler forgets the work and breaks the stream, again each time the client has sent the work again."""
    async with AsyncClient(scheduler.address) as client:
        results = asyncio.create_task(collect(client.evaluate([request(f"r{i}", "sleep 0.6") for i in range(5)])))
        for round in range(1, 4):
            await eventually(lambda round=round: len(scheduler.runs) >= 5 * round)
            scheduler.forget()
            await scheduler.break_streams()
        found = await results
    assert sorted(result.id for result in found) == [f"r{i}" for i in range(5)]


def test_pauses_start_short_stay_short_and_start_over() -> None:
    backoff = Backoff()
    pauses = [backoff.pause() for _ in range(50)]
    assert 0 < pauses[0] <= 0.2
    assert max(pauses) <= 1.0
    assert min(pauses[10:]) >= 0.5
    backoff.reset()
    assert backoff.pause() <= 0.2
    assert all(7.0 <= backoff.pause(7.0) <= 8.5 for _ in range(50))

"""The timing lease and processes of problems: who is stopped, who stays stopped, and when the judge works."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

from kerneldyno.evaluator.judge.runners.handle import Runner
from kerneldyno.evaluator.judge.runners.lease import Lease, is_timed


class Process:
    """What a lease knows of a process."""

    def __init__(self, role: str, *, is_asked: bool = False) -> None:
        self.role, self.is_asked = role, is_asked
        self.parked = self.stands_still = False

    async def stop(self) -> None:
        self.stands_still = True

    def resume(self) -> None:
        self.stands_still = False


def lease_of(*processes: Process) -> Lease:
    return Lease(cast(Any, processes))


async def test_a_problem_that_has_nothing_to_do_stays_stopped_until_it_is_asked() -> None:
    idle, busy, runner = Process("problem"), Process("problem", is_asked=True), Process("runner")
    lease = lease_of(idle, busy, runner)
    async with lease.exclusive(None):
        assert all(each.stands_still for each in (idle, busy, runner))
    assert [each.stands_still for each in (idle, busy, runner)] == [True, False, False]
    async with lease.work(), lease.away(cast(Any, idle)):
        assert not idle.stands_still


async def test_a_problem_that_is_being_built_counts_as_busy() -> None:
    channel, control = socket.socketpair()
    with channel, control:
        runner = Runner(channel, control, [])
        assert not runner.is_asked
        runner.will_run_problem()
        assert (runner.role, runner.is_asked) == ("problem", True)


async def test_pieces_of_work_go_on_side_by_side_and_a_timing_waits_for_all_and_holds_up_the_next() -> None:
    lease, order = lease_of(), []

    async def works(name: str, seconds: float) -> None:
        async with lease.work():
            order.append(f"{name} begins")
            await asyncio.sleep(seconds)
            order.append(f"{name} ends")

    async def is_timed() -> None:
        await asyncio.sleep(0.01)
        async with lease.exclusive(None):
            order.append("is timed")

    async def comes_late() -> None:
        await asyncio.sleep(0.02)
        await works("late", 0.0)

    async with asyncio.timeout(5):
        await asyncio.gather(works("long", 0.06), works("short", 0.04), is_timed(), comes_late())
    assert order == [
        *("long begins", "short begins", "short ends", "long ends", "is timed"),
        *("late begins", "late ends"),
    ]


async def test_who_waits_for_a_problem_holds_no_timing_up_and_goes_on_after_it() -> None:
    problem, order = Process("problem", is_asked=True), []
    lease = lease_of(problem)

    async def asks() -> None:
        async with lease.work():
            async with lease.away(cast(Any, problem)):
                await asyncio.sleep(0.02)
            order.append("goes on")

    async def is_to_be_timed() -> None:
        await asyncio.sleep(0.01)
        async with lease.exclusive(None):
            await asyncio.sleep(0.04)  # the answer has come by then
            assert problem.stands_still
            order.append("is timed")

    async with asyncio.timeout(5):
        await asyncio.gather(asks(), is_to_be_timed())
    assert order == ["is timed", "goes on"]
    assert not problem.stands_still


async def test_in_a_timing_a_problem_works_only_while_the_side_that_is_timed_is_stopped() -> None:
    problem, timed = Process("problem"), Process("runner")
    lease = lease_of(problem, timed)
    assert not is_timed()
    async with lease.exclusive(cast(Any, timed)):
        assert is_timed()
        async with lease.away(cast(Any, problem)):
            assert (problem.stands_still, timed.stands_still) == (False, True)
        assert (problem.stands_still, timed.stands_still) == (True, False)
    assert not is_timed()


async def test_who_is_to_be_timed_waits_for_the_lane_that_has_the_problem_while_that_one_can_go_on() -> None:
    problem, timed, order = Process("problem"), Process("runner"), []
    lease, question = lease_of(problem, timed), asyncio.Lock()

    async def asks() -> None:
        async with lease.work(), question:
            async with lease.away(cast(Any, problem)):
                await asyncio.sleep(0.02)  # the other one waits for the question by then
            await lease.quiet()  # as before a process is made
            order.append("asks")

    async def next_one() -> None:
        await asyncio.sleep(0.01)
        async with lease.exclusive(None):
            order.append("next")

    async def is_to_be_timed() -> None:
        async with lease.exclusive(cast(Any, timed), taking=taken()):
            order.append("is timed")

    @contextlib.asynccontextmanager
    async def taken() -> AsyncIterator[None]:
        async with question:
            yield

    async with asyncio.timeout(5):
        await asyncio.gather(asks(), is_to_be_timed(), next_one())
    assert order == ["asks", "is timed", "next"]


async def test_who_is_cancelled_while_a_problem_works_holds_no_timing_up() -> None:
    problem = Process("problem")
    lease = lease_of(problem)

    async def asks() -> None:
        async with lease.work(), lease.away(cast(Any, problem)):
            await asyncio.sleep(60)

    asking = asyncio.ensure_future(asks())
    await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    async with asyncio.timeout(1), lease.exclusive(None):
        pass

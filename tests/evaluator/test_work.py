"""Pieces of the judge's own work: they wait in their midst, and nobody else waits for them."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import cast

import pytest
import torch
from greenlet import getcurrent, greenlet

from kerneldyno.evaluator.devices.base import Device
from kerneldyno.evaluator.judge.runners import lease
from kerneldyno.evaluator.judge.runners.lease import Lease
from kerneldyno.evaluator.judge.runners.work import execute, numbers, run, settle, wait

_name: contextvars.ContextVar[str] = contextvars.ContextVar("name")


async def late(value: int) -> int:
    await asyncio.sleep(0.01)
    return value


async def test_a_piece_returns_what_it_returns_and_what_it_waits_for_comes_back_in_its_midst() -> None:
    assert await run(lambda: 3) == 3
    assert await run(lambda: [wait(late(each)) for each in range(3)]) == [0, 1, 2]


async def test_what_is_raised_comes_through_in_both_directions() -> None:
    async def fails() -> int:
        raise ValueError("outside")

    def piece() -> str:
        with pytest.raises(ValueError, match="outside"):
            wait(fails())
        wait(late(1))  # it can go on
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        await run(piece)


async def test_a_piece_that_waits_lets_others_go_on() -> None:
    first, order = asyncio.Event(), []

    def waits() -> None:
        order.append("waits")
        wait(first.wait())
        order.append("goes on")

    def lets_go() -> None:
        order.append("lets go")
        first.set()

    async with asyncio.timeout(5):
        await asyncio.gather(run(waits), run(lets_go))
    assert order == ["waits", "lets go", "goes on"]


async def test_each_piece_sees_the_variables_of_the_lane_that_ordered_it() -> None:
    def piece() -> tuple[str, str]:
        before = _name.get()
        wait(late(0))
        return before, _name.get()

    async def lane(name: str) -> tuple[str, str]:
        _name.set(name)
        return await run(piece)

    assert await asyncio.gather(lane("one"), lane("two")) == [("one", "one"), ("two", "two")]


async def test_a_cancelled_caller_ends_its_piece_where_it_waits_and_holds_no_timing_up() -> None:
    lease, seen = Lease([]), []

    def piece() -> None:
        try:
            wait(asyncio.sleep(60))
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            seen.append(wait(late(7)))  # what must be given back may take time

    task = asyncio.ensure_future(execute(lease, piece))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled", 7]
    async with asyncio.timeout(1), lease.exclusive(None):
        pass


async def test_who_is_no_piece_may_not_wait() -> None:
    with pytest.raises(RuntimeError, match="only a piece of work may wait"):
        wait(late(1))


async def test_a_greenlet_in_the_midst_of_a_piece_may_wait_too() -> None:
    def inner() -> int:
        found = wait(late(1))
        with pytest.raises(ValueError, match="outside"):
            wait(fails())
        parent = getcurrent().parent
        assert parent is not None
        return found + parent.switch("a question")

    async def fails() -> int:
        raise ValueError("outside")

    def piece() -> tuple[str, int]:
        track = greenlet(inner)
        question = track.switch()
        return question, track.switch(10 * wait(late(2)))

    assert await run(piece) == ("a question", 21)


class Busy:
    """A device that is done with its work when it was asked three times, or when somebody waits for it."""

    def __init__(self) -> None:
        self.asked = self.waited = 0

    def milestone(self) -> Callable[[], bool]:
        def is_done() -> bool:
            self.asked += 1
            return self.asked > 3

        return is_done

    def synchronize(self) -> None:
        self.waited += 1


async def test_others_go_on_while_a_piece_waits_for_the_device() -> None:
    device, order = Busy(), []

    def waits() -> None:
        settle(cast(Device, device))
        order.append("the device is done")

    await asyncio.gather(run(waits), run(lambda: order.append("another piece")))
    assert order == ["another piece", "the device is done"]
    assert (device.asked, device.waited) == (4, 0)


async def test_who_has_the_device_to_itself_or_is_in_no_piece_just_waits_for_it() -> None:
    device = Busy()
    settle(cast(Device, device))
    token = lease._is_timed.set(True)
    await run(lambda: settle(cast(Device, device)))
    lease._is_timed.reset(token)
    assert (device.asked, device.waited) == (0, 2)


async def test_a_small_tensor_is_read_in_a_piece_and_outside() -> None:
    small = torch.tensor([1.5, 2.0])
    assert numbers(small) == await run(lambda: numbers(small)) == [1.5, 2.0]
    assert numbers(small.max()) == 2.0

"""Who may have more of the host's memory than every candidate, how much, and who waits or is refused."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from kerneldyno.evaluator.judge.memory.footprint import HostNeed
from kerneldyno.evaluator.judge.memory.host import HostLimits, HostMemory, HostTooSmallError

pytestmark = pytest.mark.pure

GIB = 1 << 30
BASE = 8 * GIB


def host(*rooms: int) -> HostMemory:
    """Return a host that has so many GiB each time it is measured."""
    measured = iter(rooms)
    return HostMemory(BASE, lambda: next(measured) * GIB)


async def test_who_needs_no_more_than_the_base_leaves_room_for_has_the_base_and_never_waits() -> None:
    memory = host(0)
    async with memory.admit(HostNeed(4 * GIB, 4 * GIB)) as limits:
        assert (limits, memory.ledger.admitted_bytes) == (HostLimits(BASE, BASE), 0)


async def test_who_needs_more_has_that_and_the_base() -> None:
    memory = host(90)
    async with memory.admit(HostNeed(16 * GIB, 17 * GIB)) as limits:
        assert (limits, memory.ledger.admitted_bytes) == (HostLimits(BASE + 16 * GIB, BASE + 17 * GIB), 33 * GIB)
    assert memory.ledger.admitted_bytes == 0


async def test_each_process_is_looked_at_by_itself() -> None:
    memory = host(90)
    async with memory.admit(HostNeed(1 * GIB, 16 * GIB)) as limits:
        assert (limits, memory.ledger.admitted_bytes) == (HostLimits(BASE, BASE + 16 * GIB), 16 * GIB)


async def test_large_ones_wait_for_each_other_and_a_cancelled_one_for_nobody() -> None:
    memory, leave, waited = host(90), asyncio.Event(), list[str]()
    inside: list[str] = []

    async def evaluate(name: str) -> None:
        async with memory.admit(HostNeed(16 * GIB, 16 * GIB), lambda: waited.append(name)):
            inside.append(name)
            await leave.wait()

    tasks = [asyncio.create_task(evaluate(name)) for name in "abcd"]
    await asyncio.sleep(0.001)
    assert (inside, waited, memory.ledger.free_bytes) == (["a", "b"], ["c", "d"], 26 * GIB)
    for cancelled in (tasks[2], tasks[0]):
        cancelled.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await cancelled
    await asyncio.sleep(0.001)
    assert inside == ["a", "b", "d"]
    leave.set()
    await asyncio.gather(tasks[1], tasks[3])
    assert memory.ledger.free_bytes == 90 * GIB


async def test_what_the_host_cannot_hold_is_refused_with_both_numbers() -> None:
    with pytest.raises(HostTooSmallError) as small:
        async with host(31, 31).admit(HostNeed(16 * GIB, 16 * GIB)):
            raise AssertionError
    assert (small.value.needed, small.value.available) == (32 * GIB, 31 * GIB)


async def test_a_host_that_has_grown_is_measured_again_when_others_have_ended() -> None:
    memory, leave, waited = host(24, 90), asyncio.Event(), list[str]()

    async def evaluate() -> None:
        async with memory.admit(HostNeed(10 * GIB, 10 * GIB)):
            await leave.wait()

    async def evaluate_larger() -> HostLimits:
        async with memory.admit(HostNeed(40 * GIB, 40 * GIB), lambda: waited.append("larger")) as limits:
            return limits

    first, larger = asyncio.create_task(evaluate()), asyncio.create_task(evaluate_larger())
    await asyncio.sleep(0.001)
    assert (waited, memory.ledger.capacity) == (["larger"], 24 * GIB)
    leave.set()
    assert (await larger).candidate == BASE + 40 * GIB
    await first
    assert (memory.ledger.capacity, memory.ledger.free_bytes) == (90 * GIB, 90 * GIB)

"""Candidates in company: together or alone, and whose lack of memory counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kerneldyno.evaluator.judge.company import Company, lacked_memory


async def test_many_share_and_one_is_alone() -> None:
    company = Company()
    events: list[str] = []
    gate = asyncio.Event()

    async def share(name: str) -> None:
        async with company.shared():
            events.append(f"+{name}")
            await gate.wait()
            events.append(f"-{name}")

    async def alone() -> None:
        async with company.alone():
            events.append("+alone")
            await asyncio.sleep(0.01)
            events.append("-alone")

    first = [asyncio.create_task(share(name)) for name in "ab"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    lonely = asyncio.create_task(alone())
    await asyncio.sleep(0.01)
    late = asyncio.create_task(share("c"))
    await asyncio.sleep(0.01)
    assert events == ["+a", "+b"]  # the newcomer waits for the one that waits to be alone
    gate.set()
    await asyncio.gather(*first, lonely, late)
    assert events[4:6] == ["+alone", "-alone"]
    assert events[6] == "+c"


async def test_a_cancelled_wait_blocks_nobody() -> None:
    company = Company()
    async with company.shared():
        waiting = asyncio.create_task(company.alone().__aenter__())
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with asyncio.timeout(1), company.shared():
            pass


@pytest.mark.parametrize(
    ("result", "lacked"),
    [
        ({"outcome": "CORRECT"}, False),
        ({"outcome": "OUT_OF_MEMORY", "out_of_memory": {"memory": "host"}}, False),
        ({"outcome": "OUT_OF_MEMORY", "out_of_memory": {"memory": "device"}}, True),
        ({"outcome": "REFERENCE_ERROR", "reference_error": {"type": "OutOfMemoryError"}}, True),
        ({"outcome": "REFERENCE_ERROR", "reference_error": {"type": "ValueError"}}, False),
        ({"outcome": "INFRASTRUCTURE_ERROR", "infrastructure_error": {"cause": "RUNNER_START_FAILED"}}, True),
        ({"outcome": "INFRASTRUCTURE_ERROR", "infrastructure_error": {"cause": "DEVICE_MEMORY"}}, True),
        ({"outcome": "INFRASTRUCTURE_ERROR", "infrastructure_error": {"cause": "CANCELLED"}}, False),
    ],
)
def test_what_may_be_the_neighbours_doing(result: dict[str, Any], lacked: bool) -> None:
    assert lacked_memory(result) is lacked

"""The ledger of a device's memory: when it admits evaluations, and which results are tried again alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf import json_format

from kerneldyno.evaluator.judge.memory import ledger as ledger_module
from kerneldyno.evaluator.judge.memory.ledger import Ledger, lacked_memory
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure


class Bank:
    """A ledger, the names of the evaluations that it admitted or let wait, and a way to end each."""

    def __init__(self, capacity: int) -> None:
        self.ledger = Ledger(capacity)
        self.inside: list[str] = []
        self.waited: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, nbytes: int | None) -> None:
        """Start an evaluation that asks for `nbytes`, or for the whole device (None)."""
        self._gates[name] = asyncio.Event()

        async def stay() -> None:
            waits = lambda: self.waited.append(name)  # noqa: E731
            admitted = self.ledger.alone(waits) if nbytes is None else self.ledger.admit(nbytes, waits)
            async with admitted:
                self.inside.append(name)
                await self._gates[name].wait()
                self.inside.remove(name)

        self.tasks[name] = asyncio.create_task(stay())
        await asyncio.sleep(0.001)

    async def go(self, name: str) -> None:
        self._gates[name].set()
        await self.tasks[name]
        await asyncio.sleep(0.001)


async def test_small_ones_share_and_a_large_one_waits_for_its_bytes() -> None:
    bank = Bank(10)
    for name in "ab":
        await bank.come(name, 4)
    await bank.come("large", 9)
    assert (bank.inside, bank.waited, bank.ledger.free_bytes, bank.ledger.admitted_bytes) == (
        ["a", "b"],
        ["large"],
        2,
        8,
    )
    await bank.go("a")
    assert bank.inside == ["b"]
    await bank.go("b")
    assert bank.inside == ["large"]
    await bank.go("large")
    assert bank.ledger.free_bytes == 10


async def test_who_needs_more_than_there_is_gets_all_of_it() -> None:
    ledger = Ledger(10)
    async with ledger.admit(1 << 40) as held:
        assert (held, ledger.free_bytes) == (10, 0)
    assert ledger.free_bytes == 10


async def test_small_ones_overtake_a_large_one_a_few_times_and_never_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "_MOST_PASSED", 3)
    bank = Bank(10)
    await bank.come("first", 5)
    await bank.come("large", 8)
    for at in range(6):
        await bank.come(f"small{at}", 1)
    assert bank.inside == ["first", "small0", "small1", "small2"]
    for name in ("first", "small0", "small1", "small2"):
        await bank.go(name)
    assert bank.inside == ["large", "small3", "small4"]


async def test_who_is_alone_is_alone_and_nobody_overtakes() -> None:
    bank = Bank(10)
    await bank.come("a", 3)
    await bank.come("alone", None)
    await bank.come("late", 1)
    assert (bank.inside, bank.waited) == (["a"], ["alone", "late"])
    await bank.go("a")
    assert bank.inside == ["alone"]
    await bank.go("alone")
    assert bank.inside == ["late"]


@pytest.mark.parametrize("nbytes", [9, None])
async def test_a_cancelled_wait_blocks_nobody(nbytes: int | None) -> None:
    bank = Bank(10)
    await bank.come("a", 5)
    await bank.come("cancelled", nbytes)
    bank.tasks["cancelled"].cancel()
    await asyncio.gather(bank.tasks["cancelled"], return_exceptions=True)
    await bank.come("b", 5)
    assert (bank.inside, bank.ledger.free_bytes) == (["a", "b"], 0)


async def test_a_ledger_that_grows_admits_what_fits_then_and_never_shrinks() -> None:
    bank = Bank(10)
    await bank.come("a", 8)
    await bank.come("b", 6)
    assert bank.waited == ["b"]
    bank.ledger.grow(14)
    bank.ledger.grow(4)
    await asyncio.sleep(0.001)
    assert (bank.inside, bank.ledger.capacity, bank.ledger.free_bytes) == (["a", "b"], 14, 0)
    await bank.go("a")
    await bank.go("b")
    assert (bank.ledger.free_bytes, bank.ledger.admitted_bytes) == (14, 0)


async def test_who_fails_gives_its_bytes_back() -> None:
    ledger = Ledger(10)
    with pytest.raises(ZeroDivisionError):
        async with ledger.admit(7):
            raise ZeroDivisionError
    assert ledger.free_bytes == 10


@pytest.mark.parametrize(
    ("result", "lacked"),
    [
        ({"outcome": "CORRECT"}, False),
        ({"outcome": "OUT_OF_MEMORY", "out_of_memory": {"memory": "host"}}, False),
        ({"outcome": "OUT_OF_MEMORY", "out_of_memory": {"memory": "device"}}, True),
        ({"outcome": "PROBLEM_TOO_LARGE", "problem_too_large": {"memory": "device"}}, True),
        ({"outcome": "REFERENCE_ERROR", "reference_error": {"type": "ValueError"}}, False),
        ({"outcome": "INFRASTRUCTURE_ERROR", "infrastructure_error": {"cause": "RUNNER_START_FAILED"}}, True),
        ({"outcome": "INFRASTRUCTURE_ERROR", "infrastructure_error": {"cause": "DEVICE_MEMORY"}}, True),
        ({"outcome": "INFRASTRUCTURE_ERROR", "infrastructure_error": {"cause": "CANCELLED"}}, False),
    ],
)
def test_what_may_be_the_neighbours_doing(result: dict[str, Any], lacked: bool) -> None:
    assert lacked_memory(json_format.ParseDict(result, pb.EvalResult())) is lacked

"""Places for builds: never more at once than there are, in order, and fewer while lanes are busy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kerneldyno.evaluator.builder.places import Places
from kerneldyno.evaluator.server.builders import BuilderSettings
from tests.waiting import eventually

pytestmark = pytest.mark.pure


class Builds:
    """Builds that each hold a place until they are told to end."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.began: list[int] = []
        self._ends: dict[int, asyncio.Event] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, *numbers: int) -> None:
        for number in numbers:
            self._ends[number] = asyncio.Event()
            self.tasks[number] = asyncio.create_task(self._run(number))

    def end(self, number: int) -> None:
        self._ends[number].set()

    async def _run(self, number: int) -> None:
        async with self.places.one():
            self.began.append(number)
            await self._ends[number].wait()


async def test_builds_run_in_order_and_never_more_than_there_are_places() -> None:
    builds = Builds(Places(2))
    builds.start(1, 2, 3, 4)
    await eventually(lambda: builds.began == [1, 2])
    builds.end(2)
    await eventually(lambda: builds.began == [1, 2, 3])
    assert builds.places.running == 2


async def test_fewer_places_end_no_build_and_more_places_start_those_that_wait() -> None:
    builds = Builds(Places(3))
    builds.start(1, 2, 3, 4, 5)
    await eventually(lambda: builds.began == [1, 2, 3])
    builds.places.count = 1
    builds.end(1)
    builds.end(2)
    await eventually(lambda: builds.places.running == 1)
    assert builds.began == [1, 2, 3]
    builds.places.count = 3
    await eventually(lambda: builds.began == [1, 2, 3, 4, 5])


async def test_who_is_cancelled_takes_no_place_with_it() -> None:
    builds = Builds(Places(1))
    builds.start(1, 2, 3)
    await eventually(lambda: builds.began == [1])
    builds.tasks[2].cancel()  # while it waits
    builds.tasks[1].cancel()  # while it runs
    await eventually(lambda: builds.began == [1, 3])
    builds.start(4)
    builds.end(3)
    builds.tasks[4].cancel()  # perhaps after its turn has come, and before it knows
    builds.start(5)
    await eventually(lambda: builds.began[-1] == 5)
    assert builds.places.running == 1


@pytest.mark.parametrize(("busy", "builds"), [(0, 8), (4, 8), (5, 6), (6, 4), (7, 3), (8, 1)])
def test_the_more_lanes_are_busy_the_fewer_builds_run(busy: int, builds: int) -> None:
    assert BuilderSettings(8, Path("cache"), 1).beside(busy, 8) == builds


def test_builds_never_stop() -> None:
    assert BuilderSettings(1, Path("cache"), 1).beside(2, 2) == 1
    assert BuilderSettings(4, Path("cache"), 1).beside(0, 0) == 4, "no device is ready, and nobody needs processors"

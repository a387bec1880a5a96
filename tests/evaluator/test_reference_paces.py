"""Which reference runner serves a candidate, by the paces of both. Runners are fakes: only their paces count."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kerneldyno.evaluator.devices.cpu import CpuDevice
from kerneldyno.evaluator.judge.memory.footprint import Footprint
from kerneldyno.evaluator.judge.memory.host import HostMemory
from kerneldyno.evaluator.judge.runners.handle import Runner
from kerneldyno.evaluator.judge.runners.pool import Pool
from kerneldyno.evaluator.judge.timing.processors import Processors
from kerneldyno.evaluator.judge.timing.reference_runners import ReferenceRunner, References

pytestmark = pytest.mark.pure

QUICK, ALSO_QUICK, SLOW = 1.95, 1.96, 2.10


class Made(References):
    """References whose new runners get these paces, one after the other."""

    def __init__(self, pool: Pool, paces: list[float], memory_bytes: int = 1 << 30) -> None:
        super().__init__(CpuDevice(), pool, cast(Processors, None), HostMemory(pool.memory_bytes, lambda: 0))
        self.paces = paces
        self.memory_bytes = memory_bytes
        self.ended: list[float] = []

    async def _make(self, *_: Any, **__: Any) -> ReferenceRunner:
        return cast(ReferenceRunner, SimpleNamespace(runner=runner(self.paces.pop(0), self.memory_bytes), unanswered=0))

    async def _discard(self, side: ReferenceRunner) -> None:
        self.ended.append(side.runner.pace)


def runner(pace: float, memory_bytes: int = 1 << 30) -> Runner:
    fake = SimpleNamespace(pace=pace, pace_class=0, has_ended=False, memory_bytes=memory_bytes)

    async def end() -> None:
        fake.has_ended = True

    fake.end = end
    return cast(Runner, fake)


@pytest.fixture
def pool() -> Iterator[Pool]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Pool(ours, CpuDevice(), "cpu:0", spares=1, memory_bytes=1 << 30)


async def timed_beside(references: Made, pace: float, *, fails: bool = False) -> float:
    spec, sizes = cast(Any, SimpleNamespace(timed_key="p")), cast(Any, SimpleNamespace(sets=3, slot_bytes=256))
    known = cast(Any, SimpleNamespace(footprint=Footprint(1, 1, 1, 1, 1), seed=7))
    async with references.beside(known, spec, sizes, runner(pace), full_queues=True) as side:
        if fails:
            side.unanswered = 1
            raise ZeroDivisionError
        return side.runner.pace


async def test_a_reference_of_another_pace_serves_one_candidate_only(pool: Pool) -> None:
    references = Made(pool, [QUICK, ALSO_QUICK, ALSO_QUICK, SLOW])
    assert await timed_beside(references, QUICK) == QUICK
    # Twice no twin can be found. The third candidate still gets one.
    assert [await timed_beside(references, SLOW) for _ in range(2)] == [ALSO_QUICK] * 2
    assert [await timed_beside(references, SLOW) for _ in range(2)] == [SLOW, SLOW]
    assert await timed_beside(references, QUICK) == QUICK
    assert references.ended == [ALSO_QUICK] * 2
    assert len(references) == 2


@pytest.mark.parametrize("twin", [True, False])
async def test_a_reference_that_is_left_in_the_midst_of_something_ends_once(pool: Pool, *, twin: bool) -> None:
    references = Made(pool, [QUICK if twin else SLOW])
    with pytest.raises(ZeroDivisionError):
        await timed_beside(references, QUICK, fails=True)
    assert references.ended == [QUICK if twin else SLOW]
    assert len(references) == 0


async def test_a_reference_that_one_lane_ends_stays_open_until_the_others_have_left(pool: Pool) -> None:
    references = Made(pool, [QUICK, ALSO_QUICK])
    spec, sizes = cast(Any, SimpleNamespace(timed_key="p")), cast(Any, SimpleNamespace(sets=3, slot_bytes=256))
    known = cast(Any, SimpleNamespace(footprint=Footprint(1, 1, 1, 1, 1), seed=7))
    async with references.beside(known, spec, sizes, runner(QUICK), full_queues=True) as waiting:
        with pytest.raises(ZeroDivisionError):
            await timed_beside(references, QUICK, fails=True)
        assert waiting.runner.has_ended
        assert references.ended == [], "its arenas are still in use"
        assert await timed_beside(references, QUICK) == ALSO_QUICK, "the next candidate gets another one"
    assert references.ended == [QUICK]
    assert len(references) == 1


async def test_host_memory_of_runners_that_nobody_uses_counts_beyond_what_any_runner_may_use(pool: Pool) -> None:
    references = Made(pool, [QUICK], memory_bytes=(1 << 30) + 5)
    spec, sizes = cast(Any, SimpleNamespace(timed_key="p")), cast(Any, SimpleNamespace(sets=3, slot_bytes=256))
    known = cast(Any, SimpleNamespace(footprint=Footprint(1, 1, 1, 1, 1), seed=7))
    async with references.beside(known, spec, sizes, runner(QUICK), full_queues=True):
        assert references.idle_host_bytes == 0
    assert references.idle_host_bytes == 5
    await references.clear()
    assert references.idle_host_bytes == 0


async def test_the_next_candidates_get_the_class_for_which_a_reference_is_to_come(pool: Pool) -> None:
    references = Made(pool, [QUICK])
    spec = cast(Any, SimpleNamespace(timed_key="p"))
    other = cast(Any, SimpleNamespace(timed_key="q"))
    quick, slow = pool.class_of(runner(QUICK)), pool.class_of(runner(SLOW))
    assert references.classes(spec, full_queues=True) == set()
    references.expect(spec, runner(SLOW), full_queues=True)
    references.expect(spec, runner(QUICK), full_queues=True)  # no other one was ready
    assert references.classes(spec, full_queues=True) == {slow}
    assert references.classes(spec, full_queues=False) == references.classes(other, full_queues=True) == set()
    # A runner that exists counts, and not what the first candidate had.
    assert await timed_beside(references, QUICK) == QUICK
    assert references.classes(spec, full_queues=True) == {quick}


async def test_not_every_problem_that_ever_was_is_remembered(pool: Pool) -> None:
    references = Made(pool, [])
    for number in range(1000):
        references.expect(cast(Any, SimpleNamespace(timed_key=str(number))), runner(QUICK), full_queues=True)
    assert references.classes(cast(Any, SimpleNamespace(timed_key="0")), full_queues=True) == set()
    assert references.classes(cast(Any, SimpleNamespace(timed_key="999")), full_queues=True)

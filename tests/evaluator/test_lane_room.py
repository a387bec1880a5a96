"""Which candidates get a runner with full queues, for streams and many launches; it takes longer to start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kerneldyno.evaluator.judge.context import JudgeContext
from kerneldyno.evaluator.judge.lane import Lane
from kerneldyno.evaluator.shared.running_problem import Counted
from tests.evaluator import judge_harness

pytestmark = pytest.mark.pure


class Counting:
    """Problems that report this number of kernels, or raise this error, and count how often they are asked."""

    def __init__(self, kernels: int | Exception) -> None:
        self.kernels = kernels
        self.asked = 0

    async def count(self, known: Any, example: Any) -> Counted:
        self.asked += 1
        if isinstance(self.kernels, Exception):
            raise self.kernels
        return Counted(0, self.kernels)


async def needs_room(problems: Counting, source: str = "", *, quick_start: bool = True, timed: bool = True) -> bool:
    device = SimpleNamespace(quick_start_environment={"QUEUES": "1"} if quick_start else {}, quick_start_launches=16)
    context = SimpleNamespace(device=device, problems=problems)
    spec = judge_harness.spec(source, reference_code="", run_performance=timed)
    made = Lane(cast(JudgeContext, context), spec, lambda _: None, cast(Any, None))
    return await made._needs_full_queues(cast(Any, None), cast(Any, None))


@pytest.mark.parametrize(("kernels", "room"), [(1, False), (16, False), (17, True), (4000, True)])
async def test_references_that_launch_much_and_their_candidates_do(kernels: int, room: bool) -> None:
    assert await needs_room(Counting(kernels)) is room


async def test_who_uses_streams_does_whatever_the_reference_launches() -> None:
    problems = Counting(1)
    assert await needs_room(problems, "torch.cuda.Stream()")
    assert not problems.asked


async def test_who_is_not_timed_or_on_another_device_does_not_and_nothing_is_counted() -> None:
    problems = Counting(4000)
    assert not await needs_room(problems, timed=False)
    assert not await needs_room(problems, quick_start=False)
    assert not problems.asked


async def test_a_reference_that_cannot_be_counted_now_gets_what_most_get() -> None:
    assert not await needs_room(Counting(torch.OutOfMemoryError()))

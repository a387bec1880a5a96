"""A runner's answer when a burst is queued: host seconds of a call are accepted, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.judge.checks.candidate import Candidate
from kerneldyno.evaluator.judge.results import verdict
from kerneldyno.evaluator.judge.results.record import Finished, Record
from kerneldyno.evaluator.judge.runners.handle import Runner, RunnerGarbled, RunnerLate
from kerneldyno.evaluator.judge.runners.lease import Lease
from tests.evaluator import judge_harness

pytestmark = pytest.mark.pure


def hears(answer: Any) -> Candidate:
    """Return a candidate whose runner gives that answer, or raises it."""

    async def says(patience: float) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    runner = cast(Runner, SimpleNamespace(answer=says))
    spec = judge_harness.spec("", reference_code="")
    return Candidate(spec, open_device("cpu:0"), Lease([]), runner, Record(), verdict.Limits(1 << 30))


async def test_the_host_seconds_of_a_call_come_with_it() -> None:
    assert await hears({"ok": "queued", "launching": 2e-5}).queued(1) == 2e-5


async def test_a_burst_that_is_not_queued_in_time_is_none() -> None:
    assert await hears(RunnerLate()).queued(1) is None


@pytest.mark.parametrize("launching", [None, True, -1e-6, float("nan"), float("inf"), "1", [1e-6], 10**400])
async def test_host_seconds_that_no_clock_tells_are_no_answer_of_the_harness(launching: Any) -> None:
    with pytest.raises(RunnerGarbled):
        await hears({"ok": "queued", "launching": launching}).queued(1)


@pytest.mark.parametrize("answer", [{"ok": [1e-6]}, {"ok": None, "launching": 1e-6}])
async def test_another_answer_is_none_of_the_harness(answer: Any) -> None:
    with pytest.raises(RunnerGarbled):
        await hears(answer).queued(1)


async def test_what_a_call_raises_while_it_is_queued_ends_the_evaluation() -> None:
    raised = {"type": "ValueError", "message": "boom", "traceback": "", "bases": ["ValueError"]}
    with pytest.raises(Finished):
        await hears({"error": raised}).queued(1)

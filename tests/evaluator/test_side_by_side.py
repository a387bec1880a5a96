"""Trials side by side: each gets its own answers, one that fails fails alone, and what they ask travels together."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
import torch

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.judge.problems.side_by_side import side_by_side
from kerneldyno.evaluator.judge.runners.work import run, wait
from kerneldyno.evaluator.runner.problem import _Server
from kerneldyno.evaluator.shared import tree
from kerneldyno.evaluator.shared.reference_failure import ReferenceFailure
from kerneldyno.evaluator.shared.running_problem import Answer, Answering, Call, Draw, PreciseRun, RunningProblem
from tests.evaluator.judge_harness import Judge, request, spec

NO_LIMIT = {"memory_bytes": None}

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        {body}
def get_inputs():
    {before}
    return [torch.rand(64, 32)]
"""
CANDIDATE = REFERENCE.replace("class Model(", "class ModelNew(")


class Told:
    """A problem that notes what it is asked together. It draws n, answers 10 n, and 100 n in float64."""

    def __init__(self, *, ends: bool = False) -> None:
        self.orders: list[list[int]] = []
        self._ends = ends

    @contextlib.contextmanager
    def drawn_together(self, draws: Sequence[Draw]) -> Iterator[list[tuple[Any, list[torch.Tensor]]]]:
        self.orders.append([draw.number for draw in draws])
        yield [([], [torch.tensor([float(draw.number)])]) for draw in draws]

    def answer_together(self, calls: Sequence[Call]) -> list[Answer | BaseException]:
        if self._ends:
            raise ReferenceFailure("reference", RuntimeError("it has ended"))
        self.orders.append([10 * call.number for call in calls])
        failed = ReferenceFailure("reference", ValueError("not 2"))
        return [failed if call.number == 2 else Answer([], [10 * call.region], False, False) for call in calls]

    def precise_together(self, runs: Sequence[PreciseRun]) -> list[Any]:
        self.orders.append([100 * run.seed for run in runs])
        return [(None, [100 * run.tensors[0]]) for run in runs]


def asks(problem: Answering, number: int) -> tuple[float, list[float]]:
    with problem.drawn(number, 7) as (structure, (drawn,)):
        region = drawn.clone()
    specs = [tree.describe(region)]
    value = problem.answer(Call(number, structure, specs, region, 7)).values[0]
    runs = [PreciseRun([], [region], number)] * (number % 2 + 1)  # one asks for more than the other
    return float(value), [float(found[1][0]) for found in problem.precise(runs) if found]


def works(*numbers: int) -> list[Any]:
    return [functools.partial(asks, number=number) for number in numbers]


def problem(told: Told) -> RunningProblem:
    return cast(RunningProblem, told)


async def test_no_more_than_so_many_ask_at_once() -> None:
    told = Told()
    found = await run(lambda: side_by_side(problem(told), works(1, 3, 4, 5), at_once=2))
    assert [value[0] for value in found if isinstance(value, tuple)] == [10, 30, 40, 50]
    drawn, answered = ([order for order in told.orders if low <= order[0] < 10 * low] for low in (1, 10))
    assert max(map(len, drawn)) == max(map(len, answered)) == 2
    assert sorted(number for order in drawn for number in order) == [1, 3, 4, 5]


async def test_who_is_cancelled_ends_all_of_it() -> None:
    told, ended = Told(), []

    def waits(asked: Answering) -> None:
        with asked.drawn(1, 7):
            pass
        try:
            wait(asyncio.Event().wait())  # for the device, say
        except asyncio.CancelledError:
            ended.append("it waited")
            raise

    def asks_twice(asked: Answering) -> None:
        for number in (2, 3):
            try:
                with asked.drawn(number, 7):
                    pass
            finally:
                ended.append("it asked")

    running = asyncio.ensure_future(run(lambda: side_by_side(problem(told), [asks_twice, waits])))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == ["it asked", "it waited", "it asked"]
    assert told.orders == [[2, 1]]


async def test_who_is_cancelled_leaves_no_tensors_behind() -> None:
    """Trials of candidates that had failed at the first one were 6.7 GiB after 350 candidates on a GPU."""
    kept = []

    class Slow(Told):
        def answer_together(self, calls: Sequence[Call]) -> list[Answer | BaseException]:
            return cast("list[Answer | BaseException]", wait(asyncio.Event().wait()))

    def holds(asked: Answering) -> None:
        held = torch.ones(3)
        kept.append(weakref.ref(held))
        asks(asked, len(kept))

    running = asyncio.ensure_future(run(lambda: side_by_side(problem(Slow()), [holds] * 3)))
    await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    del running
    await asyncio.sleep(0)
    gc.collect()
    assert [each() for each in kept] == [None] * 3


def test_what_is_asked_travels_together_and_each_gets_its_own() -> None:
    told = Told()
    assert side_by_side(problem(told), works(3, 4)) == [(30.0, [300.0, 300.0]), (40.0, [400.0])]
    assert told.orders == [[3, 4], [30, 40], [300, 300, 400]]


def test_one_that_fails_fails_alone() -> None:
    told = Told()
    one, two, three = side_by_side(problem(told), works(1, 2, 3))
    assert (one, three) == ((10.0, [100.0, 100.0]), (30.0, [300.0, 300.0]))
    assert isinstance(two, ReferenceFailure)
    assert told.orders[-1] == [100, 100, 300, 300]


async def test_none_goes_on_when_the_problem_ends() -> None:
    seen = []

    def watched(asked: Answering) -> None:
        try:
            asks(asked, 1)
        except ReferenceFailure as failure:
            seen.append(str(failure))
            raise

    with pytest.raises(ReferenceFailure, match="it has ended"):
        await run(lambda: side_by_side(problem(Told(ends=True)), [watched, watched]))
    assert len(seen) == 2


@pytest.fixture
def own_judge() -> Iterator[Judge]:
    with Judge() as running:
        yield running


def judged(judge: Judge, body: str, *, before: str = "pass", candidate: str = "", **more: Any) -> dict[str, Any]:
    reference = REFERENCE.format(body=body, before=before)
    given = CANDIDATE.format(body=candidate or body, before=before)
    more = {"backend": "torch", "num_correct_trials": 6, "stress_inputs": True, **more}
    return judge.evaluate(request(given, reference_code=reference, **more))


def test_a_candidate_that_is_wrong_for_rare_inputs_is_found_among_them(judge: Judge) -> None:
    assert judged(judge, "return torch.exp(x)")["outcome"] == "CORRECT"
    wrong = judged(judge, "return torch.exp(x)", candidate="return torch.exp(x.abs())")
    assert (wrong["outcome"], "stress" in wrong["message"]) == ("INCORRECT", True), wrong["message"]


def test_a_reference_that_overflows_under_stress_refuses_nobody(judge: Judge) -> None:
    """exp overflows in one stressed draw of many, where its float64 twin is finite. Every third evaluation had one."""
    found = {judged(judge, "return torch.exp(x)")["outcome"] for _ in range(12)}
    assert found == {"CORRECT"}


def test_inputs_that_torch_does_not_see_change_must_be_changed_alike(judge: Judge) -> None:
    body = "torch.from_dlpack(x)[0] = 0.5; return torch.exp(x)"
    assert judged(judge, body)["outcome"] == "CORRECT"
    spared = judged(judge, body, candidate="x = x.clone(); x[0] = 0.5; return torch.exp(x)")
    assert (spared["outcome"], spared["incorrect"]["kind"]) == ("INCORRECT", "input mutated"), spared["message"]


def test_what_waits_for_a_larger_outbox_is_not_written_over_by_the_next_order() -> None:
    """A `get_inputs` that uses its memory again would give a candidate the same inputs in each trial."""
    again = "new = torch.empty(64, 32); return [get_inputs.__dict__.setdefault(str(new.device), new).uniform_()]"
    code = REFERENCE.format(body="return x", before=again)
    server = _Server(open_device("cpu:0"), [])
    built = server.answer(
        {"op": "build", "problem": spec("", reference_code=code).problem.to_plain(), "seed": 1} | NO_LIMIT
    )
    assert built["ok"]["symbol"]
    for index, seed in enumerate((3, 4)):
        order = {"op": "draw", "number": 0, "seed": seed, "series": [index, 2]}
        server.begin(order)
        assert server.answer(order)["ok"]["stored"] is False
    one, two = server._waiting[0]
    assert not torch.equal(one, two)


def test_a_reference_that_sometimes_fails_is_asked_one_by_one(judge: Judge) -> None:
    """One call of several raises: only that one is tried again, and its failure is what is reported."""
    body = "if float(x.max()) > 1.5: raise ValueError('too large')\n        return x * 2"
    result = judged(judge, body)
    assert result["outcome"] == "CORRECT", result["message"]


def test_each_order_of_several_has_the_whole_time_limit() -> None:
    with Judge("--reference-seconds", "1") as quick:
        body = "__import__('time').sleep(0.6)\n        return x * 2"
        result = judged(quick, body, candidate="return x * 2", num_correct_trials=4, stress_inputs=False)
    assert result["outcome"] == "CORRECT", result["message"]


def test_a_reference_that_dies_among_several_calls_costs_its_own_evaluation(own_judge: Judge) -> None:
    body = (
        "calls = globals().setdefault('calls', []); calls.append(1)\n        if len(calls) > 40: import os; os._exit(3)"
    )
    result = judged(own_judge, body + "\n        return x * 2", candidate="return x * 2")
    assert result["outcome"] in ("REFERENCE_ERROR", "CORRECT"), result["message"]
    assert judged(own_judge, "return x * 2")["outcome"] == "CORRECT"

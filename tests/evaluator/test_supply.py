"""Inputs for bursts: they are fresh, drawn ahead as far as memory allows, and each answer belongs to its own set."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.judge.memory.footprint import Footprint
from kerneldyno.evaluator.judge.problems.cache import BuiltProblem
from kerneldyno.evaluator.judge.problems.examination import examine
from kerneldyno.evaluator.judge.problems.trial import prepare
from kerneldyno.evaluator.judge.runners.work import T
from kerneldyno.evaluator.judge.timing import supply as supply_module
from kerneldyno.evaluator.judge.timing.supply import Batch, Supply
from kerneldyno.evaluator.shared import tree
from kerneldyno.evaluator.toolkits import ReferenceFailure
from kerneldyno.evaluator.toolkits.local import build_local
from tests.evaluator import judge_harness

pytestmark = pytest.mark.pure

CPU = open_device("cpu:0")

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, mask):
        return torch.relu(x) * mask

def get_inputs():
    return [torch.randn(16, 64), torch.randint(0, 2, (16, 64))]
"""


def supply(reference: str = REFERENCE, *, stress: bool = True) -> Supply:
    spec = judge_harness.spec("", reference_code=reference, stress_inputs=stress)
    problem = build_local(spec.problem, CPU, 7)
    example = prepare(problem, spec, CPU, 0)
    built = BuiltProblem(problem, examine(problem, spec, CPU), Footprint(0, 0, 0, 0, 0))
    inputs = example.inputs
    return Supply(built, spec, CPU, example, inputs.structure, inputs.specs, 12, random.Random(3))


async def ask(work: Callable[[], T]) -> T:
    return work()


def sets(made: Supply, batch: Batch) -> list[list[torch.Tensor]]:
    return [tree.views(batch.data[at * made.set_bytes :][: made.set_bytes], made.specs) for at in range(batch.count)]


@pytest.mark.parametrize("stress", [True, False])
async def test_each_set_is_new_and_each_answer_its_own(stress: bool) -> None:
    made = supply(stress=stress)
    seen = set()
    await made.draw_ahead([8, 8], ask)
    for checked in (3, 3, 1):  # of a batch that is drawn while all others are stopped, one output is checked
        batch = await made.take(8)
        assert len(batch.right) == checked
        for index, (x, mask) in enumerate(sets(made, batch)):
            seen.add(tuple(x.flatten().tolist()))
            assert set(mask.flatten().tolist()) <= {0, 1}  # stress never changes labels
            if index in batch.right:
                assert torch.equal(batch.right[index].expected.leaves[0].value, torch.relu(x) * mask)
    assert len(seen) == 24


async def test_what_is_drawn_ahead_is_handed_out_once_and_by_length() -> None:
    made = supply()
    await made.draw_ahead([5, 3, 5], ask)
    ahead = list(made._ahead)
    assert await made.take(5) is ahead[0]
    assert await made.take(5) is ahead[2]
    later = await made.take(5)
    assert all(later is not batch for batch in ahead)
    assert await made.take(3) is ahead[1]


async def test_no_more_is_drawn_ahead_than_memory_is_meant_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = supply()
    monkeypatch.setattr(supply_module, "drawn_ahead", lambda _: 9 * made.set_bytes)
    await made.draw_ahead([5, 4, 1], ask)
    assert [batch.count for batch in made._ahead] == [5, 4]


async def test_large_answers_use_up_what_may_be_drawn_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    made = supply(REFERENCE.replace("return torch.relu(x) * mask", "return torch.relu(x).repeat(1, 8)"))
    monkeypatch.setattr(supply_module, "drawn_ahead", lambda _: made.example.slot_bytes)
    assert made.room == 2
    await made.draw_ahead([1, 1], ask)
    assert [batch.count for batch in made._ahead] == [1]
    monkeypatch.setattr(supply_module, "drawn_ahead", lambda _: made.example.slot_bytes - 1)
    await made.draw_ahead([1], ask)
    assert [batch.count for batch in made._ahead] == [1]


async def test_no_more_sets_are_kept_than_memory_is_meant_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(supply_module._DRAWING_SECONDS, "cpu", 0.0)
    for most in (0, 2):
        monkeypatch.setattr(supply_module, "kept_sets", lambda *_, most=most: most)
        made = supply()
        for _ in range(3):
            await made.take(3)
        assert len(made._kept) == most


async def test_batches_are_drawn_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whether drawing is slow is not asked here: on a busy machine it may be.
    monkeypatch.setitem(supply_module._DRAWING_SECONDS, "cpu", math.inf)
    made, asked = supply(), []
    draw_sets = made.built.problem.draw_sets

    def counted(numbers: Sequence[int], *given: Any) -> None:
        asked.append(len(numbers))
        draw_sets(numbers, *given)

    made.built.problem.draw_sets = counted  # type: ignore[method-assign,assignment]
    await made.draw_ahead([2, 3, 4], ask)
    assert asked == [3, 6]  # a few sets show how long one takes
    batches = [await made.take(count) for count in (4, 3, 2)]
    assert [len(batch.data) for batch in batches] == [count * made.set_bytes for count in (4, 3, 2)]
    sets = [each for batch in batches for each in torch.split(batch.data, made.set_bytes)]
    assert len({bytes(each.tolist()) for each in sets}) == 9
    assert all(batch.right for batch in batches)


async def test_inputs_that_change_their_shape_are_refused() -> None:
    varying = REFERENCE.replace("torch.randn(16, 64)", "torch.randn(int(torch.randint(2, 1000, ())), 64)").replace(
        "return torch.relu(x) * mask", "return torch.relu(x).sum()"
    )
    with pytest.raises(ReferenceFailure, match="same shapes"):
        await supply(varying).take(6)


async def test_calls_that_do_not_count_get_inputs_that_are_no_secret_and_nothing_is_drawn_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = supply()
    monkeypatch.setattr(supply_module.trial, "draw", None)
    batch = await made.familiar(5)
    assert batch.right == {}
    assert torch.equal(batch.data.view(5, -1), made.example.inputs.master.expand(5, -1))

"""Bursts as the judge makes them: secret plans, fresh inputs, checked outputs, and one regime for both sides."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.devices.timed_loops import Station
from kerneldyno.evaluator.judge.checks.candidate import Candidate
from kerneldyno.evaluator.judge.memory.footprint import Footprint
from kerneldyno.evaluator.judge.problems.cache import BuiltProblem
from kerneldyno.evaluator.judge.problems.examination import examine
from kerneldyno.evaluator.judge.problems.trial import Inputs, prepare
from kerneldyno.evaluator.judge.results.record import Finished, Record
from kerneldyno.evaluator.judge.runners.handle import Runner
from kerneldyno.evaluator.judge.runners.lease import Lease
from kerneldyno.evaluator.judge.runners.side import Side
from kerneldyno.evaluator.judge.timing import bursts as module
from kerneldyno.evaluator.judge.timing import supply, timed_outputs
from kerneldyno.evaluator.judge.timing.bursts import Bursts
from kerneldyno.evaluator.judge.timing.reference_runners import ReferenceRunner
from kerneldyno.evaluator.judge.timing.regime import Regime
from kerneldyno.evaluator.judge.timing.supply import Batch
from kerneldyno.evaluator.shared import tree, wire
from kerneldyno.evaluator.toolkits import ReferenceFailure
from kerneldyno.evaluator.toolkits.local import build_local
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness

pytestmark = pytest.mark.pure

CPU = open_device("cpu:0")
SETS = 12

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, scale):
        return torch.relu(x) * scale

def get_inputs():
    return [torch.randn(16, 64), 2.0]
"""


def station(inputs: Inputs, slot_bytes: int) -> Station:
    arena_in = torch.zeros(SETS * inputs.set_bytes, dtype=torch.uint8)
    arena_out = torch.zeros(SETS * slot_bytes, dtype=torch.uint8)
    shapes = {"sets": SETS, "slots": SETS, "slot_bytes": slot_bytes}
    return Station.over(CPU, inputs.structure, inputs.specs, arena_in, arena_out, **shapes)


def bursts(seed: int = 0, reference: str = REFERENCE, *, gate: bool = False, queueable: int = 1 << 30) -> Bursts:
    spec = judge_harness.spec("", reference_code=reference, stress_inputs=True)
    problem = build_local(spec.problem, CPU, 7)
    example = prepare(problem, spec, CPU, 0)
    place = station(example.inputs, example.slot_bytes)
    sides = SimpleNamespace(spec=spec, device=CPU, station=place, gate=object() if gate else None, record=Record())
    other = SimpleNamespace(station=station(example.inputs, example.slot_bytes), timed=True, is_checked=False)
    built = BuiltProblem(problem, examine(problem, spec, CPU), Footprint(0, 0, 0, 0, 0), queueable=queueable)
    made = Bursts(cast(Candidate, sides), cast(ReferenceRunner, other), built, example, random.Random(seed))
    made.begin()
    return made


def sets_of(made: Bursts, batch: Batch) -> list[torch.Tensor]:
    size = made.set_bytes
    return [batch.data[at * size :][:size].clone() for at in range(batch.count)]


def assert_right(made: Bursts, batch: Batch) -> None:
    sets = sets_of(made, batch)
    for index, expected in batch.right.items():
        (x,) = tree.views(sets[index], made.supply.specs)
        assert torch.equal(expected.expected.leaves[0].value, torch.relu(x) * 2)


# Checks of outputs


async def test_outputs_are_compared_when_the_device_is_others_again_or_when_they_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = bursts()
    right = (await made.supply.take(3)).right
    outputs = {index: torch.zeros(made.candidate.station.outputs.shape[1], dtype=torch.uint8) for index in right}
    made.outputs.keep(right, outputs)
    assert made.candidate.record.timed_checks == 0
    with pytest.raises(Finished) as finished:
        made.outputs.judge()
    assert finished.value.result.outcome == pb.EvalResult.INCORRECT
    monkeypatch.setattr(timed_outputs, "unjudged", lambda _: 0)
    made = bursts()
    right = (await made.supply.take(3)).right
    with pytest.raises(Finished):
        made.outputs.keep(right, outputs)


async def test_only_outputs_of_the_candidate_are_looked_at() -> None:
    made = bursts()
    batch = await made.supply.take(3)
    plan = made.plan(made.candidate, batch, cold=True)
    assert len(made.outputs.watched(made.candidate, plan, batch)) == len(batch.right) > 0
    assert made.outputs.watched(made.reference, plan, batch) == {}


async def test_outputs_of_a_library_baseline_are_compared_and_are_no_verdict_on_the_candidate() -> None:
    made = bursts()
    made.reference.is_checked = True
    batch = await made.supply.take(3)
    plan = made.plan(made.reference, batch, cold=True)
    assert len(made.outputs.watched(made.reference, plan, batch)) == len(batch.right)
    outputs = {index: torch.zeros(made.reference.station.outputs.shape[1], dtype=torch.uint8) for index in batch.right}
    made.outputs.keep(batch.right, outputs, of_reference=True)
    with pytest.raises(ReferenceFailure, match="in a timed call"):
        made.outputs.judge()
    assert made.candidate.record.timed_checks == 0


# The plan


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 2, 7, SETS])
async def test_every_call_has_a_set_and_a_slot_of_its_own(count: int, seed: int) -> None:
    made = bursts(seed)
    plan = made.plan(made.candidate, await made.supply.take(count), cold=True)
    assert sorted(plan.sets) == list(range(count))
    assert len(set(plan.slots)) == len(plan.slots) == len(plan.seeds) == count
    assert set(plan.slots) <= set(range(SETS))


async def test_plans_are_in_no_order_that_could_be_known() -> None:
    made = bursts()
    plans = [made.plan(made.candidate, await made.supply.take(SETS), cold=True) for _ in range(4)]
    assert len({tuple(plan.sets) for plan in plans}) == 4
    assert len({tuple(plan.slots) for plan in plans}) == 4
    assert all(plan.sets != plan.slots for plan in plans)


async def test_calls_that_are_looked_at_run_under_the_seed_of_their_answer() -> None:
    made = bursts()
    batch = await made.supply.take(SETS)
    plan = made.plan(made.candidate, batch, cold=True)
    for index, expected in batch.right.items():
        assert plan.seeds[plan.sets.index(index)] == expected.seed
    assert len(set(plan.seeds)) == SETS


# Inputs of a burst


async def test_every_set_is_fresh_and_what_is_right_is_for_just_that_one() -> None:
    made = bursts()
    batch = await made.supply.take(SETS)
    assert len({tuple(each.tolist()) for each in sets_of(made, batch)}) == SETS
    assert_right(made, batch)


async def test_inputs_that_are_slow_to_draw_are_changed_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(supply._DRAWING_SECONDS, "cpu", 0.0)
    made = bursts(reference=REFERENCE.replace("16, 64", "64, 256"))  # so large that all sets are changed differently
    for _ in range(2):
        batch = await made.supply.take(SETS)
        drawn = {tuple(each.tolist()) for each in made.supply._kept}
        assert len(drawn) == 4
        sets = {tuple(each.tolist()) for each in sets_of(made, batch)}
        assert len(sets) == SETS
        assert not sets & drawn
        assert_right(made, batch)


async def test_how_long_drawing_takes_is_known_to_the_next_candidate() -> None:
    made = bursts()
    made.built.seconds_a_set = 60.0
    await made.supply.take(SETS)
    assert 0 < made.built.seconds_a_set < 60.0  # one slow measurement is forgotten


async def test_inputs_of_varying_shape_cannot_be_timed() -> None:
    varying = REFERENCE.replace("torch.randn(16, 64)", "torch.randn(int(torch.randint(1, 1000, ())), 64)")
    with pytest.raises(ReferenceFailure, match="same shapes"):
        await bursts(reference=varying).supply.take(SETS)


async def test_what_lies_in_the_arena_before_a_burst_is_inputs_that_do_not_count_and_a_pattern() -> None:
    made = bursts()
    batch = await made.supply.take(3)
    plan = made.plan(made.candidate, batch, cold=True)
    size, arena = made.set_bytes, made.candidate.station.arena
    made._staging.erase(made.candidate, plan, lead_in=1)
    assert torch.equal(arena[:size], made.example.inputs.master)
    assert bool((arena[size : 3 * size] == 0xFF).all())
    made._staging.erase(made.candidate, plan)
    assert bool((arena[: 3 * size] == 0xFF).all())
    made._staging.show(made.candidate, batch, 1)
    assert torch.equal(arena[size : 2 * size], batch.data[size : 2 * size])
    for nobodys in (arena[:size], arena[2 * size : 3 * size]):
        assert bool((nobodys == 0xFF).all())


# The regime


def test_calls_that_are_not_queued_in_time_shorten_the_bursts_of_both_sides_and_then_nobody_queues() -> None:
    made = bursts(gate=True)
    seen = [(made.regime.kind, made.regime.queueable)]
    while made.regime.queued:
        made.regime.shorten(made.regime.queueable)
        seen.append((made.regime.kind, made.regime.queueable))
    queued, called = pb.TimingStats.REGIME_QUEUED_AHEAD, pb.TimingStats.REGIME_AS_CALLED
    assert seen == [(queued, 12), (queued, 1), (called, 0)]


def test_what_is_known_of_a_reference_holds_for_its_next_candidate() -> None:
    assert bursts(gate=True, queueable=5).regime == Regime(5)
    assert not bursts(gate=True, queueable=0).regime.queued
    assert not bursts(gate=False).regime.queued  # a device without queues


class Obeying(Side):
    """A side that answers each burst at once and remembers the values of its signals."""

    def __init__(self, made: Bursts) -> None:
        super().__init__(CPU, cast(Lease, None), cast(Runner, self))
        self._station = made.candidate.station
        self.values: list[int] = []
        self._count = 0

    def send(self, order: wire.Frame) -> None:
        self.values.append(order["value"])
        self._count = len(order["sets"])

    async def _frame(self) -> wire.Frame:
        return {"ok": [1e-5] * self._count}

    def _heed(self, answer: wire.Frame) -> Any:
        return answer["ok"]


async def test_signals_of_each_side_go_on_counting_through_all_sessions() -> None:
    made = bursts()
    candidate, first, second = Obeying(made), Obeying(made), Obeying(made)
    for reference in (first, first, second):  # a candidate is timed beside several, and one beside several candidates
        session = Bursts(made.candidate, cast(ReferenceRunner, reference), made.built, made.example, made.rng)
        session.begin()
        for side in (candidate, reference, candidate):
            await session.warm_up(side, 2, cold=False)
    assert candidate.values == [1, 2, 3, 4, 5, 6]
    assert (first.values, second.values) == ([1, 2], [1])
    assert candidate.next_value(5) == 7
    assert candidate.next_value() == 12


# The end of a burst


class Answering:
    """A side whose runner has answered or not, as the test says."""

    def __init__(self, *, answered: bool = False) -> None:
        self.asked = 0
        self._answered = answered

    async def is_over(self) -> bool:
        self.asked += 1
        await asyncio.sleep(0)
        return self._answered


async def test_a_burst_ends_when_the_signal_is_there_whatever_the_runner_says() -> None:
    looks = iter([False] * 4 + [True])
    side = Answering()
    await Bursts._until(lambda: next(looks), cast(Side, side))
    assert next(looks, None) is None
    assert side.asked == 0


async def test_a_burst_also_ends_when_the_runner_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WATCHED", 0.001)
    side: Any = Answering()
    waiting = asyncio.ensure_future(Bursts._until(lambda: False, side))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert side.asked > 1
    side._answered = True
    await asyncio.wait({waiting}, timeout=1)
    assert waiting.done()

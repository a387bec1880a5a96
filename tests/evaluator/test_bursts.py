"""Bursts: every call has its own inputs and slot, nothing visible says which call it is, and what is checked is secret."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from judge_harness import request
from kerneldyno.evaluator import tree
from kerneldyno.evaluator.burst import Plan, Station, capture, run_burst
from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.devices.base import Gate
from kerneldyno.evaluator.devices.cpu import CpuDevice
from kerneldyno.evaluator.judge import bursts as module
from kerneldyno.evaluator.judge import supply
from kerneldyno.evaluator.judge.bursts import Bursts
from kerneldyno.evaluator.judge.candidate import Candidate
from kerneldyno.evaluator.judge.examination import examine
from kerneldyno.evaluator.judge.problems import Known
from kerneldyno.evaluator.judge.record import Finished, Record
from kerneldyno.evaluator.judge.trial import Inputs, Trial, draw, prepare
from kerneldyno.evaluator.spec import EvalSpec
from kerneldyno.evaluator.toolkits import ReferenceFailure, toolkits

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
    return Station.over(CPU, inputs.structure, inputs.specs, arena_in, arena_out, sets=SETS, slots=SETS)


def bursts(seed: int = 0, reference: str = REFERENCE) -> Bursts:
    spec = EvalSpec.from_json(request("", reference_code=reference, stress_inputs=True))
    problem = toolkits()["kernelbench"].build(spec, CPU.torch_device, 7)
    example = prepare(problem, spec, CPU, 0)
    place = station(example.inputs, example.slot_bytes)
    candidate = cast(Candidate, SimpleNamespace(spec=spec, device=CPU, station=place, gate=None, record=Record()))
    known = Known(problem, examine(problem, spec, CPU))

    async def announce(_: str) -> None:
        pass

    made = Bursts(candidate, known, announce, example, random.Random(seed))
    made.begin()
    return made


def staged_sets(made: Bursts) -> list[torch.Tensor]:
    size = made.set_bytes
    return [made._staged[at * size :][:size].clone() for at in range(SETS)]


def assert_right(made: Bursts, right: dict[int, Trial]) -> None:
    sets = staged_sets(made)
    for index, expected in right.items():
        (x,) = tree.views(sets[index], made.supply.specs)
        assert torch.equal(expected.expected.leaves[0].value, torch.relu(x) * 2)


# The station


def test_a_slot_takes_what_fits_and_nothing_else_whatever_came_before() -> None:
    place = station(Inputs([{"tensor": 0}], [tree.describe(torch.zeros(4))], torch.zeros(256, dtype=torch.uint8)), 256)
    for value in (torch.arange(64.0), torch.arange(32.0) + 5, torch.arange(64.0).flip(0)):
        place.store(value, 3)
        assert torch.equal(place.outputs[3].view(torch.float32)[: value.numel()], value)
    before = place.outputs.clone()
    structure, tensors = place.store((torch.ones(60), [torch.ones(60)]), 3)
    assert torch.equal(place.outputs, before)
    assert (structure, len(tensors)) == ({"tuple": [{"tensor": 0}, [{"tensor": 1}]]}, 2)


def test_all_slots_are_known_after_the_first_call_so_that_no_later_one_takes_longer() -> None:
    made = bursts()
    assert [len(places) for places in made._idle._places.values()] == [SETS]
    made.draw(SETS)
    made.nothing(SETS, cold=False)
    assert len(made._idle._places) == 1


# Judging


async def test_outputs_are_compared_when_the_device_is_others_again_or_when_they_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = bursts()
    right = made.draw(3)
    outputs = {index: torch.zeros(made.candidate.station.outputs.shape[1], dtype=torch.uint8) for index in right}
    made._keep([(right[index], outputs[index]) for index in right])
    assert made.candidate.record.timed_checks == 0
    with pytest.raises(Finished) as finished:
        made.judge()
    assert finished.value.result["outcome"] == "INCORRECT"
    monkeypatch.setitem(module._UNJUDGED_BYTES, "cpu", 0)
    made = bursts()
    right = made.draw(3)
    with pytest.raises(Finished):
        made._keep([(right[index], outputs[index]) for index in right])


# The plan


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 2, 7, SETS])
def test_every_call_has_a_set_and_a_slot_of_its_own(count: int, seed: int) -> None:
    plan = bursts(seed).plan(count, cold=True)
    assert sorted(plan.sets) == list(range(count))
    assert len(set(plan.slots)) == len(plan.slots) == len(plan.seeds) == count
    assert set(plan.slots) <= set(range(SETS))


def test_plans_are_in_no_order_that_could_be_known() -> None:
    made = bursts()
    plans = [made.plan(SETS, cold=True) for _ in range(4)]
    assert len({tuple(plan.sets) for plan in plans}) == 4
    assert len({tuple(plan.slots) for plan in plans}) == 4
    assert all(plan.sets != plan.slots for plan in plans)


def test_calls_that_are_looked_at_run_under_the_seed_of_their_answer() -> None:
    made = bursts()
    right = made.draw(SETS)
    plan = made.plan(SETS, cold=True, right=right)
    for index, expected in right.items():
        assert plan.seeds[plan.sets.index(index)] == expected.seed
    assert len(set(plan.seeds)) == SETS


# Drawing


def test_few_calls_are_looked_at_and_others_each_time() -> None:
    made = bursts()
    looked_at = [tuple(sorted(made.draw(SETS))) for _ in range(4)]
    assert all(len(each) == 4 for each in looked_at)
    assert len(set(looked_at)) > 1
    assert set(made.draw(2)) == {0, 1}


def test_every_set_is_fresh_and_what_is_right_is_for_just_that_one() -> None:
    made = bursts()
    right = made.draw(SETS)
    assert len({tuple(each.tolist()) for each in staged_sets(made)}) == SETS
    assert_right(made, right)


def test_inputs_that_are_slow_to_draw_are_changed_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(supply._DRAWING_SECONDS, "cpu", 0.0)
    made = bursts(reference=REFERENCE.replace("16, 64", "64, 256"))  # large enough that no two are changed alike
    for _ in range(2):
        right = made.draw(SETS)
        drawn = {tuple(each.tolist()) for each in made.supply._kept}
        assert len(drawn) == 4
        sets = {tuple(each.tolist()) for each in staged_sets(made)}
        assert len(sets) == SETS
        assert not sets & drawn
        assert_right(made, right)


def test_how_long_drawing_takes_is_known_to_the_next_candidate() -> None:
    made = bursts()
    made.known.seconds_a_set = 60.0
    made.draw(SETS)
    assert 0 < made.known.seconds_a_set < 60.0  # and one slow moment is forgotten


def test_inputs_of_varying_shape_cannot_be_timed() -> None:
    varying = REFERENCE.replace("torch.randn(16, 64)", "torch.randn(int(torch.randint(1, 1000, ())), 64)")
    with pytest.raises(ReferenceFailure, match="same shapes"):
        bursts(reference=varying).draw(SETS)


async def test_reference_and_nothing_get_the_same_inputs_and_keep_no_secret() -> None:
    made = bursts()
    made.draw(SETS)
    timed = await made.reference(SETS)
    assert timed.calls == len(timed.device_seconds) == SETS
    size = made.set_bytes
    assert torch.equal(made._shadow[: SETS * size], made._staged[: SETS * size])
    empty = made.nothing(SETS, cold=True)
    assert empty.calls == len(empty.device_seconds) == SETS
    assert not any(slot.any() for slot in made.candidate.station.outputs)  # zeros, whatever the right answers are


# The loop


class Witness:
    """A candidate that notes all it can see of its inputs."""

    def __init__(self) -> None:
        self.pointers: list[int] = []
        self.versions: list[int] = []
        self.identities: list[int] = []
        self.values: list[torch.Tensor] = []
        self.random: list[float] = []
        self._kept: list[torch.Tensor] = []

    def __call__(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        self.pointers.append(x.data_ptr())
        self.versions.append(x._version)
        self.identities.append(id(x))
        self._kept.append(x)  # so that no identity comes twice by accident
        self.values.append(x.clone())
        self.random.append(float(torch.rand(())))
        return torch.relu(x) * scale


def staged() -> Station:
    spec = EvalSpec.from_json(request("", reference_code=REFERENCE))
    problem = toolkits()["kernelbench"].build(spec, CPU.torch_device, 7)
    place = station(draw(problem, CPU, 0), 16 * 64 * 4)
    for (x,) in place.inputs:
        x.copy_(torch.randn(16, 64))
    return place


PLAN = Plan([3, 0, 5, 1, 4, 2], [7, 6, 11, 0, 2, 9], [10, 11, 12, 13, 14, 10], cold=True)


@pytest.mark.parametrize("cold", [True, False])
def test_each_output_goes_into_its_slot_and_no_other(cold: bool) -> None:
    place, witness = staged(), Witness()
    seconds = run_burst(witness, place, Plan(PLAN.sets, PLAN.slots, PLAN.seeds, cold))
    assert len(seconds) == 6
    assert all(second > 0 for second in seconds)
    for value, index, slot in zip(witness.values, PLAN.sets, PLAN.slots, strict=True):
        (x,) = place.inputs[index]
        assert torch.equal(value, x)
        assert torch.equal(place.outputs[slot].view(torch.float32).view(16, 64), torch.relu(x) * 2)
    for slot in set(range(SETS)) - set(PLAN.slots):
        assert not place.outputs[slot].any()


def test_cold_calls_see_addresses_come_again_and_new_ones() -> None:
    witness = Witness()
    run_burst(witness, staged(), PLAN)
    same, other = witness.pointers[::2], witness.pointers[1::2]
    assert len(set(same)) == 1
    assert len(set(other)) == 3
    assert not set(same) & set(other)


def test_nothing_but_the_values_says_that_they_are_new() -> None:
    witness = Witness()
    run_burst(witness, staged(), PLAN)
    assert len(set(witness.versions[::2])) == 1
    assert len(set(witness.identities[::2])) == 1
    assert not any(
        torch.equal(first, second) for first, second in zip(witness.values, witness.values[2:], strict=False)
    )


class Queue(CpuDevice):
    """A CPU that notes what lies between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.between: list[int | str] = []

    def shift_queue(self, places: int) -> None:
        self.between.append(places)

    def flush_cache(self) -> None:
        self.between.append("flush")


@pytest.mark.parametrize("cold", [True, False])
def test_cold_calls_begin_at_random_places_of_the_queue(cold: bool) -> None:
    queue, orders = Queue(), set()
    for _ in range(20):
        queue.between.clear()
        place = dataclasses.replace(staged(), device=queue)
        run_burst(Witness(), place, Plan(PLAN.sets, PLAN.slots, PLAN.seeds, cold))
        shifts, flushes = queue.between[::2], queue.between[1::2]
        assert flushes == ["flush"] * 6 * cold  # the last thing before a call, wherever it begins
        assert sorted(map(shifts.count, range(4))) == [1 * cold, 1 * cold, 2 * cold, 2 * cold]
        orders.add(tuple(shifts))
    assert len(orders) > 10 or not cold


def test_warm_calls_work_on_the_arena_itself() -> None:
    place, witness = staged(), Witness()
    run_burst(witness, place, Plan(PLAN.sets, PLAN.slots, PLAN.seeds, cold=False))
    assert witness.pointers == [place.inputs[index][0].data_ptr() for index in PLAN.sets]


def test_seeds_are_those_of_the_plan() -> None:
    witness = Witness()
    run_burst(witness, staged(), PLAN)
    assert witness.random[0] == witness.random[5]
    assert len(set(witness.random)) == 5


def test_inputs_in_the_arena_survive_cold_calls_that_overwrite_them() -> None:
    place = staged()
    before = place.arena.clone()

    def overwrite(x: torch.Tensor, scale: float) -> torch.Tensor:
        return x.mul_(scale)

    run_burst(overwrite, place, PLAN)
    assert torch.equal(place.arena, before)


def test_an_output_that_is_too_large_is_not_stored() -> None:
    place = staged()
    before = [slot.clone() for slot in place.outputs]
    run_burst(lambda x, scale: torch.ones(10_000), place, PLAN)
    assert all(map(torch.equal, place.outputs, before))


def test_what_a_call_raises_is_raised() -> None:
    def broken(*_: Any) -> None:
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        run_burst(broken, staged(), PLAN)


# Replayed calls


class Recorder(CpuDevice):
    """Records calls as a GPU does: what is replayed works on the same memory. `forgets`: nothing is done again."""

    def __init__(self, *, forgets: bool = False) -> None:
        super().__init__()
        self._forgets = forgets

    def capture(self, calls: Sequence[Callable[[], Any]]) -> list[Callable[[], Any]] | None:
        return [self._record(call) for call in calls]

    def _record(self, call: Callable[[], Any]) -> Callable[[], Any]:
        result = call().clone()
        return lambda: result if self._forgets else result.copy_(call())


def recorded(**changes: bool) -> Station:
    return dataclasses.replace(staged(), device=Recorder(**changes))


def relu(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.relu(x) * scale


def mean_of_squares(x: torch.Tensor, scale: float) -> torch.Tensor:
    return 100 + (x * x).mean()


def sign(x: torch.Tensor, scale: float) -> torch.Tensor:
    return (x > 0).sum(0)


@pytest.mark.parametrize("cold", [True, False])
def test_a_replayed_call_works_on_its_input_set_where_that_is(cold: bool) -> None:
    place, calls = recorded(), []

    def noting(x: torch.Tensor, scale: float) -> torch.Tensor:
        calls.append(x.data_ptr())
        return torch.relu(x) * scale

    replays = capture(noting, place, 6)
    assert len(replays) == 6
    calls.clear()
    run_burst(noting, place, Plan(PLAN.sets, PLAN.slots, PLAN.seeds, cold), replays=replays)
    assert calls == [place.inputs[index][0].data_ptr() for index in PLAN.sets]
    for index, slot in zip(PLAN.sets, PLAN.slots, strict=True):
        (x,) = place.inputs[index]
        assert torch.equal(place.outputs[slot].view(torch.float32).view(16, 64), torch.relu(x) * 2)


def phase(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.complex(torch.ones_like(x), x)


@pytest.mark.parametrize("call", [relu, mean_of_squares, sign, phase])
def test_what_does_not_do_what_the_call_does_is_not_replayed(call: Callable[..., torch.Tensor]) -> None:
    assert len(capture(call, recorded(), 6)) == 6
    assert capture(call, recorded(forgets=True), 6) == []
    assert capture(call, staged(), 6) == []  # a device that records nothing


def test_where_results_do_not_change_with_the_inputs_nobody_can_tell_whether_a_replay_works() -> None:
    assert capture(lambda x, scale: torch.ones(3), recorded(), 6) == []


def test_random_numbers_of_the_host_are_not_replayed() -> None:
    assert capture(lambda x, scale: x * scale if float(torch.rand(())) < 2 else x, recorded(), 6) == []


def test_a_call_that_changes_its_inputs_can_be_replayed() -> None:
    place = recorded()
    replays = capture(lambda x, scale: x.mul_(scale), place, 6)
    assert len(replays) == 6
    before = [x.clone() for (x,) in place.inputs]
    run_burst(relu, place, PLAN, replays=replays)
    for index, slot in zip(PLAN.sets, PLAN.slots, strict=True):
        assert torch.equal(place.outputs[slot].view(torch.float32).view(16, 64), before[index] * 2)


# The end of a burst


class Door(Gate):
    """A gate whose burst ends when the test says so."""

    def __init__(self, finished_at: int = 0) -> None:
        self.looks = 0
        self._finished_at = finished_at

    def wait(self, value: int) -> None: ...

    def finish(self, value: int) -> None: ...

    def open(self, value: int) -> None: ...

    def force(self, value: int) -> None: ...

    def open_after(self, value: int, seconds: float) -> None: ...

    def hold(self, value: int) -> bool:
        return False

    def is_finished(self, value: int) -> bool:
        self.looks += 1
        return bool(self._finished_at) and self.looks >= self._finished_at

    def beside(self) -> AbstractContextManager[None]:
        return nullcontext()


async def test_a_burst_ends_when_the_device_says_so_whatever_the_runner_says() -> None:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    door = Door(finished_at=5)
    await Bursts._end(door, 1, answer)
    assert door.looks == 5
    assert not answer.done()


@pytest.mark.parametrize("gate", [Door(), None])
async def test_or_when_the_runner_answers_and_others_go_on_meanwhile(
    monkeypatch: pytest.MonkeyPatch, gate: Door | None
) -> None:
    monkeypatch.setattr(module, "_WATCHED", 0.001)
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.05, answer.set_exception, RuntimeError("the runner is gone"))
    await Bursts._end(gate, 1, answer)
    assert answer.done()
    with pytest.raises(RuntimeError):
        await answer


def test_calls_that_wait_for_the_device_are_not_queued_but_bursts_of_them_are_long() -> None:
    made = bursts()
    longest = made.longest
    made._shorten(longest)
    assert made.queued_ahead == (True, max(3, longest // 4))
    made._shorten(made.longest)
    assert made.queued_ahead == (False, longest)

"""The timed loops: each call has its own inputs and slot, cannot know its position, and leaves no object alive."""

from __future__ import annotations

import dataclasses
import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.devices.cpu import CpuDevice
from kerneldyno.evaluator.devices.signals import DONE, READY, RELEASED, Signals
from kerneldyno.evaluator.devices.timed_loops import Plan, Station, capture, lead_in, run_burst, run_paced
from kerneldyno.evaluator.judge.problems.trial import Inputs, draw
from kerneldyno.evaluator.shared import tree
from kerneldyno.evaluator.toolkits.local import build_local
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


def test_a_slot_takes_what_fits_and_nothing_else_whatever_came_before() -> None:
    place = station(Inputs([{"tensor": 0}], [tree.describe(torch.zeros(4))], torch.zeros(256, dtype=torch.uint8)), 256)
    for value in (torch.arange(64.0), torch.arange(32.0) + 5, torch.arange(64.0).flip(0)):
        place.store(value, 3)
        assert torch.equal(place.outputs[3].view(torch.float32)[: value.numel()], value)
    before = place.outputs.clone()
    structure, tensors = place.store((torch.ones(60), [torch.ones(60)]), 3)
    assert torch.equal(place.outputs, before)
    assert (structure, len(tensors)) == ({"tuple": [{"tensor": 0}, [{"tensor": 1}]]}, 2)


class Witness:
    """A candidate that records everything it can see of its inputs."""

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
        self._kept.append(x)  # so that no other tensor gets the same id by accident
        self.values.append(x.clone())
        self.random.append(float(torch.rand(())))
        return torch.relu(x) * scale


def staged() -> Station:
    spec = judge_harness.spec("", reference_code=REFERENCE)
    problem = build_local(spec.problem, CPU, 7)
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
    """A CPU device that records what happens between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.between: list[int | str] = []

    def shift_queue(self, places: int) -> None:
        self.between.append(places)

    def flush_cache(self) -> None:
        self.between.append("flush")

    def switch_to_this_process(self) -> None:
        self.between.append("turn")


@pytest.mark.parametrize("cold", [True, False])
def test_cold_calls_begin_at_random_places_of_the_queue(cold: bool) -> None:
    queue, orders = Queue(), set()
    for _ in range(20):
        queue.between.clear()
        place = dataclasses.replace(staged(), device=queue)
        run_burst(Witness(), place, Plan(PLAN.sets, PLAN.slots, PLAN.seeds, cold))
        shifts, flushes = queue.between[::2], queue.between[1::2]
        assert flushes == ["flush"] * 6 * cold  # the last step before each call, after the shift
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
    """A device that records calls as a GPU does: replays use the same memory. If `forgets` is true, they do nothing."""

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
    assert capture(call, staged(), 6) == []  # this device records nothing


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


# One call at a time


class Pacer:
    """A stand-in for the judge. It releases each call as soon as it is ready, and records what it sees."""

    def __init__(
        self,
        count: int,
        base: int,
        looked_at: Callable[[], int] = int,
        show: Callable[[int], None] = lambda step: None,
    ) -> None:
        page = CPU.runner_descriptors()
        self.signals = CPU.signals(page)
        self._judge = CPU.signals(page)
        for descriptor in page:
            os.close(descriptor)
        self._count, self._base = count, base
        self.seen: list[str] = []
        self._looked_at, self._show = looked_at, show
        self.stored: list[int] = []
        self._thread = threading.Thread(target=self._pace, daemon=True)

    def __enter__(self) -> Signals:
        self._thread.start()
        return self.signals

    def __exit__(self, *_: object) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _pace(self) -> None:
        for step in range(2 * self._count):
            value, number = self._base + step, step // 2 + 1
            self._judge.wait(READY, value)
            assert not self._judge.has(DONE, value)
            if step % 2 == 0:
                self._show(step // 2)
                self._judge.tell(RELEASED, value)
                self.seen.append(f"inputs {number}")
                continue
            self._judge.tell(RELEASED, value)
            self.seen.append(f"ready {number}")
            self._judge.wait(DONE, value)
            self.stored.append(self._looked_at())
            self.seen.append(f"done {number}")


@pytest.mark.parametrize("cold", [True, False])
def test_paced_calls_wait_for_the_judge_one_by_one(cold: bool) -> None:
    place, witness = staged(), Witness()
    pacer = Pacer(6, 41, lambda: sum(bool(slot.any()) for slot in place.outputs))
    with pacer as signals:
        claimed = run_paced(witness, place, Plan(PLAN.sets, PLAN.slots, PLAN.seeds, cold), signals=signals, base=41)
    assert pacer.seen == [f"{word} {step}" for step in range(1, 7) for word in ("inputs", "ready", "done")]
    assert pacer.stored == [1, 2, 3, 4, 5, 6]  # a call ends when its output is in the judge's memory
    assert len(claimed) == 6
    assert all(second > 0 for second in claimed)
    where = {inputs[0].data_ptr() for inputs in place.inputs}
    # The arena's addresses influence how long calls take, and they never change while its process lives.
    assert where.isdisjoint(witness.pointers) if cold else where.issuperset(witness.pointers)
    for index, slot in zip(PLAN.sets, PLAN.slots, strict=True):
        (x,) = place.inputs[index]
        assert torch.equal(place.outputs[slot].view(torch.float32).view(16, 64), torch.relu(x) * 2)


@pytest.mark.parametrize("cold", [True, False])
def test_paced_calls_get_inputs_that_were_not_there_while_the_call_before_was_made(cold: bool) -> None:
    place, witness = staged(), Witness()
    right = [inputs[0].clone() for inputs in place.inputs]
    for inputs in place.inputs:
        inputs[0].fill_(float("nan"))

    def show(step: int) -> None:
        assert len(witness.values) == step
        place.inputs[PLAN.sets[step]][0].copy_(right[PLAN.sets[step]])

    with Pacer(6, 1, show=show) as signals:
        run_paced(witness, place, Plan(PLAN.sets, PLAN.slots, PLAN.seeds, cold), signals=signals, base=1)
    for made, index in zip(witness.values, PLAN.sets, strict=True):
        assert torch.equal(made, right[index])


@pytest.mark.parametrize("cold", [True, False])
def test_paced_calls_find_the_device_turned_to_their_process_which_the_judge_has_just_used(cold: bool) -> None:
    queue = Queue()
    place, turns = dataclasses.replace(staged(), device=queue), []
    with Pacer(6, 1, show=lambda step: turns.append(len(queue.between))) as signals:
        run_paced(Witness(), place, Plan(PLAN.sets, PLAN.slots, PLAN.seeds, cold), signals=signals, base=1)
    assert queue.between == ["flush" if cold else "turn"] * 6
    assert turns == list(range(6))


def test_paced_calls_run_under_the_seeds_of_the_plan() -> None:
    witness = Witness()
    with Pacer(6, 1) as signals:
        run_paced(witness, staged(), PLAN, signals=signals, base=1)
    assert witness.random[0] == witness.random[5]
    assert len(set(witness.random)) == 5


def test_signals_count_up_and_are_seen_by_the_other_side() -> None:
    page = CPU.runner_descriptors()
    ours, theirs = CPU.signals(page), CPU.signals(page)
    for descriptor in page:
        os.close(descriptor)
    assert not theirs.has(READY, 1)
    ours.tell(READY, 5)
    assert theirs.has(READY, 5)
    assert theirs.has(READY, 4)
    assert not theirs.has(READY, 6)
    assert not theirs.has(DONE, 1)


# Objects that stay alive


class Outputs:
    """A call that watches its outputs. Whenever it is called, it records how many earlier outputs are alive."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[torch.Tensor]] = []
        self.alive: list[int] = []

    def __call__(self, x: torch.Tensor, scale: float) -> dict[str, list[torch.Tensor]]:
        self.alive.append(sum(made() is not None for made in self._made))
        result = torch.relu(x) * scale
        self._made.append(weakref.ref(result))
        return {"nested": [result, result.sum()]}


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Python without its cyclic garbage collector: whatever a call leaves in a cycle stays alive."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_no_output_outlives_its_call(without_collector: None) -> None:
    for cold in (True, False):
        plan = Plan(PLAN.sets, PLAN.slots, PLAN.seeds, cold)
        queued, paced = Outputs(), Outputs()
        run_burst(queued, staged(), plan)
        with Pacer(6, 1) as signals:
            run_paced(paced, staged(), plan, signals=signals, base=1)
        assert queued.alive == paced.alive == [0] * 6
    first = Outputs()
    lead_in(first, staged(), 3)
    assert first.alive == [0] * 3


def test_taking_a_value_apart_keeps_nothing_of_it(without_collector: None) -> None:
    x = torch.zeros(3)
    watched = weakref.ref(x)
    structure, tensors = tree.flatten({"a": [x, (x, 1)]})
    assert len(tensors) == 2
    del x, tensors, structure
    assert watched() is None


def test_a_stopwatch_goes_with_its_last_user(without_collector: None) -> None:
    watch = CPU.stopwatch(3)
    watched = weakref.ref(watch)
    watch.start(0)
    watch.stop(0)
    del watch
    assert watched() is None

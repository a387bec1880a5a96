"""The timed loops: a burst of calls on inputs from an arena, outputs into an arena. Both sides run this same code.

One runner runs it on the candidate, another one on the reference and on a call that does nothing; so whatever the
loop itself costs is the same in all three, and the judge can take it off. Each call of a burst has an input set and
an output slot of its own. There are two loops. `run_burst` gives the device all calls before it may begin with the
first, and times each by device events: *device time*. `run_paced` makes one call at a time, waits for the device, and
is timed by the judge from outside: *end-to-end time*, host and launches included.
"""

from __future__ import annotations

import functools
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..shared import small_floats, tree
from . import seeding
from .base import Device, Gate
from .signals import DONE, READY, RELEASED, Signals

#: Places of the queue, of which calls begin at random ones (see `Device.shift_queue`).
_PLACES = 4
#: Share of what two inputs make a result differ by that a replay's result may be off: rounding, but nothing stale.
_ALIKE = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """What one burst does: input set, output slot and random seed of each call, and whether calls find a cold cache.

    Cold calls get copies of their inputs, since how long a call takes depends on where they lie, and the arena stays
    where it is for as long as its process lives. The copies lie at an address used before, with nothing visible changed
    (not even the version counter), every other one of `run_burst` at a new address. Calls that are replayed cannot, and
    work on the arena. So do warm ones, without anything between the calls but the copy of the output: no time passes in
    them that is not the candidate's.
    """

    sets: Sequence[int]
    slots: Sequence[int]
    seeds: Sequence[int]
    cold: bool


@dataclass(frozen=True, slots=True)
class Station:
    """Where inputs come from and outputs go: `inputs[s]` is input set s, `outputs[k]` the bytes of slot k (uint8, 2-D)."""

    device: Device
    arena: torch.Tensor
    structure: Any
    inputs: Sequence[Sequence[torch.Tensor]]
    outputs: torch.Tensor
    #: Where tensors of some dtypes and shapes go, in each slot. Finding out takes longer than most kernels do.
    _places: dict[tuple[Any, ...], list[list[torch.Tensor]]] = field(default_factory=dict)

    @classmethod
    def over(
        cls,
        device: Device,
        structure: Any,
        specs: Sequence[tree.TensorSpec],
        arena_in: torch.Tensor,
        arena_out: torch.Tensor,
        *,
        sets: int,
        slots: int,
    ) -> Station:
        """Divide two arenas into input sets and output slots; the second one divides evenly."""
        _, set_bytes = tree.layout(specs)
        return cls(
            device,
            arena_in,
            structure,
            [tree.views(arena_in[at * set_bytes : (at + 1) * set_bytes], specs) for at in range(sets)],
            arena_out.view(slots, -1),
        )

    def arguments(self, structure: Any, specs: Sequence[tree.TensorSpec]) -> list[Any]:
        """Return positional arguments over the beginning of the arena itself, whatever their shapes."""
        arguments: list[Any] = tree.rebuild(structure, tree.views(self.arena, specs), self.device.torch_device)
        return arguments

    def store(self, value: Any, slot: int) -> tuple[Any, list[torch.Tensor]]:
        """Copy the tensors of `value` into a slot, densely, if they fit; return its structure and those tensors."""
        structure, tensors = tree.flatten(value)
        key = tuple((tensor.dtype, tensor.shape) for tensor in tensors)
        if key not in self._places:
            specs = [tree.describe(tensor, keep_layout=False) for tensor in tensors]
            fits = tree.layout(specs)[1] <= self.outputs.shape[1]
            self._places[key] = [
                [small_floats.raw(view) for view in tree.views(output, specs)] if fits else []
                for output in self.outputs
            ]
        for view, tensor in zip(self._places[key][slot], tensors, strict=False):  # none where it does not fit
            view.copy_(tensor if tensor.dtype is view.dtype else small_floats.raw(tensor), non_blocking=True)
        return structure, tensors


def _shifts(count: int) -> list[int]:
    """Return by how many places each of so many calls is moved on: at random, each number about as often as the others."""
    first = secrets.randbelow(_PLACES)
    shifts = [(first + index) % _PLACES for index in range(count)]
    secrets.SystemRandom().shuffle(shifts)
    return shifts


def capture(call: Callable[..., Any], station: Station, count: int) -> list[Callable[[], Any]]:
    """Record `call` on each of the first `count` input sets (two at least), where they are; return what replays each.

    Nothing where that is impossible, or where a replay does not do what the call does: neither work on the legacy
    stream nor random numbers of the host are recorded, and nobody says so. The first two input sets must differ; they
    are lost. Raises what the call raises.
    """
    device = station.device

    def on(index: int) -> Any:
        return call(*tree.rebuild(station.structure, station.inputs[index], device.torch_device))

    seeding.seed(device.torch_device, 0)
    replays = device.capture([functools.partial(on, index) for index in range(count)])
    if replays is None:
        return []
    stale = _copies(replays[0]())
    for target, tensor in zip(station.inputs[0], station.inputs[1], strict=True):
        small_floats.raw(target).copy_(small_floats.raw(tensor))
    host = torch.get_rng_state()
    wanted = _copies(on(1))
    drew = not torch.equal(host, torch.get_rng_state())
    made = _copies(replays[0]())
    return [] if drew or not _follows(stale, made, wanted) else replays


def _copies(value: Any) -> list[torch.Tensor]:
    return [small_floats.cloned(tensor) for tensor in tree.flatten(value)[1]]


def _follows(stale: list[torch.Tensor], made: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    """Say whether what was made of new inputs is what is wanted, and no longer what was made of others.

    How much results differ between inputs is the measure: what hardly changes could as well be stale.
    """
    changed = False
    if not len(stale) == len(made) == len(wanted):
        return False
    for before, now, right in zip(stale, made, wanted, strict=True):
        if not (before.shape, before.dtype) == (now.shape, now.dtype) == (right.shape, right.dtype):
            return False
        change = _distance(before, right)
        if _distance(now, right) > _ALIKE * change:
            return False
        changed |= change > 0
    return changed


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    wide = torch.complex128 if one.is_complex() else torch.float64
    difference = (one.to(wide) - other.to(wide)).nan_to_num(0.0, 0.0, 0.0)
    return float(torch.linalg.vector_norm(difference))


def lead_in(call: Callable[..., Any], station: Station, count: int) -> None:
    """Make `count` untimed calls on whatever lies in the first input set, and forget what they return.

    The caches of a process that has just been stopped are cold, and memory that was given back has to be taken anew.
    """
    for _ in range(count):
        call(*tree.rebuild(station.structure, station.inputs[0], station.device.torch_device))
    station.device.synchronize()


def _refill(steady: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Return `steady` with the values of `tensors`; a call sees the version counters as they were."""
    for target, tensor in zip(steady, tensors, strict=True):
        small_floats.raw(target.data).copy_(small_floats.raw(tensor))
    return steady


def run_burst(
    call: Callable[..., Any],
    station: Station,
    plan: Plan,
    *,
    replays: Sequence[Callable[[], Any]] = (),
    gate: Gate | None = None,
    value: int = 0,
    queued: Callable[[float], None] = lambda launching: None,
) -> list[float]:
    """Carry out `plan` behind `gate`, or without one; return each call's device seconds.

    `replays` are what `capture` returned; without, each call is made as it is. When all of it is in the queue behind
    a gate, `queued` is called with the host seconds that one call took (their median). Returns only when the device
    has finished everything. Raises whatever the call raises.
    """
    device = station.device
    watch = device.stopwatch(len(plan.sets))
    copied = plan.cold and not replays
    steady = [torch.empty_like(tensor) for tensor in station.inputs[0]] if copied else []
    launching = []
    shifts = _shifts(len(plan.sets)) if plan.cold else []
    device.settle_cache()
    if gate is not None:
        gate.wait(value)
    for step, (index, slot) in enumerate(zip(plan.sets, plan.slots, strict=True)):
        given = station.inputs[index]
        if copied and step % 2:
            given = [small_floats.cloned(tensor) for tensor in given]
        elif copied:
            given = _refill(steady, given)
        if plan.cold:
            device.shift_queue(shifts[step])
            device.flush_cache()
        arguments = tree.rebuild(station.structure, given, device.torch_device)
        launch = replays[index] if replays else functools.partial(call, *arguments)
        seeding.seed(device.torch_device, plan.seeds[step])
        watch.start(step)
        before = time.perf_counter()
        result = launch()
        launching.append(time.perf_counter() - before)
        watch.stop(step)
        station.store(result, slot)
        del result, launch, arguments, given  # or the next call would need memory beside all of this
    if gate is not None:
        gate.finish(value)
        queued(statistics.median(launching))
    device.synchronize()
    return watch.seconds()


def run_paced(
    call: Callable[..., Any],
    station: Station,
    plan: Plan,
    *,
    signals: Signals,
    base: int,
    replays: Sequence[Callable[[], Any]] = (),
) -> list[float]:
    """Carry out `plan` one call at a time, each when the judge releases it; return the seconds that each took, as seen here.

    Signals count up from `base`, by two for each call: ready for its inputs, which are there once it is released; then
    ready for, released and done with the call. No inputs are there before the call before has been done, so that no call
    can do another one's work. A call begins on an idle device and ends when its output is in the judge's memory: what is
    left to be done when it returns is done in its time. Raises whatever the call raises.
    """
    device = station.device
    copied = plan.cold and not replays
    steady = [torch.empty_like(tensor) for tensor in station.inputs[0]] if copied else []
    seconds = []
    device.settle_cache()
    for step, (index, slot) in enumerate(zip(plan.sets, plan.slots, strict=True)):
        asked, called = base + 2 * step, base + 2 * step + 1
        signals.tell(READY, asked)
        signals.wait(RELEASED, asked)
        given = _refill(steady, station.inputs[index]) if copied else station.inputs[index]
        if plan.cold:
            device.flush_cache()
        else:
            device.turn_here()  # inputs are put there by another process
        arguments = tree.rebuild(station.structure, given, device.torch_device)
        launch = replays[index] if replays else functools.partial(call, *arguments)
        seeding.seed(device.torch_device, plan.seeds[step])
        device.synchronize()
        signals.tell(READY, called)
        signals.wait(RELEASED, called)
        before = time.perf_counter()
        result = launch()
        station.store(result, slot)
        device.synchronize()
        signals.tell(DONE, called)
        seconds.append(time.perf_counter() - before)
        del result, launch, arguments, given
    return seconds

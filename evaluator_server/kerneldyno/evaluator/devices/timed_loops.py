"""The timed loops: a burst of calls with inputs from one arena and outputs into another.

Candidate and reference use the same loops. One runner runs a loop with the candidate, another runs it with the
reference and with an empty call. So the loop's own cost is the same in all three, and the judge can subtract it. Each
call of a burst has its own input set and output slot. There are two loops. `run_burst` queues all calls before the
device may begin with the first, and times each by device events: *device time*. `run_paced` makes one call at a time
and waits for the device, and the judge times it from outside: *end-to-end time*, which includes host and launches.
"""

from __future__ import annotations

import functools
import itertools
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..shared import small_floats, tree
from . import seeding
from .base import Device, Gate
from .signals import DONE, READY, RELEASED, Signals

#: Number of positions in the launch queue; calls start at random ones (see `Device.shift_queue`).
_PLACES = 4
#: Most calls that `work` queues before it waits for the device.
_AHEAD = 16
#: Limit for the error of a replay's result, relative to the difference between the results of two inputs. Rounding
#: stays below it; stale results do not.
_ALIKE = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """One burst: the input set, output slot and random seed of each call, and whether the calls find a cold cache.

    Cold calls get copies of their inputs, because a call's duration depends on the addresses of its inputs, and the
    arena's addresses do not change while its process lives. The copies lie at an address that was used before, with no
    visible change (even the version counter stays). In `run_burst`, every other call gets copies at new addresses.
    Replayed calls cannot use copies and work on the arena. Warm calls work on the arena, too; only the copy of the
    output lies between them, so all time belongs to the candidate.
    """

    sets: Sequence[int]
    slots: Sequence[int]
    seeds: Sequence[int]
    cold: bool


@dataclass(frozen=True, slots=True)
class Station:
    """A runner's inputs and outputs: `inputs[s]` is input set s, `outputs[k]` the bytes of slot k (uint8, 2-D)."""

    device: Device
    arena: torch.Tensor
    structure: Any
    inputs: Sequence[Sequence[torch.Tensor]]
    outputs: torch.Tensor
    #: Views of each slot for tensors of given dtypes and shapes. Computing them takes longer than most kernels do.
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
        slot_bytes: int,
    ) -> Station:
        """Divide two arenas into input sets and output slots."""
        _, set_bytes = tree.layout(specs)
        return cls(
            device,
            arena_in,
            structure,
            [tree.views(arena_in[at * set_bytes : (at + 1) * set_bytes], specs) for at in range(sets)],
            _slots(arena_out, slots, slot_bytes),
        )

    def divided(self, arena_out: torch.Tensor, slots: int, slot_bytes: int) -> Station:
        """Return a station with the same inputs, and with output slots of another number and size in `arena_out`."""
        return Station(self.device, self.arena, self.structure, self.inputs, _slots(arena_out, slots, slot_bytes))

    def arguments(self, structure: Any, specs: Sequence[tree.TensorSpec]) -> list[Any]:
        """Return positional arguments over the beginning of the arena.

        They may have other shapes than the input sets.
        """
        arguments: list[Any] = tree.rebuild(structure, tree.views(self.arena, specs), self.device.torch_device)
        return arguments

    def store(self, value: Any, slot: int) -> tuple[Any, list[torch.Tensor]]:
        """Copy the tensors of `value` densely into a slot if they fit. Return its structure and those tensors."""
        structure, tensors = tree.flatten(value)
        key = tuple((tensor.dtype, tensor.shape) for tensor in tensors)
        if key not in self._places:
            specs = [tree.describe(tensor, keep_layout=False) for tensor in tensors]
            fits = tree.layout(specs)[1] <= self.outputs.shape[1]
            self._places[key] = [
                [small_floats.raw(view) for view in tree.views(output, specs)] if fits else []
                for output in self.outputs
            ]
        for view, tensor in zip(self._places[key][slot], tensors, strict=False):  # no views if they do not fit
            view.copy_(tensor if tensor.dtype is view.dtype else small_floats.raw(tensor), non_blocking=True)
        return structure, tensors


def _slots(arena: torch.Tensor, count: int, nbytes: int) -> torch.Tensor:
    return arena[: count * nbytes].view(count, nbytes)


def _shifts(count: int) -> list[int]:
    """Return random queue shifts for `count` calls. Each shift occurs about as often as the others."""
    first = secrets.randbelow(_PLACES)
    shifts = [(first + index) % _PLACES for index in range(count)]
    secrets.SystemRandom().shuffle(shifts)
    return shifts


def capture(call: Callable[..., Any], station: Station, count: int) -> list[Callable[[], Any]]:
    """Record `call` on each of the first `count` input sets (at least two) in the arena, and return their replays.

    Return nothing if that is impossible, or if a replay does not do what the call does: recording silently leaves out
    work on the legacy stream and random numbers of the host. The first two input sets must differ, and they are
    overwritten. Raises what the call raises.
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
    """Return True if a replay follows its inputs.

    The unit of comparison is how much results differ between inputs: a result that hardly changes could be stale.

    Args:
        stale: The replay's results for other inputs.
        made: The replay's results for the new inputs.
        wanted: The call's own results for the new inputs.
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
    left, right = (small_floats.widened(each).to(wide) for each in (one, other))
    difference = (left - right).nan_to_num(0.0, 0.0, 0.0)
    return float(torch.linalg.vector_norm(difference))


def lead_in(call: Callable[..., Any], station: Station, count: int) -> None:
    """Make `count` untimed calls on the first input set, whatever it holds, and drop their results.

    After a stop, a process's caches are cold, and it must allocate memory again that it had released.
    """
    for _ in range(count):
        call(*tree.rebuild(station.structure, station.inputs[0], station.device.torch_device))
    station.device.synchronize()


def work(call: Callable[..., Any], station: Station, replays: Sequence[Callable[[], Any]]) -> Iterator[int]:
    """Make one call after another, on all input sets in turn, and yield their number so far; the device keeps pace."""
    device = station.device
    rebuilt = (tree.rebuild(station.structure, given, device.torch_device) for given in station.inputs)
    launches = replays or [functools.partial(call, *arguments) for arguments in rebuilt]
    for number, launch in enumerate(itertools.cycle(launches), 1):
        launch()
        if number % _AHEAD == 0:
            device.synchronize()
        yield number


def _refill(steady: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Return `steady` with the values of `tensors`. The version counters stay the same."""
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
    """Carry out `plan` and return the device seconds of each call, once the device has finished everything.

    Args:
        call: The call to time.
        station: The inputs and outputs.
        plan: The burst.
        replays: The result of `capture`. If it is empty, the call itself is made.
        gate: Holds the work back until the judge opens it; None queues nothing ahead.
        value: The gate's value for this burst.
        queued: Called when the whole burst is queued behind the gate, with the median of the host seconds per call.

    Raises:
        Exception: Whatever the call raises.
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
        del result, launch, arguments, given  # otherwise the next call would need memory in addition
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
    """Carry out `plan` one call at a time, when the judge releases each, and return each call's seconds by this clock.

    Signals count up from `base`, two for each call. For the first, the runner is ready for inputs, and the judge
    releases it when they are there. For the second, the runner is ready for the call, the judge releases it, and the
    runner is done. The inputs arrive only after the previous call is done, so no call can do another call's work. A
    call begins on an idle device and ends when its output is in the judge's memory, so work left over when it returns
    counts as its time. Raises whatever the call raises.
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
            device.switch_to_this_process()  # another process has written the inputs
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

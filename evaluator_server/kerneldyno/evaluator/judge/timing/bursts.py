"""Bursts as the judge makes them: fresh secret inputs, for the candidate, its reference or nothing at all, by its own clock.

While inputs are drawn and the other side is timed, a side's whole process tree stands still, and its inputs are not
yet in its reach. The judge's clock starts when they begin to be put there, and stops when the outputs that the judge
wants to see, of calls that nobody else knows, have been copied away. They are compared when the device is others'
again, as far as memory allows. How calls reach the device is decided here for both sides together (`Regime`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from kerneldyno.v1 import evaluation_pb2 as pb

from ...devices.base import Device, Gate, Stopwatch
from ...devices.signals import DONE, READY, RELEASED
from ...devices.timed_loops import Plan
from ...shared import tree
from ..checks.candidate import POISON, Candidate
from ..memory.surplus import unjudged
from ..problems import trial
from ..problems.cache import BuiltProblem
from ..results import verdict
from ..results.record import Finished
from ..runners.answers import read_burst
from ..runners.side import Side
from .device_time import Burst
from .end_to_end_time import PacedBurst
from .reference_runners import ReferenceRunner
from .supply import Batch, Supply

_Step = TypeVar("_Step")

#: How long a burst may take to be queued before the judge lets it go as it is, in seconds: so many times what its
#: calls take from end to end, and no less or more than this.
_PATIENCE = 3.0
_LEAST_PATIENCE, _MOST_PATIENCE = 0.05, 1.0
#: Calls in the longest burst: with copies, events and a few kernels each they fit the queue of a CUDA stream.
LONGEST = 40
#: Input sets that calls are captured on, again and again, and the most that one may take with its output, in bytes:
#: calls on more take so long that a graph saves next to nothing.
CAPTURED_SETS = 2
_CAPTURED_BYTES = 256 << 20
#: How often that is tried: results of few values may agree by chance, and then nobody can tell whether a replay works.
_CAPTURE_DRAWS = 3
#: How long the judge does nothing but watch for a signal, and then nothing but that and what cannot wait, in seconds.
_WATCHED = 0.005
_WATCHED_CLOSELY = 0.1
#: Inputs and outputs of one call that are more than this, in bytes, are not held twice.
_HUGE_BYTES = 1 << 30
#: What the judge times of a burst: all of it, and the putting there of its inputs.
_WALL, _REVEALING = range(2)
#: Arenas up to this size are filled with as many bytes for a short burst as for a long one, in bytes.
_EVENED_BYTES = 2 << 30


@dataclass(slots=True)
class Regime:
    """How calls reach the device. Decided for a pair, never for a side: times of two regimes cannot be compared.

    Where one side's calls cannot be queued ahead, since they wait for the device or launch more than its queue holds,
    both sides are timed as callers who do not queue.
    """

    #: How many calls of either side can be queued ahead of the device; 0: not even one.
    queueable: int
    #: Whether calls are replayed as CUDA graphs.
    replayed: bool = False

    @property
    def queued(self) -> bool:
        """Whether calls are queued ahead."""
        return self.queueable > 0

    @property
    def kind(self) -> pb.TimingStats.Regime.ValueType:
        """What TimingStats calls it."""
        return pb.TimingStats.REGIME_QUEUED_AHEAD if self.queued else pb.TimingStats.REGIME_AS_CALLED

    def shorten(self, count: int) -> None:
        """A burst of `count` calls could not be queued."""
        self.queueable = max(1, count // 8) if count > 1 else 0


class NotQueuedError(Exception):
    """`side` cannot queue so many calls ahead: the regime has changed, and both sides begin anew."""

    def __init__(self, side: Side) -> None:
        super().__init__()
        self.side = side


@dataclass(slots=True)
class Bursts:
    """Makes bursts for one candidate and its reference. All of it happens under the exclusive lease."""

    candidate: Candidate
    reference: ReferenceRunner
    built: BuiltProblem
    #: A nominal trial: what outputs look like, how noisy they are, and inputs for calls that do not count.
    example: trial.Trial
    rng: random.Random
    regime: Regime = field(init=False)
    #: The longest burst that memory allows, in calls.
    longest: int = field(init=False)
    supply: Supply = field(init=False)
    #: What is copied beside inputs, so that to reveal them always takes equally long.
    _filler: torch.Tensor = field(init=False)
    _values: int = 0
    #: Outputs of timed calls, as they were at the end of their bursts, and what they must be.
    _unjudged: list[tuple[trial.Trial, torch.Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        station = self.candidate.station
        self.longest = min(len(station.inputs), len(station.outputs), LONGEST)
        gated = self.candidate.gate is not None
        self.regime = Regime(min(self.longest, self.built.queueable) if gated else 0)
        self.supply = Supply(
            self.built,
            self.candidate.spec,
            self._device,
            self.example,
            station.structure,
            [tree.describe(tensor) for tensor in station.inputs[0]],
            self.longest,
            self.rng,
        )

    def begin(self) -> None:
        """Take the memory that bursts need, once the device is the pair's alone."""
        # Signals count up for as long as a runner lives, and the reference's outlives this session.
        self._values = self.reference.values
        size = len(self.candidate.station.inputs) * self.set_bytes
        self._filler = torch.empty(
            size if size <= _EVENED_BYTES else 0, dtype=torch.uint8, device=self._device.torch_device
        )
        self._filler.fill_(POISON)  # the candidate gets to see it, and what was here before may have been answers

    @property
    def set_bytes(self) -> int:
        """Size of one input set."""
        return self.supply.set_bytes

    def apart(self, steps: Sequence[_Step]) -> list[Sequence[_Step]]:
        """Divide steps that need a batch each into those whose batches may be there at once: of huge ones, one at a time."""
        huge = self.set_bytes + self.example.slot_bytes > _HUGE_BYTES
        return [[step] for step in steps] if huge else [steps]

    @property
    def _device(self) -> Device:
        return self.candidate.device

    async def capture(self) -> None:
        """Have the calls of both sides captured as CUDA graphs: replays are used where both sides can be, or by neither."""
        # Fixed cases come again in the same place, where a candidate could have recorded their answers.
        if self.built.problem.cases is not None or self.set_bytes + self.example.slot_bytes > _CAPTURED_BYTES:
            return
        sides: tuple[Side, ...] = (self.reference, self.candidate) if self.reference.timed else (self.candidate,)
        self.regime.replayed = True
        for side in sides:
            self.regime.replayed = self.regime.replayed and await self._capture(side)

    async def _capture(self, side: Side) -> bool:
        for _ in range(_CAPTURE_DRAWS):
            size = self.set_bytes
            staged = self.supply.take(CAPTURED_SETS).data.view(CAPTURED_SETS, size)
            for at in range(self.longest):
                side.station.arena[at * size :][:size].copy_(staged[at % CAPTURED_SETS])
            self._device.synchronize()
            async with self.awake(side):
                captured = await side.capture(self.longest)
            if captured:
                return True
        return False

    def nothing_like(self) -> tuple[tree.TensorSpec, ...]:
        """Return what a call returns that does nothing: tensors like the candidate's, laid out as its are where possible.

        What copying them costs depends on how they are laid out.
        """
        said = self.candidate.record.layouts
        leaves = []
        for number, leaf in enumerate(self.example.expected.leaves):
            wanted = leaf.spec
            fits = len(said) > number and said[number].shape == wanted.shape and tree.is_dense(*said[number].layout)
            stride = said[number].stride if fits else wanted.stride
            leaves.append(tree.TensorSpec(wanted.dtype, wanted.shape, tuple(stride), wanted.on_device))
        return tuple(leaves)

    def plan(self, side: Side, batch: Batch, *, cold: bool) -> Plan:
        """Return a plan whose sets and slots are in random order. Seeds say nothing of which calls will be looked at."""
        sets, slots = list(range(batch.count)), list(range(len(side.station.outputs)))
        self.rng.shuffle(sets)
        self.rng.shuffle(slots)
        seeds = [secrets.randbits(31) for _ in sets]
        for index, expected in batch.right.items():
            seeds[sets.index(index)] = expected.seed
        return Plan(sets, slots[: batch.count], seeds, cold)

    @contextlib.asynccontextmanager
    async def awake(self, side: Side) -> AsyncIterator[None]:
        """Let a side go on for the body; it stands still before and after, unless it is awake already."""
        if not side.runner.stands_still:
            yield
            return
        side.runner.resume()
        try:
            yield
        finally:
            await side.runner.stop()

    async def warm_up(self, side: Side, count: int, *, cold: bool, nothing: bool = False) -> None:
        """Make an untimed burst of `count` calls in a side that is awake.

        There is no gate: what is loaded or tuned at first use waits for the device, and so for ever behind a closed
        gate.
        """
        batch = self.supply.familiar(count)
        plan = self.plan(side, batch, cold=cold)
        self._poison(side, plan)
        for index in range(count):
            self._show(side, batch, index)
        side.order_burst(plan, self._next(), paced=False, gated=False, replay=self.regime.replayed, nothing=nothing)
        read_burst(await side.answer(), count)

    async def queued_burst(
        self,
        side: Side,
        batch: Batch,
        per_call: float,
        *,
        cold: bool,
        nothing: bool = False,
        lead_in: int = 0,
    ) -> Burst:
        """Time a burst that is queued ahead, in a side that is awake; outputs of the candidate are kept for `judge`.

        `per_call` is what a call takes from end to end, in seconds. Raises NotQueuedError.
        """
        gate, count, plan = side.gate, batch.count, self.plan(side, batch, cold=cold)
        assert gate is not None
        self._poison(side, plan, lead_in=lead_in)
        watched = self._watched(side, plan, batch)
        copies = self._room(side, watched, range(len(side.station.outputs)))
        value = self._next()
        side.order_burst(
            plan,
            value,
            paced=False,
            gated=True,
            replay=self.regime.replayed,
            nothing=nothing,
            lead_in=lead_in,
        )
        patience = _PATIENCE * (count + lead_in) * per_call + _LEAST_PATIENCE
        launching = await side.queued(min(_MOST_PATIENCE + per_call, patience))
        watch = self._reveal(side, batch, gate, value)
        if launching is None:  # it has been let go as it is
            await side.late_queued()
            await side.answer()
            self.regime.shorten(count)
            raise NotQueuedError(side)
        await self._until(functools.partial(gate.is_finished, value), side)
        self._snapshot(side, copies, watch)
        wall, revealing = watch.seconds()
        seconds = read_burst(await side.answer(), count)
        self._keep([(expected, copies[slot]) for slot, expected in watched.items()])
        return Burst(count, wall, seconds, revealing if self._evened else 0.0, launching)

    async def paced_burst(
        self,
        side: Side,
        batch: Batch,
        *,
        cold: bool,
        nothing: bool = False,
        lead_in: int = 0,
    ) -> PacedBurst:
        """Time a burst call by call, in a side that is awake; outputs of the candidate are kept for `judge`.

        A call's inputs are put there when the call before is done, and its output is copied away, if the judge wants to
        see it, before the next one's are: neither can be worked on in another call's time.
        """
        count, plan = batch.count, self.plan(side, batch, cold=cold)
        self._poison(side, plan, lead_in=lead_in)
        watched = self._watched(side, plan, batch)
        copies = self._room(side, watched, plan.slots)
        base = self._next(2 * count)
        side.order_burst(
            plan,
            base,
            paced=True,
            gated=False,
            replay=self.regime.replayed,
            nothing=nothing,
            lead_in=lead_in,
        )
        signals, seconds, began = side.signals, [], 0.0
        for step, (index, slot) in enumerate(zip(plan.sets, plan.slots, strict=True)):
            asked, called = base + 2 * step, base + 2 * step + 1
            await self._until(functools.partial(signals.has, READY, asked), side)
            self._show(side, batch, index)
            began = began or time.perf_counter()
            signals.tell(RELEASED, asked)
            await self._until(functools.partial(signals.has, READY, called), side)
            done = functools.partial(signals.has, DONE, called)
            released = time.perf_counter()
            signals.tell(RELEASED, called)
            await self._until(done, side)
            seconds.append(time.perf_counter() - released)
            if slot in copies:
                self._snapshot(side, {slot: copies[slot]})
        wall = time.perf_counter() - began
        claimed = read_burst(await side.answer(), count)
        self._keep([(expected, copies[slot]) for slot, expected in watched.items()])
        return PacedBurst(seconds, claimed, wall)

    def _next(self, count: int = 1) -> int:
        """Return the first of `count` values of signals that nobody has used."""
        value = self._values + 1
        self._values += count
        self.reference.values = self._values
        return value

    @staticmethod
    async def _until(reached: Callable[[], bool], side: Side) -> None:
        """Return as soon as a signal is there, or when the runner says something that means that it will not come.

        Who signals too early has outputs missing, and who never does is waited for no longer than its limit.
        """
        began = time.perf_counter()
        while not reached():
            if (passed := time.perf_counter() - began) > _WATCHED:
                if await side.is_over():
                    return
                await asyncio.sleep(0 if passed < _WATCHED_CLOSELY else 1e-3)

    def _watched(self, side: Side, plan: Plan, batch: Batch) -> dict[int, trial.Trial]:
        """Return what is right for the slots that will be looked at; of nobody but the candidate any are."""
        if side is not self.candidate:
            return {}
        return {plan.slots[plan.sets.index(index)]: expected for index, expected in batch.right.items()}

    def _keep(self, outputs: list[tuple[trial.Trial, torch.Tensor]]) -> None:
        """Keep outputs for `judge`, or judge them now where they are too many."""
        self._unjudged += outputs
        if sum(output.numel() for _, output in self._unjudged) > unjudged(self._device):
            self.judge()

    def judge(self) -> None:
        """Compare the outputs that were kept with what is right. Raises Finished at the first wrong one."""
        record, spec = self.candidate.record, self.candidate.spec
        while self._unjudged:
            expected, output = self._unjudged.pop()
            comparison = trial.judge_bytes(expected, spec, output)
            record.note(comparison)
            if comparison.mismatch is not None:
                raise Finished(verdict.incorrect(comparison.mismatch, -1, record.report(), record.findings))
            record.timed_checks += 1

    def _poison(self, side: Side, plan: Plan, *, lead_in: int = 0) -> None:
        """Leave nothing of earlier bursts where this one reads and writes, but inputs for calls that do not count."""
        arena, outputs = side.station.arena, side.station.outputs
        # Calls that do not count may have the inputs of the burst before, where large ones are not kept for them.
        stays = self.set_bytes if lead_in and self.supply.is_outlined else 0
        arena[stays : len(plan.sets) * self.set_bytes].fill_(POISON)
        if lead_in and not stays:
            arena[: self.set_bytes].copy_(self.example.inputs.master)
        if 2 * len(plan.slots) > len(outputs):
            outputs.fill_(POISON)
        else:
            for slot in plan.slots:
                outputs[slot].fill_(POISON)
        self._device.synchronize()

    @property
    def _evened(self) -> bool:
        """Whether as many bytes are put into the arena for a short burst as for a long one."""
        return self._filler.numel() > 0

    def _show(self, side: Side, batch: Batch, index: int) -> None:
        """Put one call's inputs where they are waited for."""
        begin = index * self.set_bytes
        inputs = batch.data[begin:][: self.set_bytes]
        side.station.arena[begin:][: self.set_bytes].copy_(inputs)
        self._device.synchronize()

    def _reveal(self, side: Side, batch: Batch, gate: Gate, value: int) -> Stopwatch:
        """Put inputs where they are waited for, and open the gate; return what runs since when any were there.

        All that can be staged is copied, however short the burst: contexts that wait slow each other's copies down, and
        what every burst pays alike does not count in the slope. How long they wait for each other before the copy begins
        shows nobody anything, and does not count: the judge's clock is the device's, where no delay of the judge's own
        process makes a burst shorter. What was in the cache is evicted.
        """
        target, size, most = side.station.arena, batch.data.numel(), self._filler.numel()
        watch = self._device.stopwatch(2)
        with gate.beside():
            watch.start(_WALL)
            watch.start(_REVEALING)
            target[:size].copy_(batch.data, non_blocking=True)
            if most > size:
                target[size:most].copy_(self._filler[size:], non_blocking=True)
            self._device.flush_cache()
            watch.stop(_REVEALING)
        gate.open(value)
        return watch

    def _room(self, side: Side, slots: Iterable[int], others: Sequence[int]) -> dict[int, torch.Tensor]:
        """Return memory for the copies of some slots, and of so many `others` that all bursts have equally many.

        To allocate it may take its time.
        """
        outputs = side.station.outputs
        wanted = list(dict.fromkeys([*slots, *others]))[: self.supply.checks]
        return {slot: torch.empty_like(outputs[slot]) for slot in wanted}

    def _snapshot(self, side: Side, copies: dict[int, torch.Tensor], watch: Stopwatch | None = None) -> None:
        """Copy the bytes of some slots, and stop `watch`; what is there when this returns is what counts."""
        for slot, copy in copies.items():
            copy.copy_(side.station.outputs[slot])
        if watch is not None:
            watch.stop(_WALL)
        self._device.synchronize()

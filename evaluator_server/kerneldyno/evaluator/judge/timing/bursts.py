"""Make and time bursts of calls: fresh secret inputs for the candidate, its reference or an empty call.

While the judge draws inputs and times the other side, all processes of a side are stopped, and its inputs are not yet
within its reach. The judge's clock starts when the judge begins to copy inputs into the side's arena. It stops when the
judge has copied away the outputs that it will check; nobody else knows to which calls they belong. The judge compares
them after it has released the device, as far as memory allows. `staging.py` copies inputs, `timed_outputs.py` keeps
outputs, and `regime.py` says for both sides together how calls reach the device.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ...devices.base import Device
from ...devices.signals import DONE, READY, RELEASED
from ...devices.timed_loops import Plan
from ...shared import tree
from ..checks.candidate import Candidate
from ..problems import trial
from ..problems.cache import BuiltProblem
from ..runners.answers import read_burst
from ..runners.side import Side
from .device_time import Burst
from .end_to_end_time import PacedBurst
from .reference_runners import ReferenceRunner
from .regime import NotQueuedError, Regime
from .staging import Staging
from .supply import Batch, Supply
from .timed_outputs import TimedOutputs

_Step = TypeVar("_Step")

#: Time limit for queueing a burst, in seconds, after which the judge opens the gate anyway: this multiple of the
#: burst's end-to-end time, plus the least, and no more than the most (see `queued_burst`).
_PATIENCE = 3.0
_LEAST_PATIENCE, _MOST_PATIENCE = 0.05, 1.0
#: Calls in the longest burst. With copies, events and a few kernels each, they fit the queue of a CUDA stream.
LONGEST = 40
#: Number of input sets on which calls are captured, repeatedly; and the size limit of one set and its output, in bytes.
#: Calls on more data take so long that a graph saves next to nothing.
CAPTURED_SETS = 2
_CAPTURED_BYTES = 256 << 20
#: Attempts to capture. Results with few distinct values may agree by chance, and then the check of the replay fails.
_CAPTURE_DRAWS = 3
#: Seconds for which the judge only polls for a signal, and then seconds for which it also lets urgent other work run.
_WATCHED = 0.005
_WATCHED_CLOSELY = 0.1
#: If the inputs and outputs of one call exceed this size, in bytes, only one batch exists at a time.
_HUGE_BYTES = 1 << 30


@dataclass(slots=True)
class Bursts:
    """Makes bursts for one candidate and its reference. All of it happens under the exclusive lease."""

    candidate: Candidate
    reference: ReferenceRunner
    built: BuiltProblem
    #: A nominal trial. It shows what outputs look like and how noisy they are, and has inputs for untimed calls.
    example: trial.Trial
    rng: random.Random
    regime: Regime = field(init=False)
    #: Number of calls in the longest burst that memory allows.
    longest: int = field(init=False)
    supply: Supply = field(init=False)
    outputs: TimedOutputs = field(init=False)
    _staging: Staging = field(init=False)

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
        self.outputs = TimedOutputs(self.candidate, self.reference, self.supply)

    def begin(self) -> None:
        """Allocate the memory that bursts need. Call it once this pair has the device to itself."""
        size = len(self.candidate.station.inputs) * self.set_bytes
        self._staging = Staging(self._device, self.supply, self.example, size)

    @property
    def set_bytes(self) -> int:
        """Size of one input set, in bytes."""
        return self.supply.set_bytes

    def apart(self, steps: Sequence[_Step]) -> list[Sequence[_Step]]:
        """Group steps that need a batch each by which batches may exist at once: for huge batches, one per group."""
        huge = self.set_bytes + self.example.slot_bytes > _HUGE_BYTES
        return [[step] for step in steps] if huge else [steps]

    @property
    def _device(self) -> Device:
        return self.candidate.device

    async def capture(self) -> None:
        """Capture the calls of both sides as CUDA graphs. Replays are used only if both sides can be captured."""
        # Fixed cases come again at the same addresses, where a candidate could have recorded their answers.
        if self.built.problem.cases is not None or self.set_bytes + self.example.slot_bytes > _CAPTURED_BYTES:
            return
        sides: tuple[Side, ...] = (self.reference, self.candidate) if self.reference.timed else (self.candidate,)
        self.regime.replayed = True
        for side in sides:
            self.regime.replayed = self.regime.replayed and await self._capture(side)

    async def _capture(self, side: Side) -> bool:
        for _ in range(_CAPTURE_DRAWS):
            size = self.set_bytes
            staged = (await self.supply.take(CAPTURED_SETS)).data.view(CAPTURED_SETS, size)
            for at in range(self.longest):
                side.station.arena[at * size :][:size].copy_(staged[at % CAPTURED_SETS])
            self._device.synchronize()
            async with self.awake(side):
                captured = await side.capture(self.longest)
            if captured:
                return True
        return False

    def nothing_like(self) -> tuple[tree.TensorSpec, ...]:
        """Return the tensors that an empty call must return: like the candidate's, in the same layout where possible.

        The layout matters because the cost of copying depends on it.
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
        """Return a plan with sets and slots in random order. The seeds do not reveal which calls will be checked."""
        sets, slots = list(range(batch.count)), list(range(len(side.station.outputs)))
        self.rng.shuffle(sets)
        self.rng.shuffle(slots)
        seeds = [secrets.randbits(31) for _ in sets]
        for index, expected in batch.right.items():
            seeds[sets.index(index)] = expected.seed
        return Plan(sets, slots[: batch.count], seeds, cold)

    @contextlib.asynccontextmanager
    async def awake(self, side: Side) -> AsyncIterator[None]:
        """Resume a side for the body. It is stopped before and after, unless it was awake already."""
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

        There is no gate: whatever is loaded or tuned at first use waits for the device, and would wait forever behind a
        closed gate.
        """
        batch = await self.supply.familiar(count)
        plan = self.plan(side, batch, cold=cold)
        self._staging.erase(side, plan)
        for index in range(count):
            self._staging.show(side, batch, index)
        side.order_burst(
            plan, side.next_value(), paced=False, gated=False, replay=self.regime.replayed, nothing=nothing
        )
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
        """Time a burst that is queued ahead, in a side that is awake, and keep the candidate's outputs for `judge`.

        `per_call` is the end-to-end time of a call, in seconds. Raises NotQueuedError.
        """
        gate, count, plan = side.gate, batch.count, self.plan(side, batch, cold=cold)
        assert gate is not None
        self._staging.erase(side, plan, lead_in=lead_in)
        watched = {} if nothing else self.outputs.watched(side, plan, batch)
        copies = self.outputs.room(side, watched, range(len(side.station.outputs)))
        value = side.next_value()
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
        watch = self._staging.reveal(side, batch, gate, value)
        if launching is None:  # the runner was too slow; the gate was opened anyway
            await side.late_queued()
            await side.answer()
            self.regime.shorten(count)
            raise NotQueuedError(side)
        await self._until(functools.partial(gate.is_finished, value), side)
        self.outputs.snapshot(side, copies, watch)
        wall, revealing = watch.seconds()
        seconds = read_burst(await side.answer(), count)
        self.outputs.keep(watched, copies, of_reference=side is self.reference)
        return Burst(count, wall, seconds, revealing if self._staging.is_even else 0.0, launching)

    async def paced_burst(
        self,
        side: Side,
        batch: Batch,
        *,
        cold: bool,
        nothing: bool = False,
        lead_in: int = 0,
    ) -> PacedBurst:
        """Time a burst call by call, in a side that is awake, and keep the candidate's outputs for `judge`.

        The judge copies a call's inputs into the arena only after the previous call is done. If it will check the
        call's output, it copies that away before it reveals the next inputs. So neither can be worked on in another
        call's time.
        """
        count, plan = batch.count, self.plan(side, batch, cold=cold)
        self._staging.erase(side, plan, lead_in=lead_in)
        watched = {} if nothing else self.outputs.watched(side, plan, batch)
        copies = self.outputs.room(side, watched, plan.slots)
        base = side.next_value(2 * count)
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
            self._staging.show(side, batch, index)
            began = began or time.perf_counter()
            signals.tell(RELEASED, asked)
            await self._until(functools.partial(signals.has, READY, called), side)
            done = functools.partial(signals.has, DONE, called)
            released = time.perf_counter()
            signals.tell(RELEASED, called)
            await self._until(done, side)
            seconds.append(time.perf_counter() - released)
            if slot in copies:
                self.outputs.snapshot(side, {slot: copies[slot]})
        wall = time.perf_counter() - began
        claimed = read_burst(await side.answer(), count)
        self.outputs.keep(watched, copies, of_reference=side is self.reference)
        return PacedBurst(seconds, claimed, wall)

    @staticmethod
    async def _until(reached: Callable[[], bool], side: Side) -> None:
        """Wait for a signal, or until the runner sends a message which means that the signal will not come.

        A runner that signals too early is missing outputs. A runner that never signals is waited for only up to its
        limit.
        """
        began = time.perf_counter()
        while not reached():
            if (passed := time.perf_counter() - began) > _WATCHED:
                if await side.is_over():
                    return
                await asyncio.sleep(0 if passed < _WATCHED_CLOSELY else 1e-3)

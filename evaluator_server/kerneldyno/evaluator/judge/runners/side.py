"""One side of a comparison: a runner, the memory it shares with the judge, and the orders that both sides get.

Candidate and reference are timed through this class only, so neither can be treated differently. No answer is believed;
only the arenas and the judge's own clock count.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...devices.base import Arena, Device, Gate
from ...devices.signals import Signals
from ...devices.timed_loops import Plan, Station
from ...shared import tree, wire
from . import work
from .answers import read_burst
from .handle import Runner, RunnerGarbled, RunnerGone, RunnerLate, RunnerStartError
from .lease import Lease
from .work import T

#: Time limit for a runner to open memory that the judge has made for it, in seconds.
_REACHING_SECONDS = 60.0
#: More calls than a runner can have made.
_MOST_CALLS = 1 << 40
#: Output slots while outputs are checked: the one of the call, and those of two earlier calls.
CHECKED_SLOTS = 3


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the arenas of one side hold: `sets` input sets of these specs, and `slots` outputs of `slot_bytes` each."""

    structure: Any
    specs: Sequence[tree.TensorSpec]
    sets: int
    slots: int
    slot_bytes: int

    @property
    def set_bytes(self) -> int:
        """Size of one input set, in bytes."""
        return tree.layout(self.specs)[1]


class Side(ABC):
    """A runner with its arenas. Call `open_arenas` first, then `settle` when it has the device to itself, then bursts."""

    def __init__(self, device: Device, lease: Lease, runner: Runner) -> None:
        self.device = device
        self.runner = runner
        self._lease = lease
        self._arenas: list[Arena] = []
        self._station: Station | None = None
        self._signals: Signals | None = None
        self.gate: Gate | None = None
        #: The last signal value that was used. Values increase while the runner lives, through all sessions.
        self.value = 0
        #: Number of orders that have not been answered.
        self.unanswered = 0
        self._pending: asyncio.Future[wire.Frame] | None = None
        #: The processor that launches the calls.
        self._processor: int | None = None

    @property
    def station(self) -> Station:
        """The input sets and output slots."""
        assert self._station is not None
        return self._station

    @property
    def signals(self) -> Signals:
        """The shared page of signals that paces this side."""
        assert self._signals is not None
        return self._signals

    def close(self) -> None:
        """Close the arenas."""
        if self._pending is not None:
            self._pending.cancel()
        self._station = None
        for arena in self._arenas:
            arena.close()
        self._arenas = []

    async def execute(self, piece: Callable[[], T]) -> T:
        """Run `piece` as a piece of the judge's own work on the device."""
        return await work.execute(self._lease, piece)

    @property
    def arena_bytes(self) -> int:
        """Size of the arenas, in bytes."""
        return sum(arena.data.numel() for arena in self._arenas)

    async def open_arenas(
        self, sizes: Sizes, *, host_bytes: int, room: int = 0, widest: int = 0, memory_bytes: int = 0
    ) -> None:
        """Allocate the shared memory and have the runner open it. Raises RunnerStartError, OutOfMemoryError.

        Neither failure is the fault of the code that is judged.

        Args:
            sizes: What the arenas must hold.
            host_bytes: Host memory that the runner may use, as the host's ledger has admitted.
            room: The least size of the input arena, in bytes.
            widest: The least size of an output slot, in bytes. If it is larger than that of `sizes`, there are fewer
                slots, and `narrow` must be called before bursts.
            memory_bytes: Device memory that the runner may use in addition; 0 for no limit.
        """
        await self.runner.allow(host_bytes)
        inputs, timed = max(room, sizes.sets * sizes.set_bytes), sizes.slots * sizes.slot_bytes
        if widest > sizes.slot_bytes:
            sizes = replace(sizes, slots=min(sizes.slots, CHECKED_SLOTS), slot_bytes=widest)

        def allocate() -> None:
            for number, size in enumerate((inputs, max(timed, sizes.slots * sizes.slot_bytes))):
                self._arenas.append(self.device.new_arena(size, self.runner.descriptors, number))
            self._signals = self.device.signals(self.runner.descriptors)
            self.gate = self.device.gate(self._signals, queues=False)

        await self.execute(allocate)
        arena_in, arena_out = (arena.data for arena in self._arenas)
        order = {
            "op": "arenas",
            "tickets": [arena.ticket() for arena in self._arenas],
            "structure": sizes.structure,
            "specs": [spec.to_json() for spec in sizes.specs],
            "sets": sizes.sets,
            "slots": sizes.slots,
            "slot_bytes": sizes.slot_bytes,
            "memory_bytes": memory_bytes,
            "host_bytes": host_bytes,
        }
        try:
            answer = await self.runner.ask(order, _REACHING_SECONDS)
        except (RunnerGone, RunnerLate) as error:
            raise RunnerStartError(f"the runner could not reach the arenas: {type(error).__name__}") from None
        if "error" in answer:
            raise RunnerStartError(f"the runner could not reach the arenas: {answer['error']}")
        self._station = Station.over(
            *(self.device, sizes.structure, sizes.specs, arena_in, arena_out),
            sets=sizes.sets,
            slots=sizes.slots,
            slot_bytes=sizes.slot_bytes,
        )

    async def narrow(self, sizes: Sizes) -> None:
        """Divide the arena of outputs as `sizes` says, if slots were wider. Earlier outputs are not kept any more."""
        if self.station.outputs.shape == (sizes.slots, sizes.slot_bytes):
            return
        await self.ask({"op": "divide", "slots": sizes.slots, "slot_bytes": sizes.slot_bytes})
        self._station = self.station.divided(self._arenas[1].data, sizes.slots, sizes.slot_bytes)

    async def settle(self, processor: int | None) -> None:
        """Prepare the runner for timing: keep it on one processor, and free memory that it kept from earlier work."""
        await self.ask({"op": "settle", "processor": processor})
        self._processor = processor

    async def place(self, processor: int | None, memory: int) -> None:
        """Launch calls from `processor`, and move the runner's memory to place `memory` unless that is 0 (`displace`)."""
        if memory or processor != self._processor:
            await self.ask({"op": "place", "processor": processor, "memory": memory})
            self._processor = processor

    async def capture(self, count: int) -> bool:
        """Capture the call on the first `count` input sets of the arena. Return True if bursts can replay it."""
        return await self.ask({"op": "capture", "count": count}) is True

    def order_burst(
        self,
        plan: Plan,
        value: int,
        *,
        paced: bool,
        gated: bool,
        replay: bool,
        nothing: bool = False,
        lead_in: int = 0,
    ) -> None:
        """Send the order for a burst. `queued` (if gated) and `answer` read the answers."""
        self.unanswered += 1
        self.runner.send(
            {
                "op": "burst",
                "sets": list(plan.sets),
                "slots": list(plan.slots),
                "seeds": list(plan.seeds),
                "cold": plan.cold,
                "value": value,
                "paced": paced,
                "gated": gated,
                "replay": replay,
                "nothing": nothing,
                "lead_in": lead_in,
            }
        )

    async def queued(self, patience: float) -> float | None:
        """Wait until a gated burst is queued. Return the host seconds per call, or None after `patience` seconds."""
        try:
            answer = await self.runner.answer(patience)
        except RunnerLate:
            return None
        return self._read_queued(answer)

    def next_value(self, count: int = 1) -> int:
        """Reserve `count` unused signal values and return the first."""
        first = self.value + 1
        self.value += count
        return first

    async def late_queued(self) -> None:
        """Read the answer for which `queued` did not wait."""
        self._read_queued(await self._next_frame())

    def _read_queued(self, answer: wire.Frame) -> float:
        if self._heed(answer) != "queued":
            raise RunnerGarbled("a burst that was never queued")
        (launching,) = read_burst([answer.get("launching")], 1)
        return launching

    async def work(self, seconds: float) -> int:
        """Make calls without a pause for so many seconds, and return how many there were, as the runner says."""
        said = await self.ask({"op": "work", "seconds": seconds})
        if type(said) is not int or not 0 <= said < _MOST_CALLS:
            raise RunnerGarbled("malformed answer to an order to work")
        return said

    async def ask(self, order: wire.Frame) -> Any:
        """Send an order and return its answer. Raises the exception that ends the evaluation."""
        self.unanswered += 1
        self.runner.send(order)
        return await self.answer()

    async def answer(self) -> Any:
        """Return the next answer. Raises the exception that ends the evaluation."""
        frame = await self._next_frame()
        self.unanswered -= 1
        return self._heed(frame)

    async def is_over(self) -> bool:
        """Return True if the runner has answered, has ended, or has used up its time: then `answer` does not wait."""
        if self._pending is None:
            self._pending = asyncio.ensure_future(self._frame())
            # Retrieve the exception, even if nobody awaits it.
            self._pending.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.sleep(0)
        return self._pending.done()

    async def _next_frame(self) -> wire.Frame:
        pending, self._pending = self._pending, None
        return await (pending or self._frame())

    @abstractmethod
    async def _frame(self) -> wire.Frame:
        """Return the next frame from the runner, within the limits of this side."""

    @abstractmethod
    def _heed(self, answer: wire.Frame) -> Any:
        """Return the answer in a frame, or raise what an error in it means for this side."""

"""The inputs of a burst on their way into a side's arena: erased before, shown call by call or revealed all at once.

Until the judge copies inputs into the arena, they are not within a side's reach. `bursts.py` calls this file while the
side waits for the inputs; the judge's clock runs from the first copy.
"""

from __future__ import annotations

import torch

from ...devices.base import Device, Gate, Stopwatch
from ...devices.timed_loops import Plan
from ..checks.candidate import POISON
from ..problems.trial import Trial
from ..runners.side import Side
from .supply import Batch, Supply

#: Stopwatch numbers: the whole burst, and the copying of its inputs.
WALL, REVEALING = range(2)
#: In arenas up to this size, in bytes, the judge copies as many bytes for a short burst as for a long one.
_EVENED_BYTES = 2 << 30


class Staging:
    """Copies inputs for the bursts of one candidate and its reference; `example` has inputs for untimed calls."""

    def __init__(self, device: Device, supply: Supply, example: Trial, arena_bytes: int) -> None:
        """Allocate the filler: bytes that are copied in addition to inputs, so that revealing always takes equally long.

        Args:
            device: The judge's device.
            supply: Where batches come from.
            example: A nominal trial.
            arena_bytes: Size of the input sets in the candidate's arena, together.
        """
        self._device, self._supply, self._example = device, supply, example
        self._filler = torch.empty(
            arena_bytes if arena_bytes <= _EVENED_BYTES else 0, dtype=torch.uint8, device=device.torch_device
        )
        self._filler.fill_(POISON)  # the candidate can read it, and the memory may have held expected outputs before

    @property
    def is_even(self) -> bool:
        """True if the judge copies as many bytes into the arena for a short burst as for a long one."""
        return self._filler.numel() > 0

    def erase(self, side: Side, plan: Plan, *, lead_in: int = 0) -> None:
        """Erase what earlier bursts left where this one reads and writes, except inputs for untimed calls."""
        size, arena, outputs = self._supply.set_bytes, side.station.arena, side.station.outputs
        # Untimed calls may use inputs of the previous burst if large inputs are not kept for them.
        stays = size if lead_in and self._supply.is_outlined else 0
        arena[stays : len(plan.sets) * size].fill_(POISON)
        if lead_in and not stays:
            arena[:size].copy_(self._example.inputs.master)
        if 2 * len(plan.slots) > len(outputs):
            outputs.fill_(POISON)
        else:
            for slot in plan.slots:
                outputs[slot].fill_(POISON)
        self._device.synchronize()

    def show(self, side: Side, batch: Batch, index: int) -> None:
        """Copy one call's inputs to where the side waits for them."""
        size = self._supply.set_bytes
        begin = index * size
        inputs = batch.data[begin:][:size]
        side.station.arena[begin:][:size].copy_(inputs)
        self._device.synchronize()

    def reveal(self, side: Side, batch: Batch, gate: Gate, value: int) -> Stopwatch:
        """Copy the inputs to where the side waits for them, and open the gate. Return the running stopwatch.

        The stopwatch starts before the first input is visible. However short the burst, the judge copies everything
        that can be staged: waiting contexts slow each other's copies down, and a cost that all bursts share cancels in
        the slope. The time that contexts wait for each other before the copy begins does not count, because it reveals
        nothing. The judge uses the device's clock here, so no delay of the judge's own process makes a burst shorter.
        The cache is flushed.
        """
        target, size, most = side.station.arena, batch.data.numel(), self._filler.numel()
        watch = self._device.stopwatch(2)
        with gate.beside():
            watch.start(WALL)
            watch.start(REVEALING)
            target[:size].copy_(batch.data, non_blocking=True)
            if most > size:
                target[size:most].copy_(self._filler[size:], non_blocking=True)
            self._device.flush_cache()
            watch.stop(REVEALING)
        gate.open(value)
        return watch

"""The timed loop: one burst of calls on inputs from an arena, outputs into an arena. Both sides run this same code.

The runner runs it on the candidate, the judge on the reference and on nothing at all; so whatever the loop itself costs
is the same in all three, and the judge can take it off. Each call gets its inputs copied afresh, every other one to a new
address; its outputs are copied into the arena inside the burst, so a burst is over only when its outputs have arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import tree
from .devices.base import Device


@dataclass(frozen=True, slots=True)
class Station:
    """Where inputs come from and outputs go: `inputs[s]` is input set s, `outputs[k]` the bytes of slot k."""

    device: Device
    arena: torch.Tensor
    structure: Any
    inputs: Sequence[Sequence[torch.Tensor]]
    outputs: Sequence[torch.Tensor]

    @classmethod
    def over(
        cls,
        device: Device,
        structure: Any,
        specs: Sequence[tree.TensorSpec],
        arena_in: torch.Tensor,
        arena_out: torch.Tensor,
        slot_bytes: int,
    ) -> Station:
        """Divide two arenas into input sets and output slots, as many as fit."""
        _, set_bytes = tree.layout(specs)
        regions = [arena_in[at : at + set_bytes] for at in range(0, arena_in.numel() - set_bytes + 1, set_bytes)]
        slots = [arena_out[at : at + slot_bytes] for at in range(0, arena_out.numel() - slot_bytes + 1, slot_bytes)]
        return cls(device, arena_in, structure, [tree.views(region, specs) for region in regions], slots)

    @property
    def set_bytes(self) -> int:
        """Size of the region of one input set in the arena."""
        return self.arena.numel() // len(self.inputs)

    def arguments(self, structure: Any, specs: Sequence[tree.TensorSpec]) -> list[Any]:
        """Return positional arguments over the beginning of the arena itself, whatever their shapes."""
        arguments: list[Any] = tree.rebuild(structure, tree.views(self.arena, specs), self.device.torch_device)
        return arguments

    def store(self, value: Any, slot: int) -> tuple[Any, list[tree.TensorSpec]]:
        """Copy the tensors of `value` into slot `slot`, as far as they fit; return its structure and descriptions."""
        structure, tensors = tree.flatten(value)
        specs = [tree.describe(tensor, keep_layout=False) for tensor in tensors]
        _, needed = tree.layout(specs)
        if needed <= self.outputs[slot].numel():
            for view, tensor in zip(tree.views(self.outputs[slot], specs), tensors, strict=True):
                view.copy_(tensor, non_blocking=True)
        return structure, specs


def run_burst(
    call: Callable[..., Any], station: Station, order: Sequence[int], slots: Sequence[int], *, flush: bool
) -> list[float]:
    """Call `call` once for each input set in `order`, storing into `slots`; return the device seconds of each call.

    Returns only when the device has finished everything. Raises whatever the call raises.
    """
    watch = station.device.stopwatch(len(order))
    steady = [tensor.clone() for tensor in station.inputs[0]]
    for step, (index, slot) in enumerate(zip(order, slots, strict=True)):
        source = station.inputs[index]
        if step % 2:
            copies = [tensor.clone() for tensor in source]
        else:
            copies = steady
            for target, tensor in zip(steady, source, strict=True):
                target.copy_(tensor)
        arguments = tree.rebuild(station.structure, copies, station.device.torch_device)
        if flush:
            station.device.flush_cache()
        watch.start(step)
        result = call(*arguments)
        watch.stop(step)
        station.store(result, slot)
    station.device.synchronize()
    return watch.seconds()

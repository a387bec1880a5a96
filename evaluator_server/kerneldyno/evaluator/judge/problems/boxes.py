"""Inbox and outbox: the two arenas through which tensors pass between the judge and one problem's process.

The inbox has what calls are made with: the judge puts it there, or finds it there when the process has drawn it. The
outbox has what calls returned. What does not fit waits in the process until that arena is larger.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...devices.base import Arena, Device
from ...shared import small_floats, tree, wire
from ...shared.running_problem import INBOX, OUTBOX
from . import told

#: Smallest arena, in bytes; and most by which one that grows may become larger than it must.
_LEAST_BYTES = 1 << 20
_MOST_MORE = 128 << 20


class Boxes:
    """The arenas of one process."""

    def __init__(self, device: Device, descriptors: Sequence[int], ask: Callable[[wire.Frame, str], Any]) -> None:
        """Create them without memory.

        Args:
            device: The judge's device.
            descriptors: The descriptors that the process started with.
            ask: Sends an order to the process, and waits for the answer; see `ProblemProcess`.
        """
        self._device = device
        self._descriptors = descriptors
        self._ask = ask
        self._arenas: dict[int, Arena] = {}

    @property
    def nbytes(self) -> int:
        """Memory of both, in bytes."""
        return sum(arena.data.numel() for arena in self._arenas.values())

    def close(self) -> None:
        """Free the memory."""
        arenas, self._arenas = self._arenas, {}
        for arena in arenas.values():
            arena.close()

    def put_away(self) -> None:
        """Have the process leave both, and free the memory."""
        for number in list(self._arenas):
            self._put_away(number)

    def post(self, regions: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copy inputs into the inbox, one set after the other, and return the places that they have there."""
        places = self.places([region.numel() for region in regions])
        for place, region in zip(places, regions, strict=True):
            place.copy_(region)
        return places

    def places(self, sizes: Sequence[int]) -> list[torch.Tensor]:
        """Return places of these sizes in the inbox, one after the other."""
        inbox = self._arena(INBOX, sum(sizes))
        return [inbox[end - size : end] for size, end in zip(sizes, itertools.accumulate(sizes), strict=True)]

    def take(self, saids: Sequence[Any], most_bytes: int, box: int = OUTBOX) -> list[list[torch.Tensor]]:
        """Return the tensors of answers to orders that were sent together. They take at most so many bytes.

        They lie in a box, so they may be used until the next order only, in the same question.
        """
        specs: list[list[tree.TensorSpec]] = []
        sizes: list[int] = []
        with told.suspicion():
            for said in saids:
                specs.append(told.read_specs(said.get("tensors"), most_bytes - sum(sizes)))
                sizes.append(tree.layout(specs[-1])[1])
            stored = [told.read_flag(said.get("stored")) for said in saids]
        arena, begin = self._arenas.get(box), 0
        found: dict[int, list[torch.Tensor]] = {}
        for at, (each, size) in enumerate(zip(specs, sizes, strict=True)):
            if arena is not None and stored[at] and begin + size <= arena.data.numel():
                found[at] = tree.views(arena.data[begin:], each)
                begin += size
        if len(found) < len(specs):
            found = {at: list(map(small_floats.cloned, tensors)) for at, tensors in found.items()}
            region = self._arena(box, sum(sizes))  # the next time there is room for all
            self._ask({"op": "store"}, "reference")
            begin = 0
            for at, (each, size) in enumerate(zip(specs, sizes, strict=True)):
                if at not in found:
                    found[at] = tree.views(region[begin:], each)
                    begin += size
        return [found[at] for at in range(len(specs))]

    def _arena(self, number: int, nbytes: int) -> torch.Tensor:
        arena = self._arenas.get(number)
        if arena is None or arena.data.numel() < nbytes:
            least = _LEAST_BYTES
            if arena is not None:
                least = arena.data.numel() + min(arena.data.numel(), _MOST_MORE)  # it will not grow often
                self._put_away(number)
            arena = self._device.new_arena(max(nbytes, least), self._descriptors, number, grows=True)
            self._arenas[number] = arena
            self._ask({"op": "arena", "number": number, "ticket": arena.ticket()}, "reference")
        return arena.data

    def _put_away(self, number: int) -> None:
        self._ask({"op": "arena", "number": number, "ticket": None}, "reference")
        self._arenas.pop(number).close()

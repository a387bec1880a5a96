"""The attempts of a node that wait for a lane, and the choice of the device for each.

An attempt goes to the ready device that matches its request and has the most free lanes. The node adds attempts and
calls `dispatch` whenever a lane may be free.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping, Sequence

from kerneldyno.rpc import validation
from kerneldyno.v1 import evaluation_pb2 as pb

from .attempt import Attempt
from .cell import Cell

#: Number of references per device that count as hot.
_HOT_REFERENCES = 64


class WaitingLine:
    """Attempts in the order in which they get lanes."""

    def __init__(self, cells: Sequence[Cell], labels: Mapping[str, str]) -> None:
        self._cells = cells
        self._labels = labels
        self._waiting: deque[Attempt] = deque()
        self._hot: dict[str, dict[bytes, None]] = {cell.name: {} for cell in cells}

    def __len__(self) -> int:
        return len(self._waiting)

    def offers(self, request: pb.EvalRequest) -> bool:
        """Return True if devices and labels of this node match the request."""
        selector = request.device
        matching = sum(_matches(request, cell) for cell in self._cells)
        labels = selector.node_labels.items()
        return matching >= max(1, selector.min_devices) and all(self._labels.get(key) == value for key, value in labels)

    def place(self, attempt: Attempt) -> Cell | None:
        """Return the matching device with the most free lanes, or None if no lane is free.

        Among equals, prefer a device that has run the same reference.
        """
        fit = [cell for cell in self._cells if cell.accepts(attempt) and _matches(attempt.request, cell)]
        key = _reference_key(attempt.request)
        return max(fit, key=lambda cell: (cell.free_lanes, key in self._hot[cell.name]), default=None)

    def append(self, attempt: Attempt) -> None:
        """Add an attempt at the end."""
        self._waiting.append(attempt)

    def put_back(self, attempts: Sequence[Attempt]) -> None:
        """Add attempts that have waited before, in front and in this order."""
        self._waiting.extendleft(reversed(attempts))

    def remove(self, attempt: Attempt) -> bool:
        """Remove an attempt. Return False if it does not wait."""
        if attempt not in self._waiting:
            return False
        self._waiting.remove(attempt)
        return True

    def dispatch(self) -> None:
        """Give attempts to free lanes, the first ones first."""
        for attempt in list(self._waiting):
            cell = self.place(attempt)
            if cell is not None:
                self._waiting.remove(attempt)
                self._mark_hot(cell, attempt)
                cell.assign(attempt)
            elif attempt.suspect:  # it needs an idle device, which later attempts would keep busy
                break

    def _mark_hot(self, cell: Cell, attempt: Attempt) -> None:
        hot, key = self._hot[cell.name], _reference_key(attempt.request)
        hot.pop(key, None)
        hot[key] = None
        if len(hot) > _HOT_REFERENCES:
            del hot[next(iter(hot))]


def _matches(request: pb.EvalRequest, cell: Cell) -> bool:
    if cell.description is None:
        return False
    device, selector = cell.description.device, request.device
    return (
        validation.device_kind(request) in ("", device.kind)
        and selector.model.lower() in device.model.lower()
        and selector.min_memory_bytes <= device.memory_bytes
    )


def _reference_key(request: pb.EvalRequest) -> bytes:
    return hashlib.blake2b(request.reference_code.encode(), digest_size=16).digest()

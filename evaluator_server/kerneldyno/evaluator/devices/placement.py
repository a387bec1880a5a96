"""Where memory lies on an NVIDIA GPU: moved about between timed bursts, since kernels are quicker or slower by it.

On an H200 one and the same transposed convolution of cuDNN took 4.9 or 6.4 ms, another one 3.23 or 3.44, by where its
operands lie, and for as long as they lie there. What counts seems to be how they lie to each other: a process that
allocates the same sizes in the same order again is as quick again. So what its allocator keeps is allocated anew in
another order, with gaps of random sizes between. In some processes that is slow wherever things come to lie, and what
they allocate as they go is not; so memory is given back and taken again in the same order as well.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import torch

#: Sizes of gaps, in bytes, and how much of the device's free memory all of them may take together. Smaller allocations
#: than the least share a segment of torch's allocator, which moves none of them.
_GAP_BYTES = 2 << 20
_LEAST_GAPS, _MOST_GAPS = 5, 64
_SHARE_OF_FREE = 1 / 8
#: Up to here torch's allocator has memory of another kind, in bytes.
_SMALL_BYTES = 1 << 20
#: Segments that are moved, the largest ones: each takes the driver a moment.
_MOST_SEGMENTS = 32


class Placement:
    """Moves what torch's allocator keeps for later on one device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._gaps: list[torch.Tensor] = []

    def shuffle(self, seed: int) -> None:
        """Give back all memory that is kept for later, and have as much of it again elsewhere; `seed` says where."""
        rng = random.Random(seed)
        segments = self._segments()
        sizes = sorted(_idle(segments))[-_MOST_SEGMENTS:]
        rng.shuffle(sizes)
        self._clear()
        filled = [self._take(hole) for hole in _holes(segments)]
        room = int(torch.cuda.mem_get_info(self._device)[0] * _SHARE_OF_FREE)
        taken = []
        with contextlib.suppress(torch.OutOfMemoryError):
            for size in sizes or [0]:
                gap = rng.randint(_LEAST_GAPS, _MOST_GAPS) * _GAP_BYTES
                room -= gap
                if room < 0:
                    break
                self._gaps.append(self._take(gap))
                taken.append(self._take(size))
        del taken, filled  # to the allocator, which has nothing else to give

    def renew(self) -> None:
        """Give back all memory that is kept for later, and have as much of it again as if the process had just begun."""
        segments = self._segments()
        sizes = _idle(segments)
        least = min(sorted(sizes)[-_MOST_SEGMENTS:], default=0)
        self._clear()
        filled = [self._take(hole) for hole in _holes(segments)]
        taken = []
        with contextlib.suppress(torch.OutOfMemoryError):
            for size in sizes:
                if size >= least:
                    taken.append(self._take(size))
        del taken, filled

    def _clear(self) -> None:
        self._gaps = []
        torch.cuda.empty_cache()

    def _segments(self) -> list[dict[str, Any]]:
        """Return the large segments that calls on the current stream get memory from."""
        snapshot: Callable[[], list[dict[str, Any]]] = torch.cuda.memory_snapshot
        stream = torch.cuda.current_stream(self._device).cuda_stream
        return [
            segment
            for segment in snapshot()
            if segment["device"] == self._device.index
            and segment["segment_type"] == "large"
            and segment["stream"] == stream
            and tuple(segment.get("segment_pool_id", (0, 0))) == (0, 0)
        ]

    def _take(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self._device)


def _idle(segments: list[dict[str, Any]]) -> list[int]:
    """Return the sizes of those in which nothing is allocated, in bytes."""
    return [segment["total_size"] for segment in segments if not segment["active_size"]]


def _holes(segments: list[dict[str, Any]]) -> list[int]:
    """Return the sizes of what is free between things in use, in bytes: calls count on it, and gaps are not to lie there."""
    return sorted(
        block["size"]
        for segment in segments
        for block in segment["blocks"]
        if segment["active_size"] and block["state"] == "inactive" and block["size"] > _SMALL_BYTES
    )

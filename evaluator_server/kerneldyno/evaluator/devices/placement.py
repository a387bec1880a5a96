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
        sizes = sorted(self._idle_segments())[-_MOST_SEGMENTS:]
        rng.shuffle(sizes)
        self._clear()
        room = int(torch.cuda.mem_get_info(self._device)[0] * _SHARE_OF_FREE)
        segments = []
        with contextlib.suppress(torch.OutOfMemoryError):
            for size in sizes or [0]:
                gap = rng.randint(_LEAST_GAPS, _MOST_GAPS) * _GAP_BYTES
                room -= gap
                if room < 0:
                    break
                self._gaps.append(self._take(gap))
                segments.append(self._take(size))
        del segments  # to the allocator, which has nothing else to give

    def renew(self) -> None:
        """Give back all memory that is kept for later, and have as much of it again as if the process had just begun."""
        sizes = self._idle_segments()
        least = min(sorted(sizes)[-_MOST_SEGMENTS:], default=0)
        self._clear()
        segments = []
        with contextlib.suppress(torch.OutOfMemoryError):
            for size in sizes:
                if size >= least:
                    segments.append(self._take(size))
        del segments

    def _clear(self) -> None:
        self._gaps = []
        torch.cuda.empty_cache()

    def _idle_segments(self) -> list[int]:
        """Return the sizes of the large segments in which nothing is allocated, in bytes."""
        snapshot: Callable[[], list[dict[str, Any]]] = torch.cuda.memory_snapshot
        return [
            segment["total_size"]
            for segment in snapshot()
            if segment["device"] == self._device.index
            and segment["segment_type"] == "large"
            and not segment["active_size"]
            and tuple(segment.get("segment_pool_id", (0, 0))) == (0, 0)
        ]

    def _take(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self._device)

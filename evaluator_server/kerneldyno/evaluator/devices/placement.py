"""Addresses of memory on an NVIDIA GPU. They change between timed bursts, because the speed of kernels depends on them.

On an H200 the same transposed convolution of cuDNN took 4.9 or 6.4 ms, and another 3.23 or 3.44 ms, depending on the
addresses of its operands, as long as these stayed. Their relative position seems to matter: a process that allocates
the same sizes in the same order again is as fast again. So the memory that the allocator keeps is allocated anew in
another order, with gaps of random sizes between. In some processes memory allocated in this way is slow at every
address, while memory that they allocate as they run is not. Therefore memory is also released and allocated again in
the same order.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import torch

#: Unit of the gaps' sizes in bytes, smallest and largest gap in units, and the share of the device's free memory that
#: all gaps together may take. Smaller allocations share a segment of torch's allocator, which would move none of them.
_GAP_BYTES = 2 << 20
_LEAST_GAPS, _MOST_GAPS = 5, 64
_SHARE_OF_FREE = 1 / 8
#: torch's allocator serves allocations up to this size (bytes) from other segments.
_SMALL_BYTES = 1 << 20
#: Maximum number of segments that are moved, the largest ones. Each takes the driver some time.
_MOST_SEGMENTS = 32


class Placement:
    """Moves the memory that torch's allocator keeps for later on one device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._gaps: list[torch.Tensor] = []

    def shuffle(self, seed: int) -> None:
        """Release all memory kept for later, and allocate as much again at other addresses, drawn from `seed`."""
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
        del taken, filled  # back to the allocator, which now has only these blocks

    def renew(self) -> None:
        """Release all memory that is kept for later, and allocate as much again, as if the process had just started."""
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
        """Return the large segments from which calls on the current stream get memory."""
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
    """Return the sizes of the segments in which nothing is allocated, in bytes."""
    return [segment["total_size"] for segment in segments if not segment["active_size"]]


def _holes(segments: list[dict[str, Any]]) -> list[int]:
    """Return the sizes in bytes of the free blocks between used ones. Calls rely on them, so no gap may lie there."""
    return sorted(
        block["size"]
        for segment in segments
        for block in segment["blocks"]
        if segment["active_size"] and block["state"] == "inactive" and block["size"] > _SMALL_BYTES
    )

"""The CPU as a device, for laptops and CI. Triton runs in its interpreter, and arenas are sealed memory files."""

from __future__ import annotations

import fcntl
import functools
import mmap
import os
import pathlib
import platform
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from ..shared import proc
from . import heap, hostmemory
from .base import Arena, Device, DeviceDescription, Stopwatch
from .signals import Signals, new_page

#: Enough to evict the second-level cache. Evicting last-level caches would be too slow here, and the interpreter's
#: overhead is a thousand times that of a cache miss.
_FLUSH_BYTES = 4 << 20
#: Assumed size of the largest cache in bytes, which few caches exceed, if the kernel does not report it.
_USUAL_CACHE_BYTES = 64 << 20


class CpuDevice(Device):
    """The host's processor."""

    kind = "cpu"

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")
        self._flush: torch.Tensor | None = None

    def warm_up(self) -> None:
        # One thread for both reference and candidate: the interpreter has only one, and forked OpenMP pools cause
        # problems.
        torch.set_num_threads(1)
        torch.ones(8).sum().item()
        heap.keep()

    def divide_memory(self) -> None:
        heap.divide()

    def describe(self) -> DeviceDescription:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return DeviceDescription(proc.processor_model() or platform.processor() or platform.machine(), memory)

    def room_bytes(self) -> int:
        return hostmemory.allowance()

    def runner_descriptors(self) -> list[int]:
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        return [new_page(), *(os.memfd_create(f"kerneldyno-{name}", flags) for name in ("in", "out"))]

    def new_arena(self, nbytes: int, descriptors: Sequence[int], number: int, *, grows: bool = False) -> Arena:
        return _MemoryFileArena(nbytes, descriptors[1 + number], grows=grows)

    def reach_arena(self, ticket: dict[str, Any], descriptors: Sequence[int], number: int) -> torch.Tensor:
        reached = torch.frombuffer(mmap.mmap(descriptors[1 + number], int(ticket["nbytes"])), dtype=torch.uint8)
        # Map every page now. The first write to a page is slow, and a new process would be the first on all of them.
        return reached.zero_()

    def signals(self, descriptors: Sequence[int]) -> Signals:
        return Signals(descriptors[0])

    def gate(self, signals: Signals, *, queues: bool) -> None:
        return None

    def synchronize(self) -> None:
        pass

    def nonzero_memory(self) -> AbstractContextManager[None]:
        return heap.soiled()

    def flush_cache(self) -> None:
        if self._flush is None:
            self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8)
        self._flush.zero_()

    def cache_bytes(self) -> int:
        return _largest_cache()

    def clear(self) -> None:
        heap.give_back()

    def settle(self) -> None:
        heap.make_alike()

    def stopwatch(self, count: int) -> Stopwatch:
        return _HostStopwatch(count)


class _MemoryFileArena(Arena):
    def __init__(self, nbytes: int, descriptor: int, *, grows: bool) -> None:
        # The runner may have made a file larger that grows.
        os.ftruncate(descriptor, max(nbytes, os.fstat(descriptor).st_size))
        # The seals keep a runner from shrinking the file, which would kill the judge with SIGBUS.
        if not grows:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        elif not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self._nbytes = nbytes
        self.data = torch.frombuffer(mmap.mmap(descriptor, nbytes), dtype=torch.uint8)

    def ticket(self) -> dict[str, Any]:
        return {"nbytes": self._nbytes}

    def close(self) -> None:
        self.data = torch.empty(0, dtype=torch.uint8)  # the mapping ends with its last tensor


class _HostStopwatch(Stopwatch):
    def __init__(self, count: int) -> None:
        self._begin = [0] * count
        self._end = [0] * count

    def start(self, index: int) -> None:
        self._begin[index] = time.perf_counter_ns()

    def stop(self, index: int) -> None:
        self._end[index] = time.perf_counter_ns()

    def seconds(self) -> list[float]:
        return [(end - begin) * 1e-9 for begin, end in zip(self._begin, self._end, strict=True)]


@functools.cache
def _largest_cache() -> int:
    """Return the size of the first processor's largest cache in bytes.

    Linux reports it as "107520K". If it does not, return a size that few caches exceed.
    """
    try:
        sizes = [path.read_text() for path in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
        return max(int(size.strip().removesuffix("K")) << 10 for size in sizes)
    except (OSError, ValueError):
        return _USUAL_CACHE_BYTES

"""A process on a GPU whose calls of the driver are timed while others do something: launches, memory, events, streams."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import torch

_FORK = multiprocessing.get_context("fork")
#: Seconds for which each call is repeated.
_SECONDS_EACH = 0.35
_BYTES = 64 << 20
_PAGE = 4096
#: Flags of cuMemHostRegister: portable, mapped. Flag of cuStreamCreate: non-blocking.
_PORTABLE_AND_MAPPED, _NON_BLOCKING = 3, 1
_LONGEST = 60.0


class Bystander:
    """Context manager of the process. It must be started before this process uses CUDA."""

    #: How long `measure` takes, in seconds.
    seconds = 7 * _SECONDS_EACH

    def __init__(self, environment: dict[str, str]) -> None:
        """Create it. `environment` chooses its GPU."""
        self._go, self._told = _FORK.Semaphore(0), _FORK.Queue()
        self._process = _FORK.Process(target=_run, args=(environment, self._go, self._told), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self._told.get(timeout=_LONGEST)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()

    def measure(self) -> dict[str, tuple[float, float, float]]:
        """Return mean, 95th percentile and longest of each call, in microseconds."""
        self._go.release()
        measured: dict[str, tuple[float, float, float]] = self._told.get(timeout=_LONGEST)
        return measured


def _run(environment: dict[str, str], go: Any, told: Any) -> None:
    os.environ.update(environment, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    calls = _calls(ctypes.CDLL("libcuda.so.1"))
    for call in calls.values():
        call()
    told.put(None)
    while True:
        go.acquire()
        told.put({name: _timed(call) for name, call in calls.items()})


def _timed(call: Callable[[], None]) -> tuple[float, float, float]:
    times = []
    until = time.monotonic() + _SECONDS_EACH
    while time.monotonic() < until:
        begin = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - begin))
    times.sort()
    return sum(times) / len(times), times[int(0.95 * len(times))], times[-1]


def _calls(driver: ctypes.CDLL) -> dict[str, Callable[[], None]]:
    number = torch.zeros(1, device="cuda")
    area = mmap.mmap(-1, _PAGE)
    page = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(area)))
    pointer, handle = ctypes.c_uint64(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()

    def launch() -> None:
        number.add_(1)
        torch.cuda.synchronize()

    def event() -> None:
        driver.cuEventCreate(ctypes.byref(handle), 0)
        driver.cuEventDestroy_v2(handle)

    def stream() -> None:
        driver.cuStreamCreate(ctypes.byref(handle), _NON_BLOCKING)
        driver.cuStreamDestroy_v2(handle)

    def memory() -> None:
        driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(_BYTES))
        driver.cuMemFree_v2(pointer)

    def segments() -> None:
        tensor = torch.empty(_BYTES, dtype=torch.uint8, device="cuda")
        del tensor
        torch.cuda.empty_cache()

    def register() -> None:
        driver.cuMemHostRegister_v2(page, ctypes.c_size_t(_PAGE), _PORTABLE_AND_MAPPED)
        driver.cuMemHostUnregister(page)

    def information() -> None:
        driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))

    return {
        "launch a kernel and wait": launch,
        "create and destroy an event": event,
        "create and destroy a stream": stream,
        "cuMemAlloc and free, 64 MiB": memory,
        "the same by torch, expandable segments": segments,
        "register and unregister a page": register,
        "ask for free memory": information,
    }

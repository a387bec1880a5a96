"""An NVIDIA GPU as a device. Arenas are plain allocations shared by CUDA IPC, and clocks are CUDA events.

Arenas use the driver API instead of torch's own sharing, because torch needs files that both processes can open, and a
runner shares no file system with the judge. Sources: CUDA Driver API, "cuIpcGetMemHandle", "cuIpcOpenMemHandle"
(https://docs.nvidia.com/cuda/cuda-driver-api/).
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from ..shared.nvml import GpuState
from . import gpu_state
from .base import AFRESH, Arena, Device, DeviceDescription, Gate, Pace, Probe, Stopwatch, Used
from .driver import Driver
from .graphs import capture
from .pace import measure
from .placement import Placement
from .signals import FINISHED, OPENED, Signals, new_page

#: Arenas are rounded up to this size in bytes. Memory that does not fill its last page is shared in small pages:
#: reading 256 MB of it took 112 us on an H200 instead of 70 us.
_PAGE_BYTES = 2 << 20
#: A device with less free memory than this (bytes) is almost full.
_LITTLE_BYTES = 1 << 30
#: Share of the device's memory that the judge's allocator may keep for later. Releasing and reallocating takes 0.1 s.
_MOST_IDLE = 0.15
#: Byte that fills new arenas: the driver may return memory in which this process earlier had answers.
_WIPED = 0xFF


def _stream(device: torch.device) -> torch.cuda.Stream:
    make: Callable[..., torch.cuda.Stream] = torch.cuda.Stream
    return make(device)


class _Bytes:
    """Device memory that torch did not allocate, in the form that torch.as_tensor takes without copying."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
        }


class CudaDevice(Device):
    """The GPU with number `index` among those visible to this process."""

    kind = "cuda"

    def __init__(self, index: int) -> None:
        self.torch_device = torch.device("cuda", index)
        self._driver: Driver | None = None
        self._placement = Placement(self.torch_device)

    @property
    def driver(self) -> Driver:
        """Return the driver, which is loaded on first use."""
        if self._driver is None:
            self._driver = Driver()
        return self._driver

    @functools.cached_property
    def _stream_of_graphs(self) -> torch.cuda.Stream:
        return _stream(self.torch_device)  # one for all graphs: libraries make workspaces per stream

    @property
    def architecture(self) -> str:
        major, minor = torch.cuda.get_device_capability(self.torch_device)
        return f"{major}.{minor}"

    def warm_up(self) -> None:
        torch.cuda.set_device(self.torch_device)
        torch.zeros(1, device=self.torch_device).add_(1)
        self.synchronize()

    def describe(self) -> DeviceDescription:
        properties = torch.cuda.get_device_properties(self.torch_device)
        return DeviceDescription(
            model=properties.name,
            memory_bytes=properties.total_memory,
            driver_version=self.driver.version(),
            cuda_version=torch.version.cuda or "",
            uuid=f"GPU-{properties.uuid}",
        )

    # The driver takes time to create and destroy each queue between a context and the device. Eight contexts took 1.04
    # s to start and 0.49 s to end with the usual number of queues, and 0.44 s and 0.20 s with one (H200).
    quick_start_environment: Mapping[str, str] = MappingProxyType({"CUDA_DEVICE_MAX_CONNECTIONS": "1"})

    # This gives a queue of 4,094 launches instead of 1,022. Launches beyond the queue's size cannot be queued ahead,
    # and many networks need more than a thousand per call. It makes the start of a process 20 ms longer.
    full_queues_environment: Mapping[str, str] = MappingProxyType({"CUDA_SCALE_LAUNCH_QUEUES": "4x"})

    displaces = True

    # 40 calls fit into a queue of 1,022 launches if each makes 16 launches, and eight more for each call by itself.
    quick_start_launches = 16

    # All calls of a host's driver wait for one lock, those of timings on other GPUs as well, and behind each process
    # that is being started. Eight at once are enough (docs/driver.md).
    openings = 8

    def runner_descriptors(self) -> list[int]:
        return [new_page()]

    def new_arena(self, nbytes: int, descriptors: Sequence[int], number: int, *, grows: bool = False) -> Arena:
        return _DeviceArena(self, nbytes)

    def reach_arena(self, ticket: dict[str, Any], descriptors: Sequence[int], number: int) -> torch.Tensor:
        pointer = self.driver.reach(bytes.fromhex(ticket["handle"]))
        return torch.as_tensor(_Bytes(pointer, int(ticket["nbytes"])), device=self.torch_device)

    def leave_arena(self, reached: torch.Tensor) -> None:
        self.synchronize()
        self.driver.leave(reached.data_ptr())

    def signals(self, descriptors: Sequence[int]) -> Signals:
        return Signals(descriptors[0])

    def gate(self, signals: Signals, *, queues: bool) -> Gate:
        page = torch.frombuffer(signals.memory, dtype=torch.int32)
        pointer = self.driver.register(page.data_ptr(), mmap.PAGESIZE) if queues else 0
        # Create the stream now: that waits for the device, so it must not happen behind a closed gate.
        side = None if queues else _stream(self.torch_device)
        return _StreamGate(self.driver, signals, pointer, self.torch_device, side)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def milestone(self) -> Callable[[], bool]:
        query: Callable[[], bool] = torch.cuda.current_stream(self.torch_device).record_event().query
        return query

    def flush_cache(self) -> None:
        self._flush.zero_()

    def switch_to_this_process(self) -> None:
        self._little.zero_()

    def shift_queue(self, places: int) -> None:
        for _ in range(places):
            self._little.zero_()

    @functools.cached_property
    def _flush(self) -> torch.Tensor:
        size = max(4 * self.cache_bytes(), 64 << 20)
        # In one piece from the driver: torch would map it in ten, with four calls of the driver for each.
        return torch.as_tensor(_Bytes(self.allocate(size), size), device=self.torch_device)

    @functools.cached_property
    def _little(self) -> torch.Tensor:
        return self._flush[:1]

    def cache_bytes(self) -> int:
        size: int = torch.cuda.get_device_properties(self.torch_device).L2_cache_size
        return size

    def settle_cache(self) -> None:
        self.driver.forget_persisting()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        runtime.cudaProfilerStart()
        try:
            yield
        finally:
            runtime.cudaProfilerStop()

    def keep_within(self, nbytes: int | None) -> None:
        share = 1.0 if nbytes is None else min(1.0, nbytes / self._memory_bytes)
        torch.cuda.set_per_process_memory_fraction(share, self.torch_device)

    def room_bytes(self) -> int:
        return self.free_bytes()

    def allocated_bytes(self) -> int:
        return self._counted("allocated_bytes")

    def _counted(self, what: str) -> int:
        # `memory_allocated` first makes one flat dict of all statistics, which takes ten times as long.
        counted: int = torch.cuda.memory_stats_as_nested_dict(self.torch_device)[what]["all"]["current"]
        return counted

    @contextlib.contextmanager
    def measured(self) -> Iterator[Used]:
        torch.cuda.reset_peak_memory_stats(self.torch_device)
        before, used = self.allocated_bytes(), Used()
        try:
            yield used
        finally:
            used.peak = torch.cuda.max_memory_allocated(self.torch_device) - before

    def allocate(self, nbytes: int) -> int:
        """Allocate memory beside torch's, and return its address."""
        try:
            return self.driver.allocate(nbytes)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()  # torch may keep the needed memory
            return self.driver.allocate(nbytes)

    def free_bytes(self) -> int:
        idle = torch.cuda.memory_reserved(self.torch_device)  # this process's, used or not
        return torch.cuda.mem_get_info(self.torch_device)[0] + idle

    def idle_bytes(self) -> int:
        return self._counted("reserved_bytes") - self._counted("allocated_bytes")

    def is_full(self) -> bool:
        return torch.cuda.mem_get_info(self.torch_device)[0] < _LITTLE_BYTES

    def lacks(self, nbytes: int) -> bool:
        free: int = torch.cuda.mem_get_info(self.torch_device)[0]
        return free < nbytes

    def trim(self) -> None:
        if self.idle_bytes() > _MOST_IDLE * torch.cuda.get_device_properties(self.torch_device).total_memory:
            torch.cuda.empty_cache()

    def clear(self) -> None:
        torch.cuda.empty_cache()

    def settle(self) -> None:
        super().settle()
        with contextlib.suppress(torch.OutOfMemoryError):
            self.flush_cache()  # its memory is mapped now: during a timing, that may wait for births on other GPUs

    def displace(self, seed: int) -> None:
        if seed == AFRESH:
            self._placement.renew()
        else:
            self._placement.shuffle(seed)

    def capture(self, calls: Sequence[Callable[[], Any]]) -> list[Callable[[], Any]] | None:
        with contextlib.suppress(torch.OutOfMemoryError):
            return capture(calls, self.driver, self._stream_of_graphs)
        torch.cuda.empty_cache()  # a new pool cannot use memory that torch keeps for others
        return capture(calls, self.driver, self._stream_of_graphs)

    def pace(self) -> Pace | None:
        return measure(self.torch_device)

    def probe(self) -> Probe:
        began = time.perf_counter()
        self.switch_to_this_process()
        self.synchronize()
        latency = time.perf_counter() - began
        watch = self.stopwatch(1)
        target, source = self._flush.chunk(2)
        self.flush_cache()
        watch.start(0)
        target.copy_(source)  # reading is slower while the device wipes freed memory
        watch.stop(0)
        self.synchronize()
        return Probe(watch.seconds()[0], latency)

    def near_processors(self) -> set[int]:
        return gpu_state.near_processors(self.torch_device.index)

    def energy(self) -> float | None:
        return gpu_state.energy(self.torch_device.index)

    def state(self) -> GpuState | None:
        return gpu_state.state(self.torch_device.index)

    def stopwatch(self, count: int) -> Stopwatch:
        return _EventStopwatch(count)


class _DeviceArena(Arena):
    # Each candidate gets new arenas: a process that has seen the handle of an arena can open it while it exists, from
    # any namespace.
    def __init__(self, device: CudaDevice, nbytes: int) -> None:
        self._driver = device.driver
        self._nbytes = nbytes
        whole = -(-nbytes // _PAGE_BYTES) * _PAGE_BYTES
        self._pointer = device.allocate(whole)
        torch.as_tensor(_Bytes(self._pointer, whole), device=device.torch_device).fill_(_WIPED)
        device.synchronize()
        self.data = torch.as_tensor(_Bytes(self._pointer, nbytes), device=device.torch_device)

    def ticket(self) -> dict[str, Any]:
        return {"nbytes": self._nbytes, "handle": self._driver.export(self._pointer).hex()}

    def close(self) -> None:
        if self._pointer:
            self._driver.free(self._pointer)
            self._pointer = 0


class _StreamGate(Gate):
    """Two words of host memory: the stream waits for one and writes the other (CUDA Driver API, "cuStreamWaitValue32").

    They are in host memory so that opening the gate or watching for the end needs no launch, message or driver call.
    Loading a kernel for the first time may wait for the whole device; behind a gate that this same kernel should open,
    it would wait for ever. And a processor sees the word change within 3 us, while the delay of messages varied by 200
    us (H200).
    """

    def __init__(
        self,
        driver: Driver,
        signals: Signals,
        pointer: int,
        device: torch.device,
        side: torch.cuda.Stream | None,
    ) -> None:
        """Create one side of the gate.

        Args:
            driver: The driver.
            signals: The page of signals.
            pointer: The page's address on the device; 0 for the side that only opens the gate.
            device: The device.
            side: The stream beside the gate; needed by the side that opens it.
        """
        self._driver = driver
        self._signals = signals
        self._pointer = pointer
        self._device = device
        self._side = side

    @property
    def _queue(self) -> int:
        queue: int = torch.cuda.current_stream(self._device).cuda_stream
        return queue

    def wait(self, value: int) -> None:
        self._driver.wait_value(self._queue, self._pointer + 4 * OPENED, value)

    def finish(self, value: int) -> None:
        self._driver.write_value(self._queue, self._pointer + 4 * FINISHED, value)

    def open(self, value: int) -> None:
        assert self._side is not None
        self._side.synchronize()
        self.force(value)

    def force(self, value: int) -> None:
        self._signals.tell(OPENED, value)

    def is_finished(self, value: int) -> bool:
        return self._signals.has(FINISHED, value)

    def beside(self) -> contextlib.AbstractContextManager[Any]:
        return torch.cuda.stream(self._side)


class _EventStopwatch(Stopwatch):
    def __init__(self, count: int) -> None:
        event: Callable[..., Any] = torch.cuda.Event
        self._begin = [event(enable_timing=True) for _ in range(count)]
        self._end = [event(enable_timing=True) for _ in range(count)]

    def start(self, index: int) -> None:
        self._begin[index].record()

    def stop(self, index: int) -> None:
        self._end[index].record()

    def seconds(self) -> list[float]:
        return [begin.elapsed_time(end) * 1e-3 for begin, end in zip(self._begin, self._end, strict=True)]

"""An NVIDIA GPU as a device: arenas are plain allocations shared by CUDA IPC, clocks are CUDA events.

Arenas go through the driver API, not through torch's own sharing: that needs files common to both processes, and a
runner shares no file system with the judge. Sources: CUDA Driver API, "cuIpcGetMemHandle", "cuIpcOpenMemHandle"
(https://docs.nvidia.com/cuda/cuda-driver-api/).
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any

import torch

from . import nvml
from .base import Arena, Device, Gate, Stopwatch

_IPC_LAZY_ENABLE_PEER_ACCESS = 1
_WAIT_VALUE_GEQ = 0
_LIMIT_PERSISTING_L2 = 6
#: Memory that does not fill its last page is shared in small pages: reading it took 112 us for 256 MB on an H200, not 70.
_PAGE_BYTES = 2 << 20
#: Less free memory than this is next to nothing.
_LITTLE_BYTES = 1 << 30
#: Share of the device's memory that the judge's allocator may keep for later: giving back and taking anew takes 0.1 s.
_MOST_IDLE = 0.15


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


class _Driver:
    """The few driver calls that torch does not offer."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            message = (text.value or b"unknown error").decode()
            if status == 2:
                raise torch.OutOfMemoryError(f"{name}: {message}")
            raise RuntimeError(f"{name}: {message} ({status})")

    def allocate(self, nbytes: int) -> int:
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(nbytes))
        return pointer.value

    def free(self, pointer: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def export(self, pointer: int) -> bytes:
        handle = _IpcHandle()
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(pointer))
        return bytes(handle.reserved)

    def reach(self, exported: bytes) -> int:
        handle = _IpcHandle((ctypes.c_ubyte * 64)(*exported))
        pointer = ctypes.c_uint64()
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), handle, ctypes.c_uint(_IPC_LAZY_ENABLE_PEER_ACCESS))
        return pointer.value

    def wait_value(self, stream: int, pointer: int, value: int) -> None:
        """Queue on `stream`: wait until the word at `pointer` is at least `value`."""
        self._call(
            "cuStreamWaitValue32_v2",
            ctypes.c_void_p(stream),
            ctypes.c_uint64(pointer),
            ctypes.c_uint32(value),
            ctypes.c_uint(_WAIT_VALUE_GEQ),
        )

    def forget_persisting(self) -> None:
        """Make lines of the second-level cache that were marked as persisting ordinary again, and allow no new ones."""
        self._library.cuCtxResetPersistingL2Cache()  # refused by GPUs that have no such thing
        self._library.cuCtxSetLimit(ctypes.c_uint(_LIMIT_PERSISTING_L2), ctypes.c_size_t(0))

    def version(self) -> str:
        try:
            with open("/proc/driver/nvidia/version") as file:
                words = file.readline().split()
            return next(word for word in words if word[0].isdigit() and "." in word)
        except (OSError, StopIteration):
            return ""


class _Bytes:
    """Foreign device memory, in the form that torch.as_tensor takes without copying."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
        }


class CudaDevice(Device):
    """GPU number `index` of those visible to this process."""

    kind = "cuda"

    def __init__(self, index: int) -> None:
        self.torch_device = torch.device("cuda", index)
        self._driver: _Driver | None = None
        self._flush: torch.Tensor | None = None

    @property
    def driver(self) -> _Driver:
        """The driver, loaded on first use."""
        if self._driver is None:
            self._driver = _Driver()
        return self._driver

    def warm_up(self) -> None:
        torch.cuda.set_device(self.torch_device)
        torch.zeros(1, device=self.torch_device).add_(1)
        self.synchronize()

    def describe(self) -> dict[str, Any]:
        properties = torch.cuda.get_device_properties(self.torch_device)
        return {
            "model": properties.name,
            "memory_bytes": properties.total_memory,
            "driver_version": self.driver.version(),
            "uuid": f"GPU-{properties.uuid}",
            "cuda_version": torch.version.cuda or "",
        }

    def runner_descriptors(self) -> list[int]:
        return []

    def new_arena(self, nbytes: int, descriptor: int | None) -> Arena:
        return _DeviceArena(self, nbytes)

    def reach_arena(self, ticket: dict[str, Any], descriptor: int | None) -> torch.Tensor:
        pointer = self.driver.reach(bytes.fromhex(ticket["handle"]))
        return torch.as_tensor(_Bytes(pointer, int(ticket["nbytes"])), device=self.torch_device)

    def gate(self, word: torch.Tensor) -> Gate:
        return _StreamGate(self.driver, word, self.torch_device)

    def own_gate(self) -> Gate:
        # Loading a kernel for the first time may wait for the whole device: a device that waits for its own process to
        # launch the kernel that opens the gate would then wait for ever. A word in host memory needs no launch.
        return _StreamGate(self.driver, torch.zeros(1, dtype=torch.int32).pin_memory(), self.torch_device)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def flush_cache(self) -> None:
        if self._flush is None:
            self._flush = torch.empty(
                max(4 * self.cache_bytes(), 64 << 20), dtype=torch.uint8, device=self.torch_device
            )
        self._flush.zero_()

    def cache_bytes(self) -> int:
        size: int = torch.cuda.get_device_properties(self.torch_device).L2_cache_size
        return size

    def settle_cache(self) -> None:
        self.driver.forget_persisting()

    def keep_within(self, share: float) -> None:
        torch.cuda.set_per_process_memory_fraction(share, self.torch_device)

    def free_bytes(self) -> int:
        idle = torch.cuda.memory_reserved(self.torch_device)  # ours, whatever it is used for
        return torch.cuda.mem_get_info(self.torch_device)[0] + idle

    def is_full(self) -> bool:
        return torch.cuda.mem_get_info(self.torch_device)[0] < _LITTLE_BYTES

    def trim(self) -> None:
        idle = torch.cuda.memory_reserved(self.torch_device) - torch.cuda.memory_allocated(self.torch_device)
        if idle > _MOST_IDLE * torch.cuda.get_device_properties(self.torch_device).total_memory:
            torch.cuda.empty_cache()

    def clear(self) -> None:
        torch.cuda.empty_cache()

    def probe_seconds(self) -> float:
        watch = self.stopwatch(1)
        self.flush_cache()
        watch.start(0)
        self.flush_cache()
        watch.stop(0)
        self.synchronize()
        return watch.seconds()[0]

    def state(self) -> dict[str, Any]:
        return nvml.state(self.torch_device.index)

    def stopwatch(self, count: int) -> Stopwatch:
        return _EventStopwatch(count)


class _DeviceArena(Arena):
    def __init__(self, device: CudaDevice, nbytes: int) -> None:
        self._driver = device.driver
        self._nbytes = nbytes
        whole = -(-nbytes // _PAGE_BYTES) * _PAGE_BYTES
        try:
            self._pointer = self._driver.allocate(whole)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()  # torch may hold what we need
            self._pointer = self._driver.allocate(whole)
        self.data = torch.as_tensor(_Bytes(self._pointer, nbytes), device=device.torch_device)

    def ticket(self) -> dict[str, Any]:
        return {"nbytes": self._nbytes, "handle": self._driver.export(self._pointer).hex()}

    def close(self) -> None:
        if self._pointer:
            self._driver.free(self._pointer)
            self._pointer = 0


class _StreamGate(Gate):
    """A word of device memory that the stream waits for (CUDA Driver API, "cuStreamWaitValue32").

    The word may lie in an arena: a runner then waits for what the judge writes, without any message between them.
    """

    def __init__(self, driver: _Driver, word: torch.Tensor, device: torch.device) -> None:
        self._driver = driver
        self._word = word
        self._device = device
        stream: Callable[..., Any] = torch.cuda.Stream
        self._side = stream(device)

    def wait(self, value: int) -> None:
        stream = torch.cuda.current_stream(self._device)
        self._driver.wait_value(stream.cuda_stream, self._word.data_ptr(), value)

    def open(self, value: int) -> None:
        if self._word.is_cuda:
            with torch.cuda.stream(self._side):
                self._word.fill_(value)
        else:
            self._side.synchronize()
            self._word.fill_(value)

    def beside(self) -> contextlib.AbstractContextManager[Any]:
        return torch.cuda.stream(self._side)


class _EventStopwatch(Stopwatch):
    def __init__(self, count: int) -> None:
        event: Callable[..., Any] = torch.cuda.Event
        self._begin = [event(enable_timing=True) for _ in range(count)]
        self._end = [event(enable_timing=True) for _ in range(count)]
        self.start = lambda index: self._begin[index].record()
        self.stop = lambda index: self._end[index].record()

    def seconds(self) -> list[float]:
        return [begin.elapsed_time(end) * 1e-3 for begin, end in zip(self._begin, self._end, strict=True)]

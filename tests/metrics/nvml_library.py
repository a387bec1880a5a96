"""NVML without a driver: an object that replaces libnvidia-ml.so.1 below NVIDIA's own binding.

Its functions fill the pointers, buffers and structures of ctypes that the binding passes to the C library.
"""

from __future__ import annotations

import ctypes
import queue
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pynvml

SUCCESS, NOT_SUPPORTED, NOT_FOUND, TIMEOUT, LOST = 0, 3, 6, 10, 15


@dataclass
class Gpu:
    """Readings of one GPU by the name of NVML's function; missing ones are not supported."""

    uuid: str
    lost: bool = False
    events: bool = True
    numbers: dict[str, Any] = field(default_factory=dict)


def h200(uuid: str) -> Gpu:
    """Return a data-centre GPU, which supports all readings."""
    return Gpu(
        uuid,
        numbers={
            "nvmlDeviceGetTemperature": 41,
            "memory_temperature": 47,
            "nvmlDeviceGetTemperatureThreshold": {0: 92, 1: 89},
            "nvmlDeviceGetClockInfo": {1: 1980, 2: 3201},
            "nvmlDeviceGetMaxClockInfo": {1: 1980, 2: 3201},
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x04 | 0x20 | 0x01,
            "nvmlDeviceGetPowerUsage": 412_500,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetUtilizationRates": (87, 30),
            "nvmlDeviceGetMemoryInfo": (150_754_820_096, 149_000_000_000, 1_754_820_096),
            "nvmlDeviceGetTotalEccErrors": {0: 3, 1: 1},
            "nvmlDeviceGetRemappedRows": (2, 1, 1, 0),
        },
    )


def workstation(uuid: str) -> Gpu:
    """Return a GPU with few readings: no ECC, no memory temperature, no limits, no events."""
    return Gpu(uuid, events=False, numbers={"nvmlDeviceGetTemperature": 55, "nvmlDeviceGetMemoryInfo": (100, 60, 40)})


class Library:
    """The library. Tests may change `gpus` at any time."""

    def __init__(self, *gpus: Gpu) -> None:
        self.gpus = list(gpus)
        self.errors: queue.Queue[tuple[Gpu, int]] = queue.Queue()
        self.listening: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)
        return lambda handle, *rest: self._ask(name, handle, *rest)

    def nvmlInitWithFlags(self, flags: int) -> int:
        return SUCCESS

    def nvmlSystemGetDriverVersion(self, buffer: Any, size: Any) -> int:
        buffer.value = b"570.86.15"
        return SUCCESS

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, device: Any) -> int:
        for index, gpu in enumerate(self.gpus):
            if gpu.uuid.encode() == uuid.value:
                _point(device._obj, index + 1)
                return LOST if gpu.lost else SUCCESS
        return NOT_FOUND

    def nvmlEventSetCreate(self, events: Any) -> int:
        _point(events._obj, 99)
        return SUCCESS

    def nvmlDeviceRegisterEvents(self, handle: Any, kinds: Any, events: Any) -> int:
        assert kinds.value == pynvml.nvmlEventTypeXidCriticalError
        if not self._gpu(handle).events:
            return NOT_SUPPORTED
        self.listening.append(self._gpu(handle).uuid)
        return SUCCESS

    def nvmlEventSetWait_v2(self, events: Any, data: Any, milliseconds: Any) -> int:
        try:
            gpu, xid = self.errors.get(timeout=milliseconds.value / 1000)
        except queue.Empty:
            return TIMEOUT
        event = data._obj
        handle = pynvml.c_nvmlDevice_t()
        _point(handle, self.gpus.index(gpu) + 1)
        event.device, event.eventType, event.eventData = handle, pynvml.nvmlEventTypeXidCriticalError, xid
        return SUCCESS

    def _gpu(self, handle: Any) -> Gpu:
        index = ctypes.cast(handle, ctypes.c_void_p).value
        assert index is not None
        return self.gpus[index - 1]

    def _ask(self, name: str, handle: Any, *rest: Any) -> int:
        gpu = self._gpu(handle)
        if gpu.lost:
            return LOST
        if name == "nvmlDeviceGetName":
            rest[0].value = b"NVIDIA H200"
            return SUCCESS
        if name == "nvmlDeviceGetFieldValues":
            (value,) = rest[1]._obj
            assert value.fieldId == pynvml.NVML_FI_DEV_MEMORY_TEMP
            value.nvmlReturn = SUCCESS if "memory_temperature" in gpu.numbers else NOT_SUPPORTED
            value.value.uiVal = gpu.numbers.get("memory_temperature", 0)
            return SUCCESS
        if name not in gpu.numbers:
            return NOT_SUPPORTED
        found = gpu.numbers[name]
        if isinstance(found, dict):  # chosen by the argument after the handle
            found = found[rest[0].value]
        outputs = [argument._obj for argument in rest if hasattr(argument, "_obj")]
        if len(outputs) == 1 and isinstance(outputs[0], ctypes.Structure):
            for (member, *_), value in zip(outputs[0]._fields_, found, strict=True):
                setattr(outputs[0], member, value)
        else:
            for output, value in zip(outputs, found if isinstance(found, tuple) else [found], strict=True):
                output.value = value
        return SUCCESS


def _point(pointer: Any, number: int) -> None:
    """Set an opaque pointer to this value; nobody dereferences it."""
    ctypes.c_void_p.from_buffer(pointer).value = number

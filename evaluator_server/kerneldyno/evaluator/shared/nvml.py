"""GPUs as the driver sees them, through NVML: what they are, how they are, and which errors they report.

Used by the server (settings, `gpu_metrics`) and by the judge (`devices.gpu_state`), and by nobody else: only this file calls
NVML, through NVIDIA's own binding, pynvml. What a model or a driver cannot tell is left out of a Reading. Source: NVML API
reference (https://docs.nvidia.com/deploy/nvml-api/).
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Reasons for lower clocks that are worth a word, by NVML's bit; idle and application settings are not.
THROTTLE_REASONS = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
_MHZ = 1e6
#: Processors in one word of NVML's masks (unsigned long).
_WORD_BITS = 64


@dataclass(frozen=True, slots=True)
class GpuState:
    """Clocks (MHz), temperature (Celsius), power (watts) and reasons for throttling, at one moment."""

    sm_clock_mhz: int
    memory_clock_mhz: int
    temperature_celsius: int
    power_watts: float
    throttle_reasons: tuple[str, ...]


@dataclass(slots=True)
class Reading:
    """What a GPU said; dictionaries hold what it can tell, by label."""

    model: str = ""
    driver_version: str = ""
    temperatures: dict[str, float] = field(default_factory=dict)
    temperature_limits: dict[str, float] = field(default_factory=dict)
    clocks: dict[str, float] = field(default_factory=dict)
    clock_limits: dict[str, float] = field(default_factory=dict)
    throttled: dict[str, bool] = field(default_factory=dict)
    power: float | None = None
    power_limit: float | None = None
    utilization: float | None = None
    memory_used: float | None = None
    memory: float | None = None
    ecc_errors: dict[str, float] = field(default_factory=dict)
    remapped_rows: dict[str, float] = field(default_factory=dict)
    remap_pending: bool | None = None
    remap_failed: bool | None = None


class Driver:
    """NVML of this machine. Raises GpuError wherever there is none, or it does not answer."""

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise GpuError(f"nvidia-ml-py is not installed: {error}") from error
        self._nvml: Any = pynvml
        self._call(pynvml.nvmlInit)
        self._events: Any = None
        self._uuids: dict[int | None, str] = {}  # of the GPUs that are listened to, by the address of their handle

    def find(self, name: str) -> Any:
        """Return the handle of a GPU, or of a part of one (MIG), by its UUID; or of a GPU by its number, as NVML counts."""
        if name.isdigit():
            return self._call(self._nvml.nvmlDeviceGetHandleByIndex, int(name))
        return self._call(self._nvml.nvmlDeviceGetHandleByUUID, name)

    def listen(self, handle: Any, uuid: str) -> bool:
        """Have `next_xid` tell of this GPU's errors, and say whether the driver can; not every virtual GPU has events."""
        if self._events is None:
            self._events = self._optional(self._nvml.nvmlEventSetCreate)
        if self._events is None:
            return False
        try:
            self._nvml.nvmlDeviceRegisterEvents(handle, self._nvml.nvmlEventTypeXidCriticalError, self._events)
        except self._nvml.NVMLError:
            return False
        self._uuids[_address(handle)] = uuid
        return True

    def next_xid(self, seconds: float) -> tuple[str, int] | None:
        """Wait for an error; return its GPU's UUID and its Xid, or None when none comes in that time."""
        try:
            if self._uuids:
                event = self._nvml.nvmlEventSetWait_v2(self._events, int(seconds * 1000))
                # Not asked of the driver: a GPU that has fallen off the bus answers nothing any more.
                return self._uuids.get(_address(event.device), ""), int(event.eventData)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_TIMEOUT:
                return None
        time.sleep(seconds)
        return None

    def read(self, handle: Any) -> Reading:
        """Ask a GPU everything. Raises GpuError when it does not even tell how warm it is."""
        nvml, ask = self._nvml, self._optional
        reading = Reading(ask(nvml.nvmlDeviceGetName, handle) or "", ask(nvml.nvmlSystemGetDriverVersion) or "")
        reading.temperatures["gpu"] = self._call(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        for value in ask(nvml.nvmlDeviceGetFieldValues, handle, [nvml.NVML_FI_DEV_MEMORY_TEMP]) or ():
            if value.nvmlReturn == nvml.NVML_SUCCESS:
                reading.temperatures["memory"] = value.value.uiVal
        _put(
            reading.temperature_limits,
            slowdown=ask(nvml.nvmlDeviceGetTemperatureThreshold, handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
            shutdown=ask(nvml.nvmlDeviceGetTemperatureThreshold, handle, nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
        )
        for name, clock in (("sm", nvml.NVML_CLOCK_SM), ("memory", nvml.NVML_CLOCK_MEM)):
            _put(reading.clocks, _MHZ, **{name: ask(nvml.nvmlDeviceGetClockInfo, handle, clock)})
            _put(reading.clock_limits, _MHZ, **{name: ask(nvml.nvmlDeviceGetMaxClockInfo, handle, clock)})
        if (bits := ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)) is not None:
            reading.throttled = {reason: bool(bits & bit) for bit, reason in THROTTLE_REASONS.items()}
        reading.power = _scaled(ask(nvml.nvmlDeviceGetPowerUsage, handle), 1e-3)
        reading.power_limit = _scaled(ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle), 1e-3)
        if (rates := ask(nvml.nvmlDeviceGetUtilizationRates, handle)) is not None:
            reading.utilization = rates.gpu / 100
        if (memory := ask(nvml.nvmlDeviceGetMemoryInfo, handle)) is not None:
            reading.memory_used, reading.memory = memory.used, memory.total
        self._read_errors(handle, reading)
        return reading

    def state(self, handle: Any) -> GpuState:
        """Return the state of a GPU. Raises GpuError if a part of it is missing."""
        nvml, call = self._nvml, self._call
        reasons = call(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        return GpuState(
            sm_clock_mhz=call(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=call(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            temperature_celsius=call(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            power_watts=call(nvml.nvmlDeviceGetPowerUsage, handle) / 1000,
            throttle_reasons=tuple(name for bit, name in THROTTLE_REASONS.items() if reasons & bit),
        )

    def memory_bytes(self, handle: Any) -> int:
        """Return the size of a GPU's memory. Raises GpuError."""
        return int(self._call(self._nvml.nvmlDeviceGetMemoryInfo, handle).total)

    def near_processors(self, handle: Any) -> set[int]:
        """Return the host's processors that a GPU is attached to. Raises GpuError."""
        words = -(-(os.cpu_count() or 1) // _WORD_BITS)
        masks = self._call(self._nvml.nvmlDeviceGetCpuAffinity, handle, words)
        return {_WORD_BITS * at + bit for at, mask in enumerate(masks) for bit in range(_WORD_BITS) if mask >> bit & 1}

    def _read_errors(self, handle: Any, reading: Reading) -> None:
        nvml, ask, volatile = self._nvml, self._optional, self._nvml.NVML_VOLATILE_ECC
        _put(
            reading.ecc_errors,
            corrected=ask(nvml.nvmlDeviceGetTotalEccErrors, handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, volatile),
            uncorrected=ask(
                nvml.nvmlDeviceGetTotalEccErrors, handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, volatile
            ),
        )
        if (rows := ask(nvml.nvmlDeviceGetRemappedRows, handle)) is not None:
            corrected, uncorrected, pending, failed = rows
            reading.remapped_rows = {"corrected": corrected, "uncorrected": uncorrected}
            reading.remap_pending, reading.remap_failed = bool(pending), bool(failed)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            raise GpuError(f"{function.__name__}: {error}") from error

    def _optional(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Ask what not every GPU can tell; None when this one cannot."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None


def smallest_memory(names: Sequence[str]) -> int | None:
    """Return the memory of the smallest of these GPUs in bytes, or None where NVML does not tell.

    They are named as in CUDA_VISIBLE_DEVICES: by their numbers, or by UUIDs of GPUs and of their parts (MIG).
    """
    try:
        driver = Driver()
        return min(driver.memory_bytes(driver.find(name)) for name in names)
    except Exception:  # no library, no driver, no permission: all the same to us
        return None


class GpuError(Exception):
    """There is no NVML here, or it does not know the GPU, or the GPU does not answer."""


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _put(into: dict[str, float], scale: float = 1.0, **found: float | None) -> None:
    into.update({name: value * scale for name, value in found.items() if value is not None})


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale

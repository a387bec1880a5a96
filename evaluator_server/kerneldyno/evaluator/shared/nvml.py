"""GPUs as the driver reports them through NVML: their properties, their state and their errors.

Only this file calls NVML, through NVIDIA's own binding, pynvml. The server (settings, `gpu_metrics`) and the judge
(`devices.gpu_state`) use it. A Reading leaves out what the GPU model or the driver cannot report. Source: NVML API
reference (https://docs.nvidia.com/deploy/nvml-api/).
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Reasons for lower clocks that matter, by NVML's bit. Idle clocks and application settings do not.
THROTTLE_REASONS = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
_MHZ = 1e6
#: Processors per word of NVML's masks (unsigned long).
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
    """What a GPU reported. Dictionaries hold, by label, the values that the GPU can report."""

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
    """NVML on this machine. Every method raises GpuError when NVML is missing or does not answer."""

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise GpuError(f"nvidia-ml-py is not installed: {error}") from error
        self._nvml: Any = pynvml
        self._call(pynvml.nvmlInit)
        self._events: Any = None
        self._uuids: dict[int | None, str] = {}  # of the GPUs whose errors are watched, by the address of their handle

    def find(self, name: str) -> Any:
        """Return the handle of a GPU or of a part of one (MIG) by its UUID, or of a GPU by its NVML index."""
        if name.isdigit():
            return self._call(self._nvml.nvmlDeviceGetHandleByIndex, int(name))
        return self._call(self._nvml.nvmlDeviceGetHandleByUUID, name)

    def listen(self, handle: Any, uuid: str) -> bool:
        """Watch this GPU's errors for `next_xid`. Return False if the driver cannot, as for some virtual GPUs."""
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
        """Wait up to `seconds` for an error. Return its GPU's UUID and its Xid, or None when no error came."""
        try:
            if self._uuids:
                event = self._nvml.nvmlEventSetWait_v2(self._events, int(seconds * 1000))
                # Do not ask the driver for the UUID: a GPU that has fallen off the bus no longer answers.
                return self._uuids.get(_address(event.device), ""), int(event.eventData)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_TIMEOUT:
                return None
        time.sleep(seconds)
        return None

    def read(self, handle: Any) -> Reading:
        """Read all values of a GPU. Raises GpuError when the GPU does not even report its temperature."""
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

    def energy(self, handle: Any) -> float:
        """Return what a GPU has used since its driver was loaded, in joules. Raises GpuError where it does not count."""
        return float(self._call(self._nvml.nvmlDeviceGetTotalEnergyConsumption, handle)) / 1000

    def memory_bytes(self, handle: Any) -> int:
        """Return the size of a GPU's memory in bytes. Raises GpuError."""
        return int(self._call(self._nvml.nvmlDeviceGetMemoryInfo, handle).total)

    def compute_capability(self, handle: Any) -> tuple[int, int]:
        """Return a GPU's compute capability, for example (9, 0). Raises GpuError."""
        major, minor = self._call(self._nvml.nvmlDeviceGetCudaComputeCapability, handle)
        return int(major), int(minor)

    def near_processors(self, handle: Any) -> set[int]:
        """Return the numbers of the host processors that are near a GPU. Raises GpuError."""
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
        """Call a function that some GPUs do not support. Return None when this one does not."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None


def smallest_memory(names: Sequence[str]) -> int | None:
    """Return the size in bytes of the smallest of these GPUs' memories, or None where NVML does not report it.

    Args:
        names: GPUs as in CUDA_VISIBLE_DEVICES: indices, or UUIDs of GPUs and of their parts (MIG).
    """
    try:
        driver = Driver()
        return min(driver.memory_bytes(driver.find(name)) for name in names)
    except Exception:  # no library, driver or permission: each means None
        return None


def compute_capabilities(names: Sequence[str]) -> set[tuple[int, int]]:
    """Return the compute capabilities of these GPUs; the empty set where NVML does not report them."""
    try:
        driver = Driver()
        return {driver.compute_capability(driver.find(name)) for name in names}
    except Exception:  # as in smallest_memory
        return set()


class GpuError(Exception):
    """NVML is missing here, or it does not know the GPU, or the GPU does not answer."""


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _put(into: dict[str, float], scale: float = 1.0, **found: float | None) -> None:
    into.update({name: value * scale for name, value in found.items() if value is not None})


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale

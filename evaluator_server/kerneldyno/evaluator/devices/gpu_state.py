"""What the driver says about a GPU's clocks, power and temperature, and about its host, through NVML. Read by the judge.

NVML counts the GPUs of the host, CUDA those of the process: they are matched by UUID. Where NVML is missing or refuses, the
answer is empty, and nothing else depends on it. Source: NVML API reference (https://docs.nvidia.com/deploy/nvml-api/).
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

from ..shared.nvml import THROTTLE_REASONS

#: Processors in one word of NVML's masks (unsigned long).
_WORD_BITS = 64


@functools.cache
def _handle(index: int) -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(index).uuid}"
        return pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
    except Exception:  # no library, no driver, no permission: all the same to us
        return None


def state(index: int) -> dict[str, Any]:
    """Return clocks (MHz), temperature (Celsius), power (watts) and reasons for throttling of CUDA device `index`."""
    handle = _handle(index)
    if handle is None:
        return {}
    import pynvml

    try:
        reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return {
            "sm_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "temperature_celsius": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "power_watts": pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "throttle_reasons": [name for bit, name in THROTTLE_REASONS.items() if reasons & bit],
        }
    except pynvml.NVMLError:
        return {}


def near_processors(index: int) -> set[int]:
    """Return the host's processors that CUDA device `index` is attached to; none where the driver does not say."""
    handle = _handle(index)
    if handle is None:
        return set()
    import pynvml

    words = -(-(os.cpu_count() or 1) // _WORD_BITS)
    try:
        masks = pynvml.nvmlDeviceGetCpuAffinity(handle, words)
    except pynvml.NVMLError:
        return set()
    return {_WORD_BITS * at + bit for at, mask in enumerate(masks) for bit in range(_WORD_BITS) if mask >> bit & 1}

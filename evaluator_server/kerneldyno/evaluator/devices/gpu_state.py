"""Clocks, power, energy, temperature and nearest processors of a CUDA device, by its driver. The judge reads them.

NVML counts the GPUs of the host and CUDA those of the process, so GPUs are matched by UUID. If NVML is missing or
refuses, the answer is empty; nothing else depends on it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..shared.nvml import Driver, GpuError, GpuState


@functools.cache
def _gpu(index: int) -> tuple[Driver, Any] | None:
    try:
        driver = Driver()
        return driver, driver.find(f"GPU-{torch.cuda.get_device_properties(index).uuid}")
    except Exception:  # no library, driver or permission: each means None
        return None


def state(index: int) -> GpuState | None:
    """Return the state of CUDA device `index`; None if the driver does not report it."""
    if (gpu := _gpu(index)) is None:
        return None
    driver, handle = gpu
    try:
        return driver.state(handle)
    except GpuError:
        return None


def energy(index: int) -> float | None:
    """Return what CUDA device `index` has used so far, in joules; None if the driver does not report it."""
    if (gpu := _gpu(index)) is None:
        return None
    driver, handle = gpu
    try:
        return driver.energy(handle)
    except GpuError:
        return None


def near_processors(index: int) -> set[int]:
    """Return the host's processors that are near CUDA device `index`; none if the driver does not report them."""
    if (gpu := _gpu(index)) is None:
        return set()
    driver, handle = gpu
    try:
        return driver.near_processors(handle)
    except GpuError:
        return set()

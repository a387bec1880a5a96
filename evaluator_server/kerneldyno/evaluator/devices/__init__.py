"""The devices that candidates run on. Judge and runner both use a device through `open_device("cuda:0")`."""

from __future__ import annotations

from .base import Device


def open_device(name: str) -> Device:
    """Return the device called `name` ("cpu:0", "cuda:N"), and import its module only now. Raises ValueError."""
    kind, _, index = name.partition(":")
    if kind == "cpu":
        from .cpu import CpuDevice

        return CpuDevice()
    if kind == "cuda":
        from .cuda import CudaDevice

        return CudaDevice(int(index or 0))
    raise ValueError(f"unknown device {name!r}; use cpu:0 or cuda:N")

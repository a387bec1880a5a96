"""First steps of each process of a device's cell: tie its life to its parent's, and make only one device visible.

This module imports nothing heavy, because CUDA_VISIBLE_DEVICES must be set before torch is imported.
"""

from __future__ import annotations

import os
import sys

from . import linux


def die_with(parent: int) -> None:
    """Have the kernel kill this process when process `parent` dies, and exit if it is already dead."""
    linux.die_with_parent()
    if os.getppid() != parent:
        sys.exit("the process that started this one is gone")


def visible_device(device: str) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES that makes only `device` visible.

    Args:
        device: "cuda:N", where N counts the devices that are visible now; anything else hides all GPUs.
    """
    if not device.startswith("cuda"):
        return ""
    index = int(device.partition(":")[2] or 0)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not visible:
        return str(index)
    names = [name.strip() for name in visible.split(",")]
    if index >= len(names):
        sys.exit(f"{device} is not visible: CUDA_VISIBLE_DEVICES={visible}")
    return names[index]


def device_environment(device: str) -> dict[str, str]:
    """Return the environment variables that make only `device` visible to a process, as cuda:0."""
    # Judge and runners must count GPUs in one order. CUDA's default, fastest first, is undefined among equal devices.
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": visible_device(device)}


def see_only(device: str) -> None:
    """Make `device` the only one that this process and its children see."""
    os.environ.update(device_environment(device))

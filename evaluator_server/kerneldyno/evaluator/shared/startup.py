"""What each process of a device's cell does before anything else: tie its life to its parent's, and see one device only.

Imports nothing heavy: CUDA_VISIBLE_DEVICES must be set before torch is imported.
"""

from __future__ import annotations

import os
import sys

from . import linux


def die_with(parent: int) -> None:
    """Ask to be killed when process `parent` dies, and exit if it already has."""
    linux.die_with_parent()
    if os.getppid() != parent:
        sys.exit("the process that started this one is gone")


def visible_device(device: str) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES with which only `device` ("cuda:N", N among those visible now) is seen."""
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
    """Return the variables with which a process sees only `device`; it is then cuda:0."""
    # One order for judge and runners alike; CUDA's own, fastest first, is not settled among equal devices.
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": visible_device(device)}


def see_only(device: str) -> None:
    """Make `device` the only one that this process and its children see."""
    os.environ.update(device_environment(device))

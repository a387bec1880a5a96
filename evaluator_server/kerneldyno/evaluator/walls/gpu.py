"""The device nodes that a runner needs for its one GPU, so that it gets no other.

The driver lists in /proc/driver/nvidia which GPU has which node. The judge calls this; it knows its GPU by UUID and PCI
address. Numbers would not work, because CUDA counts GPUs in another order than the driver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ..shared import proc
from . import Unavailable

#: Nodes of the driver as a whole, without nvidia-modeset (displays) and the nodes of switches and fabric.
_COMMON = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as CUDA identifies it."""

    uuid: str
    #: Domain, bus and device.
    pci: tuple[int, int, int]


def all_nodes(root: Path = Path("/")) -> tuple[str, ...]:
    """Return all nodes of the driver, by name below /dev."""
    return tuple(sorted(path.name for path in root.glob("dev/nvidia*")))


def own_nodes(gpu: Gpu, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the nodes that one GPU needs. Raises Unavailable."""
    present = all_nodes(root)
    numbered = [name for name in present if re.fullmatch(r"nvidia\d+", name)]
    own = f"nvidia{_minor(gpu, root)}" if len(numbered) != 1 else numbered[0]
    if own not in present:
        raise Unavailable(f"/dev/{own} is missing")
    return (own, *(name for name in _COMMON if name in present))


def _minor(gpu: Gpu, root: Path) -> int:
    for information in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        facts = proc.facts(information)
        domain, bus, device = re.split(r"[:.]", information.parent.name)[:3]
        same_address = (int(domain, 16), int(bus, 16), int(device, 16)) == gpu.pci
        if (facts.get("GPU UUID") == gpu.uuid or same_address) and facts.get("Device Minor", "").isdigit():
            return int(facts["Device Minor"])
    raise Unavailable("the driver does not report which node belongs to this GPU")

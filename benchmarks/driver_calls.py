"""Times the calls that processes make of the NVIDIA driver, by a library that is preloaded (driver_calls.c).

strace is rarely there, and would slow the calls down. The library adds less than a microsecond to each. Needs a C
compiler.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_SOURCE = Path(__file__).with_suffix(".c")
_HEADER = struct.Struct("=QQ")
_CALL = struct.Struct("=QQiHhII")
_KINDS = ("open", "ioctl", "mmap", "close")
_IOCTL = _KINDS.index("ioctl")
_NODES = {1000: "nvidiactl", 2000: "nvidia-uvm", 3000: "other"}
_UVM = 2000
#: Names of calls and classes, as in the open kernel modules: kernel-open/nvidia-uvm/uvm_ioctl.h, nv_escape.h, class/*.h
#: (https://github.com/NVIDIA/open-gpu-kernel-modules).
_UVM_CALLS = {
    25: "UVM_REGISTER_GPU_VASPACE", 27: "UVM_REGISTER_CHANNEL", 33: "UVM_MAP_EXTERNAL_ALLOCATION", 34: "UVM_FREE",
    37: "UVM_REGISTER_GPU", 68: "UVM_ALLOC_SEMAPHORE_POOL", 73: "UVM_CREATE_EXTERNAL_RANGE",
}  # fmt: skip
_RM_CALLS = {
    0x27: "RM_ALLOC_MEMORY", 0x29: "RM_FREE", 0x2A: "RM_CONTROL", 0x2B: "RM_ALLOC", 0x34: "RM_DUP_OBJECT",
    0x4E: "RM_MAP_MEMORY", 0x4F: "RM_UNMAP_MEMORY", 0xC9: "REGISTER_FD",
}  # fmt: skip
_CLASSES = {
    0x3E: "host memory", 0x40: "device memory", 0x41: "client", 0x79: "event", 0x80: "device", 0x2080: "subdevice",
    0x90F1: "address space", 0xA06C: "channel group", 0xC86F: "channel", 0xC8B5: "copy engine", 0xCBC0: "compute",
}  # fmt: skip


class Call(NamedTuple):
    """One call."""

    #: Monotonic time and duration, in nanoseconds.
    begin: int
    took: int
    #: 0 is the program that was started; its forks have numbers from 1.
    process: int
    kind: int
    node: int
    code: int
    more: int

    @property
    def name(self) -> str:
        """Return a readable name of the call."""
        if self.kind != _IOCTL:
            return f"{_KINDS[self.kind]} of {_NODES.get(self.node, 'a GPU')}"
        if self.node == _UVM:
            return _UVM_CALLS.get(self.code, f"UVM {self.code}")
        name = _RM_CALLS.get(self.code, f"RM {self.code:#x}")
        return f"{name} {_CLASSES.get(self.more, f'{self.more:x}')}" if self.more else name


class Total(NamedTuple):
    """All calls of one name."""

    name: str
    times: int
    #: Milliseconds, of all and of the longest.
    milliseconds: float
    longest: float


def build(folder: Path, nodes: str = "/dev/nvidia") -> Path:
    """Compile the library into `folder`. It times calls of the nodes whose paths begin with `nodes`.

    Raises OSError without a compiler, CalledProcessError if it fails.
    """
    library = folder / "driver_calls.so"
    command = ["cc", "-O2", "-Wall", "-shared", "-fPIC", f'-DNODES="{nodes}"', "-o", str(library), str(_SOURCE)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return library


def environment(library: Path, folder: Path) -> dict[str, str]:
    """Return the variables with which a program and its forks write their calls to files in `folder`."""
    return {"LD_PRELOAD": str(library), "DRIVER_CALLS": str(folder)}


class Recording:
    """The calls of a running program, itself or another one, and of its forks."""

    def __init__(self, folder: Path, program: int | None = None) -> None:
        """Find the newest file of a program. Raises FileNotFoundError."""
        files = sorted(folder.glob(f"{program or os.getpid()}-*"), key=lambda path: int(path.name.partition("-")[2]))
        if not files:
            raise FileNotFoundError(f"{folder} has no calls of process {program or os.getpid()}")
        self._path = files[-1]

    def __len__(self) -> int:
        return self._header()[0]

    @property
    def processes(self) -> int:
        """Number of forks so far, which is the number of the last one."""
        return self._header()[1]

    def _header(self) -> tuple[int, int]:
        with open(self._path, "rb") as file:
            calls, processes = _HEADER.unpack(file.read(_HEADER.size))
            return calls, processes

    def since(self, first: int) -> list[Call]:
        """Return the calls from number `first` on."""
        with open(self._path, "rb") as file:
            file.seek(_HEADER.size + first * _CALL.size)
            data = file.read((len(self) - first) * _CALL.size)
        return [Call(*fields) for fields in _CALL.iter_unpack(data)]


def totals(calls: Iterable[Call]) -> list[Total]:
    """Return the calls by name; those that took longest in all come first."""
    by_name: dict[str, list[int]] = defaultdict(list)
    for call in calls:
        by_name[call.name].append(call.took)
    rows = [Total(name, len(took), sum(took) * 1e-6, max(took) * 1e-6) for name, took in by_name.items()]
    return sorted(rows, key=lambda row: -row.milliseconds)

"""What the kernel tells in /proc, read and taken apart: the only reader of it. See proc(5).

What is about one process raises OSError when that has ended, or is hidden, unless it says otherwise.
"""

from __future__ import annotations

import os
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
STATUS = Path("/proc/self/status")
MAPS = Path("/proc/self/maps")
_CPUINFO = Path("/proc/cpuinfo")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: Places of the fields of stat that are read, counted from the one after the name.
_PARENT, _STARTED = 1, 19


def processes() -> set[int]:
    """Return the ids of all processes that are listed."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def parent(pid: int) -> int:
    """Return the id of a process's parent."""
    return int(_stat(pid)[_PARENT])


def started(pid: int) -> str:
    """Return when a process was started, in ticks of the kernel: with its id, that tells it from all others."""
    return _stat(pid)[_STARTED]


def threads(pid: int) -> int:
    """Return how many threads a process has; 0 where that is not to be read."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def mapped_bytes(pid: int | str = "self") -> int:
    """Return how large a process's address space is."""
    return _pages(pid, 0)


def resident_bytes(pid: int) -> int:
    """Return how much of a process is in memory; 0 where that is not to be read."""
    try:
        return _pages(pid, 1)
    except (OSError, IndexError):
        return 0


def proportional_bytes(pid: int) -> int:
    """Return the same, where a page that processes share counts in parts; 0 where that is not to be read."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
    except OSError:
        return 0


def namespace(kind: str) -> str:
    """Return the name of this process's namespace of a kind ("user", "net")."""
    return os.readlink(f"/proc/self/ns/{kind}")


def uid_ranges() -> list[tuple[int, int, int]]:
    """Return the users that this process's namespace knows: the first one in it, the first one outside, how many."""
    with open("/proc/self/uid_map") as file:
        rows = [[int(word) for word in line.split()] for line in file]
    return [(first, outside, count) for first, outside, count in rows]


def facts(path: Path) -> dict[str, str]:
    """Return what a file of lines "name: value" says, as STATUS or MEMINFO; of a name that comes again, the first value."""
    found: dict[str, str] = {}
    with open(path) as file:
        for line in file:
            name, _, value = line.partition(":")
            found.setdefault(name.strip(), value.strip())
    return found


def kibibytes(path: Path, name: str) -> int:
    """Return a size that such a file gives in kB, in bytes."""
    number, unit = facts(path)[name].split()
    assert unit == "kB"
    return int(number) << 10


def processor_model() -> str:
    """Return what the first processor is called; "" where the kernel does not say."""
    try:
        return facts(_CPUINFO).get("model name", "")
    except OSError:
        return ""


def mapped_files(maps: Path) -> set[str]:
    """Return the paths of all files that a process has mapped into its memory. `maps` is MAPS."""
    return {line.split(maxsplit=5)[5] for line in maps.read_text(errors="replace").splitlines() if line.count("/")}


def _stat(pid: int) -> list[str]:
    # The name comes in brackets, and may have brackets and spaces.
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


def _pages(pid: int | str, field: int) -> int:
    with open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[field]) * _PAGE_BYTES

"""Reading of the kernel's files in /proc, see proc(5). No other module reads them.

Functions about one process raise OSError when it has ended or is hidden, unless they say otherwise.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
STATUS = Path("/proc/self/status")
MAPS = Path("/proc/self/maps")
#: "5" written here makes the peak of a process's resident memory count again from now on.
_CLEAR_REFS, _CLEAR_PEAK = Path("/proc/self/clear_refs"), "5"
_CPUINFO = Path("/proc/cpuinfo")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: Positions of the fields of /proc/PID/stat that are read, counted from the field after the name.
_PARENT, _STARTED = 1, 19


def processes() -> set[int]:
    """Return the ids of all processes that /proc lists."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def parent(pid: int) -> int:
    """Return the id of a process's parent."""
    return int(_stat(pid)[_PARENT])


def started(pid: int) -> str:
    """Return the start time of a process, in clock ticks since boot. Id and start time together identify a process."""
    return _stat(pid)[_STARTED]


def threads(pid: int) -> int:
    """Return the number of threads of a process, or 0 if it cannot be read."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def mapped_bytes(pid: int | str = "self") -> int:
    """Return the size of a process's address space, in bytes."""
    return _pages(pid, 0)


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes, or 0 if it cannot be read."""
    try:
        return _pages(pid, 1)
    except (OSError, IndexError):
        return 0


def peak_resident_bytes() -> int | None:
    """Return the most resident memory of this process so far in bytes, or None if the kernel does not count it."""
    try:
        return kibibytes(STATUS, "VmHWM")
    except (OSError, KeyError):
        return None


def restart_peak() -> None:
    """Make `peak_resident_bytes` count from now on, where the kernel can."""
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text(_CLEAR_PEAK)


def proportional_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes, or 0 if it cannot be read.

    Each process counts its share of a page that several processes share.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
    except OSError:
        return 0


def namespace(kind: str) -> str:
    """Return the name of this process's namespace of the given kind ("user", "net")."""
    return os.readlink(f"/proc/self/ns/{kind}")


def uid_ranges() -> list[tuple[int, int, int]]:
    """Return the ranges of uids that this process's user namespace maps.

    Returns:
        For each range: the first uid inside the namespace, the first uid outside, and the number of uids.
    """
    with open("/proc/self/uid_map") as file:
        rows = [[int(word) for word in line.split()] for line in file]
    return [(first, outside, count) for first, outside, count in rows]


def facts(path: Path) -> dict[str, str]:
    """Read a file with lines "name: value", such as STATUS or MEMINFO.

    If a name occurs again, its first value counts.
    """
    found: dict[str, str] = {}
    with open(path) as file:
        for line in file:
            name, _, value = line.partition(":")
            found.setdefault(name.strip(), value.strip())
    return found


def kibibytes(path: Path, name: str) -> int:
    """Return a value in bytes that such a file states in kB."""
    number, unit = facts(path)[name].split()
    assert unit == "kB"
    return int(number) << 10


def processor_model() -> str:
    """Return the model name of the first processor, or "" if the kernel does not state it."""
    try:
        return facts(_CPUINFO).get("model name", "")
    except OSError:
        return ""


def mapped_files(maps: Path) -> set[str]:
    """Return the paths of all files that a process has mapped into its memory. Pass MAPS as `maps`."""
    return {line.split(maxsplit=5)[5] for line in maps.read_text(errors="replace").splitlines() if line.count("/")}


def _stat(pid: int) -> list[str]:
    # The name is in brackets, and may itself contain brackets and spaces.
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


def _pages(pid: int | str, field: int) -> int:
    with open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[field]) * _PAGE_BYTES

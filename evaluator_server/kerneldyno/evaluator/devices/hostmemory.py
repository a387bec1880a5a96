"""The host's memory: how much there is, what a piece of work takes of it, and a limit for what this process allocates.

Without a limit, the kernel chooses which process to kill when memory runs out, and it may choose any.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..shared import proc

#: Share of the host's available memory that evaluations or a judge may use. The rest is reserved for the unforeseen.
_SHARE = 0.75
_MEMINFO = proc.MEMINFO
_CGROUP = Path("/sys/fs/cgroup")


def available() -> int:
    """Return how many bytes are available now, by the kernel and by the limit of the container."""
    found = proc.kibibytes(_MEMINFO, "MemAvailable")
    limit, used = (_number(_CGROUP / name) for name in ("memory.max", "memory.current"))
    return found if limit is None or used is None else max(0, min(found, limit - used))


def total() -> int:
    """Return how many bytes the host has, or the container where that is less."""
    found = proc.kibibytes(_MEMINFO, "MemTotal")
    limit = _number(_CGROUP / "memory.max")
    return found if limit is None else min(found, limit)


def allowance() -> int:
    """Return how many of the bytes that are available now may be used for judging."""
    return int(_SHARE * available())


@dataclass(slots=True)
class Peak:
    """The most memory that a piece of work took at once, in bytes; None if the kernel does not say."""

    nbytes: int | None = None


@contextlib.contextmanager
def measured() -> Iterator[Peak]:
    """Measure how much host memory this process takes at most in the body, in addition to what it has at its begin."""
    peak = Peak()
    proc.restart_peak()
    earlier, begin = proc.peak_resident_bytes(), proc.resident_bytes(os.getpid())
    try:
        yield peak
    finally:
        most = proc.peak_resident_bytes()
        # Where the peak cannot be counted again, it says nothing if it was higher at an earlier time.
        if most is not None and earlier is not None and (most > earlier or earlier <= begin):
            peak.nbytes = max(0, most - begin)


def limit_own(nbytes: int) -> None:
    """Limit this process to `nbytes` more than it has now. An allocation beyond that fails, and no process is killed.

    The limit counts private writable memory, which does not include what a GPU's driver reserves.
    """
    most = proc.kibibytes(proc.STATUS, "VmData") + nbytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _number(path: Path) -> int | None:
    """Return the number in a file, or None if there is no file or no limit."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None

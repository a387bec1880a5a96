"""The host's memory: how much of it there is for this process, and a limit for what this process takes.

Without a limit it is the kernel that chooses whom to kill when memory runs out, and it may be anybody.
"""

from __future__ import annotations

import resource
from pathlib import Path

from ..shared import proc

#: Share of the host's available memory that evaluations, and a judge, may take; the rest is for what nobody can foresee.
_SHARE = 0.75
_MEMINFO = proc.MEMINFO
_CGROUP = Path("/sys/fs/cgroup")


def available() -> int:
    """Return how many bytes can be taken now: what the kernel says, and no more than the limit of a container leaves."""
    found = proc.kibibytes(_MEMINFO, "MemAvailable")
    limit, used = (_number(_CGROUP / name) for name in ("memory.max", "memory.current"))
    return found if limit is None or used is None else max(0, min(found, limit - used))


def allowance() -> int:
    """Return how much of what is available now may be taken for judging, in bytes."""
    return int(_SHARE * available())


def limit_own(nbytes: int) -> None:
    """Let this process take at most `nbytes` more than it has: whoever asks for more gets an error, and nobody is killed.

    Counts private memory that can be written to, which is not what a GPU's driver reserves.
    """
    most = proc.kibibytes(proc.STATUS, "VmData") + nbytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _number(path: Path) -> int | None:
    """Return the number in a file; None where there is no such file, or no limit."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None

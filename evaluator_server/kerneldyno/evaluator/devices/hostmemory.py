"""The host's memory: how much this process may use, and a limit for what this process allocates.

Without a limit, the kernel chooses which process to kill when memory runs out, and it may choose any.
"""

from __future__ import annotations

import resource
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


def allowance() -> int:
    """Return how many of the bytes that are available now may be used for judging."""
    return int(_SHARE * available())


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

"""Limits for a candidate: processes, files, memory on the CPU device, and the size of a scratch without a quota."""

from __future__ import annotations

import os
import resource
import time

from ..shared import proc
from .root import SCRATCH_BYTES, SCRATCH_FILES

#: Maximum number of processes of one candidate; the warden kills a candidate that has more. Inductor starts 32 workers,
#: ninja a few processes for each source.
MAX_PROCESSES = 128
#: Maximum number of processes and threads of one candidate; the kernel counts both together. CUDA needs a dozen
#: threads; OpenMP and similar libraries need one per processor.
MAX_TASKS = 256 + 2 * (os.cpu_count() or 1)
#: Without a user namespace for each candidate, the kernel counts all processes of the user on the host against each
#: limit. The limit is then this many times larger, for many candidates together; the warden enforces each candidate's
#: own.
_TOGETHER = 16
#: Largest file that a candidate may write, in bytes.
MAX_FILE_BYTES = 1 << 30
#: Maximum number of open files of one candidate.
MAX_OPEN_FILES = 1024
#: Time limit in seconds for one scan of a scratch.
_LOOK_SECONDS = 0.2


def most_tasks(*, alone: bool) -> int:
    """Return the kernel's limit of processes and threads. `alone`: the candidate has its own user namespace."""
    return MAX_TASKS if alone else _TOGETHER * MAX_TASKS


def lower(*, alone: bool) -> None:
    """Set the limits of this process and of all that it starts. `alone`: it has its own user namespace."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    _limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    _limit(resource.RLIMIT_NPROC, most_tasks(alone=alone))
    _limit(resource.RLIMIT_MSGQUEUE, 0)


def limit_address_space(nbytes: int) -> None:
    """Let this process map at most `nbytes` more than now. Not for CUDA, which reserves far more than it uses."""
    _limit(resource.RLIMIT_AS, proc.mapped_bytes() + nbytes)


def scratch_is_full(directory: str) -> bool:
    """Return True if a scratch that is not its own file system holds more than a candidate may store.

    A directory that cannot be read counts as too much: no honest candidate creates one.
    """
    stored = count = 0
    pending = [directory]
    until = time.monotonic() + _LOOK_SECONDS
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    count += 1
                    try:
                        stored += entry.stat(follow_symlinks=False).st_blocks * 512
                    except FileNotFoundError:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:
            return True
        if stored > SCRATCH_BYTES or count > SCRATCH_FILES:
            return True
        if time.monotonic() > until:
            return False
    return False


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))

"""Limits on what a candidate may use: processes, files, memory on the CPU device, and a scratch without a quota."""

from __future__ import annotations

import os
import resource
import time

from ..shared import proc
from .root import SCRATCH_BYTES, SCRATCH_FILES

#: Processes that one candidate may have; the warden ends who has more. Inductor starts 32 workers, ninja a few processes
#: for each source.
MAX_PROCESSES = 128
#: Processes and threads that one candidate may have, which the kernel counts as one. CUDA needs a dozen; OpenMP, and
#: whoever imitates it, one thread for each processor.
MAX_TASKS = 256 + 2 * (os.cpu_count() or 1)
#: Where candidates have no user namespace of their own, the kernel counts all that their user runs on the host against the
#: limit of each. It then holds for so many together; the warden holds each to its own.
_TOGETHER = 16
#: Largest file that a candidate may write, in bytes.
MAX_FILE_BYTES = 1 << 30
#: Open files of one candidate.
MAX_OPEN_FILES = 1024
#: How long one look at a scratch may take, in seconds.
_LOOK_SECONDS = 0.2


def most_tasks(*, alone: bool) -> int:
    """Return the kernel's limit of processes and threads for a candidate that is `alone` in a user namespace, or not."""
    return MAX_TASKS if alone else _TOGETHER * MAX_TASKS


def lower(*, alone: bool) -> None:
    """Set this process's limits, for itself and all that it starts; `alone` where it has a user namespace of its own."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    _limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    _limit(resource.RLIMIT_NPROC, most_tasks(alone=alone))
    _limit(resource.RLIMIT_MSGQUEUE, 0)


def limit_address_space(nbytes: int) -> None:
    """Let this process map at most `nbytes` more than it has. Not for CUDA, which reserves far more than it uses."""
    _limit(resource.RLIMIT_AS, proc.mapped_bytes() + nbytes)


def scratch_is_full(directory: str) -> bool:
    """Say whether a scratch that is no file system of its own holds more than a candidate may store.

    A directory that cannot be looked into counts as too much: nothing honest makes one.
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

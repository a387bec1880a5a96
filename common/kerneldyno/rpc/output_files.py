"""Write result files that a later run may continue: one run writes a file at a time, and each line is written whole."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shlex
import socket
import sys
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

#: Longest command, in characters, in the description of who holds a lock.
_COMMAND_CHARS = 300
#: Errors of a file system that has no locks.
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


class OutputLockedError(Exception):
    """Another run is writing the output; the message says which."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is being written by another run ({holder})")


class OutputLock:
    """Hold an output for this process, from construction until the block ends or `release` is called.

    The lock is one of the operating system (flock), on a file beside the output, because the output itself may be
    replaced. The system releases it when the process ends, however it ends. The file says who holds the lock; the
    holder removes it.

        with OutputLock(Path("results.jsonl")):
            ...

    Raises:
        OutputLockedError: another process holds it.
        OSError: nothing can be written beside the output; `filename` is the output.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._beside = self.path.with_name(f".{self.path.name}.lock")
        self._file = -1
        try:
            while not self._take():
                pass
        except OSError as error:
            no_locks = (
                "is on a file system without locks (flock); choose another path" if error.errno in _NO_LOCKS else ""
            )
            raise OSError(error.errno, no_locks or error.strerror, str(self.path)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Release the output. A second call does nothing."""
        if self._file >= 0:
            file, self._file = self._file, -1
            self._beside.unlink(missing_ok=True)  # before releasing: nobody else can hold this file now
            os.close(file)

    def _take(self) -> bool:
        """Take the lock. Return False if the locked file no longer exists because its holder has just removed it."""
        file = os.open(self._beside, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if taken := _is_at(file, self._beside):
                os.ftruncate(file, 0)
                os.write(file, json.dumps(_myself()).encode())
        except BlockingIOError as error:
            holder = _described(os.read(file, 4096))
            os.close(file)
            raise OutputLockedError(self.path, holder) from error
        except OSError:
            os.close(file)
            raise
        if taken:
            self._file = file
        else:
            os.close(file)
        return taken


def append_whole(file: int, line: bytes) -> None:
    """Append `line` to an open file in one piece.

    Raises:
        OSError: the disk does not take it; nothing of the line is left then.
    """
    end = os.fstat(file).st_size
    try:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        os.ftruncate(file, end)
        raise


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _myself() -> dict[str, Any]:
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": command[:_COMMAND_CHARS],
    }


def _described(data: bytes) -> str:
    """Describe who holds a lock, from the lock file's contents; the holder may not have written them yet."""
    try:
        holder = json.loads(data)
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']}: {holder['command']}"
    except (ValueError, TypeError, KeyError):
        return "which has just started"

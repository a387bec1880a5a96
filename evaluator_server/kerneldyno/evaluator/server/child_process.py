"""One child process of a cell: a fresh interpreter in a session of its own, its output in our log, killed as a whole.

The cell starts a zygote and a judge this way. The server never forks: `create_subprocess_exec` is the only way in. What
a child does is not known here; that it ends with the server is the child's own doing (`--exit-with-parent`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections import deque
from collections.abc import Sequence

log = logging.getLogger(__name__)

#: A longer line of a child is cut (characters); it is a note to an operator, not data.
_MAX_LINE = 500
#: Lines of a child that reach our log within one window of seconds; a reference that prints in a loop must not fill it.
_MAX_LINES = 200
_LINES_WINDOW = 10.0
#: Lines kept to explain a death.
_KEPT_LINES = 5
#: Seconds for output that is still in the pipe when the child is gone. Grandchildren may hold the pipe open for longer.
_PIPE_SECONDS = 0.2


class Child:
    """A running child process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.pid = process.pid
        self.last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        #: Completes with the exit status, negative for a signal.
        self.exited = asyncio.create_task(process.wait(), name=f"{name} exit")
        assert process.stdout is not None
        self._pump = asyncio.create_task(self._log_output(process.stdout), name=f"{name} output")

    @classmethod
    async def start(cls, name: str, command: Sequence[str], fds: Sequence[int]) -> Child:
        """Start `command` with the open descriptors `fds`, standard error and output as one pipe to us."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=fds,
            start_new_session=True,
        )
        return cls(name, process)

    def kill(self) -> None:
        """Kill the child and every process of its session's group, also those that outlived it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    async def end(self, grace_seconds: float = 0.0) -> None:
        """Kill, after the time it may take to leave by itself; reap, and log what it had left to say."""
        await asyncio.wait({self.exited}, timeout=grace_seconds)
        self.kill()
        await self.exited
        await asyncio.wait({self._pump}, timeout=_PIPE_SECONDS)
        self._pump.cancel()

    async def _log_output(self, stream: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        window, logged, rest = loop.time(), 0, b""
        while chunk := await stream.read(65536):
            if loop.time() - window > _LINES_WINDOW:
                if logged > _MAX_LINES:
                    log.warning("event=child_output_dropped child=%s lines=%d", self.name, logged - _MAX_LINES)
                window, logged = loop.time(), 0
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _MAX_LINE:
                lines, rest = [*lines, rest], b""
            for line in filter(None, lines):
                logged += 1
                self._log_line(line, quiet=logged > _MAX_LINES)
        if rest:
            self._log_line(rest, quiet=False)

    def _log_line(self, line: bytes, *, quiet: bool) -> None:
        text = "".join(c if c.isprintable() else " " for c in line[:_MAX_LINE].decode(errors="replace")).rstrip()
        self.last_lines.append(text)
        if not quiet:
            log.info("event=child_output child=%s line=%r", self.name, text)


def describe_exit(status: int) -> str:
    """Say how a process ended, for example "signal 11 (SIGSEGV)"."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"

"""A child process of a cell: a new interpreter in its own session, with its output in our log.

The cell starts a zygote and a judge this way. The server never forks; it creates processes only by
`create_subprocess_exec`. Ending a child kills its whole process group. This module does not know what a child does. A
child ends with the server by itself (`--exit-with-parent`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections import deque
from collections.abc import Sequence

_log = logging.getLogger(__name__)

#: Longer lines of a child are cut (characters): they are notes for an operator, not data.
_MAX_LINE = 500
#: Maximum number of lines per child that are logged in one window, and the window in seconds: a reference that prints
#: in a loop must not fill the log.
_MAX_LINES = 200
_LINES_WINDOW = 10.0
#: Number of last lines that are kept to explain a child's death.
_KEPT_LINES = 5
#: Seconds to wait for output that is still in the pipe after the child has ended. Grandchildren may keep the pipe open.
_PIPE_SECONDS = 0.2


class Child:
    """A running child process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.pid = process.pid
        self.last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        #: A task that returns the exit status, negative for a signal.
        self.exited = asyncio.create_task(process.wait(), name=f"{name} exit")
        assert process.stdout is not None
        self._pump = asyncio.create_task(self._log_output(process.stdout), name=f"{name} output")

    @classmethod
    async def start(cls, name: str, command: Sequence[str], fds: Sequence[int]) -> Child:
        """Start `command` with the open descriptors `fds`.

        Its standard output and error go to one pipe that is logged.
        """
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
        """Kill the child and every process of its process group, even if the child itself has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    async def end(self, grace_seconds: float = 0.0) -> None:
        """Wait up to `grace_seconds` for the child to exit, then kill and reap it, and log the rest of its output."""
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
                    _log.warning("event=child_output_dropped child=%s lines=%d", self.name, logged - _MAX_LINES)
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
            _log.info("event=child_output child=%s line=%r", self.name, text)


def describe_exit(status: int) -> str:
    """Return how a process ended, for example "signal 11 (SIGSEGV)"."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"

"""One scheduler or evaluator as a child process: its command, its ready line, and the end of its log.

LocalServices (local.py) and the supervisor of kerneldyno.deploy both run services through it. When to stop a service and
whether to start it again is decided by them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from kerneldyno.rpc import credentials, tokens

#: Lines of a service's standard error that are kept, to be shown when it ends.
_TAIL_LINES = 20
#: Variables for services elsewhere. A service learns from its options what to show to whom.
_NOT_PASSED_ON = frozenset({*credentials.VARIABLES, tokens.TOKENS_VARIABLE})


class ServiceProcess:
    """One run of `python -m kerneldyno.SERVICE`, and the threads that read its output.

    The service runs in a session of its own, so that Ctrl-C does not reach it, and ends when the thread that started it
    ends.

    Args:
        service: "scheduler" or "evaluator".
        python: the interpreter that has it installed.
        options: its command line.
        environ: its environment; credentials for other services are left out.
        echo: called with each line of its standard error; None for nowhere.

    Raises:
        OSError: the interpreter cannot be started.
    """

    def __init__(
        self,
        service: str,
        python: str,
        options: Sequence[str],
        *,
        environ: Mapping[str, str] = os.environ,
        echo: Callable[[str], None] | None = None,
    ) -> None:
        self._service = service
        self._echo = echo
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._is_ready = threading.Event()
        #: Fields of its ready line, such as `grpc`; None while it starts.
        self.ready: Mapping[str, str] | None = None
        self.process = subprocess.Popen(
            [python, "-m", f"kerneldyno.{service}", *options, "--exit-with-parent"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            env={name: value for name, value in environ.items() if name not in _NOT_PASSED_ON},
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        # Read to the end in any case: a full pipe would block the service.
        self._readers = [
            threading.Thread(target=self._read_stdout, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._read_stderr, args=(self.process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def wait_ready(self, seconds: float) -> Mapping[str, str] | None:
        """Wait up to `seconds` for the ready line; return its fields, or None if it has not come."""
        self._is_ready.wait(seconds)
        return self.ready

    def ended(self) -> str | None:
        """Return how it ended ("ended with status 3"), once its output has been read; None while it runs."""
        status = self.process.poll()
        if status is None:
            return None
        self.read_rest()
        return f"ended with signal {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"

    def read_rest(self) -> None:
        """Wait until the output of the ended process has been read, but not for a grandchild that holds the pipe open."""
        for reader in self._readers:
            reader.join(timeout=1.0)

    def tail(self) -> list[str]:
        """Return the last lines of its standard error."""
        return list(self._tail)

    def _read_stdout(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                words = line.split()
                if words[:2] == [f"kerneldyno-{self._service}", "ready"]:
                    self.ready = dict(word.split("=", 1) for word in words[2:] if "=" in word)
                    self._is_ready.set()

    def _read_stderr(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._tail.append(line.rstrip("\n"))
                if self._echo is not None:
                    self._echo(line)


def indented(lines: Sequence[str]) -> str:
    """Return lines of a log as they follow a message: each on a line of its own, indented."""
    return "".join(f"\n  {line}" for line in lines)

"""Run one service as a child process: start it, watch it, restart it when it ends by itself, and stop it in order.

The child asks the kernel for a signal when the thread that started it ends (`--exit-with-parent`). So the supervisor starts
it in a thread that lives as long as its own process: killing that process also stops the service.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from kerneldyno.client.service_process import ServiceProcess, indented

_log = logging.getLogger(__name__)

#: First and longest pause before a restart, in seconds; the pause doubles each time.
_BACKOFF_SECONDS = (1.0, 60.0)
#: A service that ran for this long, in seconds, counts as healthy; the next pause is the first again.
_HEALTHY_SECONDS = 60.0
#: Longest wait after the second SIGTERM, which skips the drain, in seconds.
_SECOND_TERM_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class State:
    """Current state of one service."""

    name: str
    pid: int | None
    """Process id, or None between two starts."""
    ready: Mapping[str, str] | None
    """Fields of its ready line, such as `grpc`; None while it starts."""
    restarts: int
    last_end: str
    """How it last ended, with its last log lines; empty if it never ended."""


class Supervisor:
    """Run `python -m kerneldyno.SERVICE` until `stop`.

    Args:
        service: "scheduler" or "evaluator".
        python: interpreter that has the service installed.
        options: command-line options of the service.
        environ: environment of the service; credentials for other schedulers are removed.
        echo: stream that receives its standard error line by line; None to drop it.
    """

    def __init__(
        self,
        service: str,
        python: str,
        options: Sequence[str],
        *,
        environ: Mapping[str, str] = os.environ,
        echo: IO[str] | None = None,
    ) -> None:
        self._service = service
        self._python = python
        self._options = tuple(options)
        self._environ = dict(environ)
        self._echo = echo
        self._change = threading.Condition()
        self._run: ServiceProcess | None = None
        self._restarts = 0
        self._last_end = ""
        self._stopping = False
        self._thread = threading.Thread(target=self._keep_running, name=f"kerneldyno-{service}", daemon=True)
        self._thread.start()

    def state(self) -> State:
        """Return the current state."""
        with self._change:
            run = self._run
            pid = run.process.pid if run is not None and run.process.poll() is None else None
            ready = run.ready if run is not None and pid is not None else None
            return State(self._service, pid, ready, self._restarts, self._last_end)

    def stop(self, seconds: float) -> None:
        """Stop the service: let it drain for `seconds`, then skip the drain, then kill it. It can be called again."""
        with self._change:
            self._stopping = True
            self._change.notify_all()
            run = self._run
        if run is not None:
            for wait in (seconds, _SECOND_TERM_SECONDS):
                with suppress(subprocess.TimeoutExpired):
                    run.process.terminate()
                    run.process.wait(wait)
                    break
            else:
                run.process.kill()  # an evaluator's children end with it
        self._thread.join()

    def _keep_running(self) -> None:
        shortest, longest = _BACKOFF_SECONDS
        pause = shortest
        while True:
            began = time.monotonic()
            how = self._run_once()
            healthy = time.monotonic() - began >= _HEALTHY_SECONDS
            pause = shortest if healthy else pause
            with self._change:
                if self._stopping:
                    return
                self._last_end = how
                self._change.notify_all()
                _log.warning("event=service_ended service=%s pause_seconds=%g detail=%r", self._service, pause, how)
                if self._change.wait_for(lambda: self._stopping, pause):
                    return
                self._restarts += 1
            pause = min(2 * pause, longest)

    def _run_once(self) -> str:
        """Start the service, wait until it ends, and return how it ended."""
        with self._change:  # so that stop() either prevents the start or sees the process
            if self._stopping:
                return ""
            try:
                run = self._run = ServiceProcess(
                    self._service, self._python, self._options, environ=self._environ, echo=self._write
                )
            except OSError as error:
                return f"cannot be started with {self._python}: {error.strerror}"
        run.process.wait()
        return f"{run.ended()}{indented(run.tail())}"

    def _write(self, line: str) -> None:
        if self._echo is not None:
            self._echo.write(line)
            self._echo.flush()

"""One service as a child process: started, watched, started again when it ends by itself, stopped in order.

The child asks the kernel to be told when the thread that started it ends (`--exit-with-parent`), so the supervisor starts
it in a thread that lives as long as its own process: whoever kills that process stops the service too.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from kerneldyno.rpc import credentials, tokens

log = logging.getLogger(__name__)

#: Seconds until the first new start, and at most, when it keeps ending; twice as long each time.
_BACKOFF_SECONDS = (1.0, 60.0)
#: A service that has run for this long is healthy: the next end is the first again.
_HEALTHY_SECONDS = 60.0
#: How long a service may take after the second SIGTERM, which skips its drain, in seconds.
_HURRY_SECONDS = 10.0
_TAIL_LINES = 20
#: Meant for a scheduler elsewhere; a service is told by options what it shows to whom.
_NOT_PASSED_ON = frozenset({*credentials.VARIABLES, tokens.TOKENS_VARIABLE})


@dataclass(frozen=True, slots=True)
class State:
    """One service as it is now."""

    name: str
    pid: int | None
    """Its process, or None between two starts."""
    ready: Mapping[str, str] | None
    """The fields of its ready line, such as `grpc`; None while it starts."""
    restarts: int
    last_end: str
    """How it ended the last time, with its last lines; empty when it never did."""


@dataclass(slots=True)
class _Run:
    """One life of the service."""

    process: subprocess.Popen[str]
    ready: Mapping[str, str] | None = None
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))


class Supervisor:
    """Runs `python -m kerneldyno.SERVICE` until `stop`.

    Parameters:
        service: "scheduler" or "evaluator".
        python: the interpreter that has it installed.
        options: its command line.
        environ: its environment; credentials for other schedulers are left out.
        echo: where its standard error goes, line by line; None for nowhere.
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
        self._command = [python, "-m", f"kerneldyno.{service}", *options, "--exit-with-parent"]
        self._environ = {name: value for name, value in environ.items() if name not in _NOT_PASSED_ON}
        self._echo = echo
        self._change = threading.Condition()
        self._run: _Run | None = None
        self._restarts = 0
        self._last_end = ""
        self._stopping = False
        self._thread = threading.Thread(target=self._keep_running, name=f"kerneldyno-{service}", daemon=True)
        self._thread.start()

    def state(self) -> State:
        """Tell how it is."""
        with self._change:
            run = self._run
            pid = run.process.pid if run is not None and run.process.poll() is None else None
            ready = run.ready if run is not None and pid is not None else None
            return State(self._service, pid, ready, self._restarts, self._last_end)

    def stop(self, seconds: float) -> None:
        """Let it drain for `seconds`, then hurry it, then kill it. May be called again."""
        with self._change:
            self._stopping = True
            self._change.notify_all()
            run = self._run
        if run is not None:
            for wait in (seconds, _HURRY_SECONDS):
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
            how = self._live_once()
            healthy = time.monotonic() - began >= _HEALTHY_SECONDS
            pause = shortest if healthy else pause
            with self._change:
                if self._stopping:
                    return
                self._last_end = how
                self._change.notify_all()
                log.warning("event=service_ended service=%s pause_seconds=%g detail=%r", self._service, pause, how)
                if self._change.wait_for(lambda: self._stopping, pause):
                    return
                self._restarts += 1
            pause = min(2 * pause, longest)

    def _live_once(self) -> str:
        """Start it, wait for its end, and return how it ended."""
        with self._change:  # so that stop() sees either no process to be started or one to be ended
            if self._stopping:
                return ""
            try:
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    start_new_session=True,  # Ctrl-C reaches whoever stops it, not itself
                    env=self._environ,
                )
            except OSError as error:
                return f"cannot be started with {self._command[0]}: {error.strerror}"
            run = self._run = _Run(process)
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [
            threading.Thread(target=self._read_ready, args=(run, process.stdout), daemon=True),
            threading.Thread(target=self._read_log, args=(run, process.stderr), daemon=True),
        ]
        for reader in readers:
            reader.start()
        status = process.wait()
        for reader in readers:
            reader.join(timeout=1.0)  # a grandchild may hold the pipe open
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return f"ended with {how}{self._tail()}"

    def _read_ready(self, run: _Run, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                words = line.split()
                if words[:2] == [f"kerneldyno-{self._service}", "ready"]:
                    with self._change:
                        run.ready = dict(word.split("=", 1) for word in words[2:] if "=" in word)
                        self._change.notify_all()

    def _read_log(self, run: _Run, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                run.tail.append(line.rstrip("\n"))
                if self._echo is not None:
                    self._echo.write(line)
                    self._echo.flush()

    def _tail(self) -> str:
        run = self._run
        return "".join(f"\n  {line}" for line in list(run.tail)) if run is not None else ""

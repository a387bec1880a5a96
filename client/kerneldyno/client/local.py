"""Run a scheduler and an evaluator on this machine for the duration of a block.

`kerneldyno up` and every command's `--local` use it; so may tests and notebooks. The services are child processes in
their own sessions, so that Ctrl-C reaches only the launcher, which stops them in order. They end when the thread that
started them ends, so leave the block in the thread that entered it. A service that dies is not restarted; check()
raises an error that says why.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import IO, Self

from kerneldyno.client.blocking import Client
from kerneldyno.client.errors import KernelDynoError, LocalServiceError
from kerneldyno.rpc import credentials, installing, tokens

#: Lines of a service's standard error that are shown when it dies.
_TAIL_LINES = 20
#: Seconds that a service may take to stop after each signal: SIGTERM makes it drain, a second one makes it hurry.
_STOP_SECONDS = (5.0, 5.0)

#: Variables for services elsewhere. These two services trust this machine, as its users trust each other.
_NOT_PASSED_ON = {*credentials.VARIABLES, tokens.TOKENS_VARIABLE}

#: Modules that each service imports, by the extra that installs them.
_NEEDS = {
    "scheduler": ("prometheus_client", "grpc_health", "grpc_reflection"),
    "evaluator": ("prometheus_client", "grpc_health", "grpc_reflection", "torch", "triton", "numpy"),
}


class LocalServices:
    """Start both services on entry and stop them on exit.

        with LocalServices(devices="cpu") as services, Client(services.address) as client:
            ...

    Args:
        listen: address of the scheduler; port 0 takes a free one. The evaluator always takes a free one.
        metrics: where the scheduler's metrics are served, or "off".
        evaluator_metrics: the same for the evaluator.
        devices, sandbox, lanes: passed to the evaluator; None for its own default.
        store: where the scheduler keeps verdicts: "memory", or "sqlite:PATH" for a file that outlives it.
        start_timeout: longest time until both are ready, in seconds. Most of it is spent importing torch.
        echo: copy the services' logs to standard error.
    """

    def __init__(
        self,
        *,
        listen: str = "127.0.0.1:0",
        metrics: str = "127.0.0.1:0",
        evaluator_metrics: str = "127.0.0.1:0",
        devices: str | None = None,
        sandbox: str | None = None,
        lanes: int | None = None,
        store: str = "memory",
        start_timeout: float = 180.0,
        echo: bool = False,
    ) -> None:
        self._listen = listen
        self._metrics = metrics
        self._evaluator_metrics = evaluator_metrics
        self._store = store
        chosen = {"--devices": devices, "--sandbox": sandbox, "--lanes": lanes}
        self._evaluator_options = [
            part for option, value in chosen.items() if value is not None for part in (option, str(value))
        ]
        self._start_timeout = start_timeout
        self._echo = echo
        self._services: list[_Service] = []
        #: Fields of the ready lines: grpc, metrics, and for the evaluator node and devices.
        self.scheduler: dict[str, str] = {}
        self.evaluator: dict[str, str] = {}

    @property
    def address(self) -> str:
        """Return the address of the scheduler."""
        return self.scheduler["grpc"]

    def __enter__(self) -> Self:
        for service in ("scheduler", "evaluator"):
            refuse_missing(service)
        deadline = time.monotonic() + self._start_timeout
        try:
            options = ["--listen", self._listen, "--metrics", self._metrics, "--store", self._store]
            scheduler = self._start("scheduler", [*options, "--settle", "0"])  # no other node will join
            self.scheduler = scheduler.wait_ready(deadline)
            options = ["--listen", "127.0.0.1:0", "--metrics", self._evaluator_metrics, "--scheduler", self.address]
            evaluator = self._start("evaluator", [*options, *self._evaluator_options])
            self.evaluator = evaluator.wait_ready(deadline)
            self._wait_registered(deadline)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the evaluator, which may still report to the scheduler, and then the scheduler."""
        while self._services:
            self._services[-1].stop()
            self._services.pop()

    def check(self) -> None:
        """Raise LocalServiceError if a service has ended unexpectedly."""
        for service in self._services:
            service.check()

    def _start(self, name: str, options: list[str]) -> _Service:
        service = _Service(name, [*options, "--exit-with-parent"], self._echo)
        self._services.append(service)
        return service

    def _wait_registered(self, deadline: float) -> None:
        with Client(self.address, tls_ca="", tls_cert="", tls_key="", token="") as client:
            while True:
                self.check()
                with suppress(KernelDynoError):
                    if client.capabilities().nodes:
                        return
                if time.monotonic() > deadline:
                    raise LocalServiceError("the evaluator started but did not register with the scheduler in time")
                time.sleep(0.05)


class _Service:
    """One child process, and the threads that read its output."""

    def __init__(self, name: str, options: list[str], echo: bool) -> None:
        self._name = name
        self._echo = echo
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._ready: SimpleQueue[dict[str, str]] = SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"kerneldyno.{name}", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON},
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        # Read to the end in any case: a full pipe would block the service.
        self._readers = [
            threading.Thread(target=self._read_stdout, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_stderr, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def wait_ready(self, deadline: float) -> dict[str, str]:
        """Return the fields of the ready line."""
        while True:
            try:
                return self._ready.get(timeout=0.05)
            except Empty:
                self.check()
            if time.monotonic() > deadline:
                raise LocalServiceError(f"the {self._name} was not ready in time{self._log()}")

    def check(self) -> None:
        """Raise LocalServiceError if the process has ended."""
        status = self._process.poll()
        if status is None:
            return
        for reader in self._readers:
            reader.join(timeout=1.0)  # a grandchild may hold the pipe open
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        raise LocalServiceError(f"the {self._name} ended with {how}{self._last_words()}")

    def stop(self) -> None:
        """Send SIGTERM, send it again, then SIGKILL to the process and everything it started."""
        for seconds in _STOP_SECONDS:
            if self._process.poll() is not None:
                break
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        else:
            if self._process.poll() is None:
                _kill_tree(self._process.pid)
        self._process.wait()
        for reader in self._readers:
            reader.join(timeout=1.0)

    def _read_stdout(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                words = line.split()
                if words[:2] == [f"kerneldyno-{self._name}", "ready"]:
                    self._ready.put(dict(word.split("=", 1) for word in words[2:] if "=" in word))

    def _read_stderr(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._tail.append(line.rstrip("\n"))
                if self._echo:
                    sys.stderr.write(line)
                    sys.stderr.flush()

    def _last_words(self) -> str:
        """Return the service's own words about its end if its log was already shown, else the end of its log."""
        begin = f"kerneldyno-{self._name}: "
        words = [line.removeprefix(begin) for line in self._tail if line.startswith(begin)]
        return f": {'; '.join(words)}" if self._echo and words else self._log()

    def _log(self) -> str:
        return "; its log is above" if self._echo else "".join(f"\n  {line}" for line in self._tail)


def refuse_missing(service: str) -> None:
    """Raise LocalServiceError, with the install command, if `service` cannot run in this Python."""
    missing = [name for name in _NEEDS[service] if importlib.util.find_spec(name) is None]
    if missing:
        raise LocalServiceError(
            f"the {service} needs {', '.join(missing)}, not installed in {sys.executable}: {installing.command(service)}"
        )


def _kill_tree(root: int) -> None:
    """Kill a process and its descendants. Children of the evaluator run in sessions of their own."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # The name, in brackets, may hold any character; the parent's id is the second field after it.
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    doomed = [root]
    for pid in doomed:
        doomed.extend(child for child, parent in parents.items() if parent == pid)
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

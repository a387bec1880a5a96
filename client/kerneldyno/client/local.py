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
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from kerneldyno.client.blocking import Client
from kerneldyno.client.errors import KernelDynoError, LocalServiceError
from kerneldyno.client.service_process import ServiceProcess, indented
from kerneldyno.rpc import installing

#: Seconds that a service may take to stop after each signal: SIGTERM makes it drain, a second one makes it hurry.
_STOP_SECONDS = (5.0, 5.0)

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
        devices, sandbox, lanes, builders, build_cache: passed to the evaluator; None for its own default.
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
        builders: int | None = None,
        build_cache: str | None = None,
        store: str = "memory",
        start_timeout: float = 180.0,
        echo: bool = False,
    ) -> None:
        self._listen = listen
        self._metrics = metrics
        self._evaluator_metrics = evaluator_metrics
        self._store = store
        chosen = {"--devices": devices, "--sandbox": sandbox, "--lanes": lanes}
        chosen |= {"--builders": builders, "--build-cache": build_cache}
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
        service = _Service(name, options, self._echo)
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
    """One of the two services: waiting for it, checking it, and stopping it."""

    def __init__(self, name: str, options: list[str], echo: bool) -> None:
        self._name = name
        self._echo = echo
        self._child = ServiceProcess(name, sys.executable, options, echo=_to_stderr if echo else None)

    def wait_ready(self, deadline: float) -> dict[str, str]:
        """Return the fields of the ready line."""
        while True:
            if (ready := self._child.wait_ready(0.05)) is not None:
                return dict(ready)
            self.check()
            if time.monotonic() > deadline:
                raise LocalServiceError(f"the {self._name} was not ready in time{self._log()}")

    def check(self) -> None:
        """Raise LocalServiceError if the process has ended."""
        if (how := self._child.ended()) is not None:
            raise LocalServiceError(f"the {self._name} {how}{self._last_words()}")

    def stop(self) -> None:
        """Send SIGTERM, send it again, then SIGKILL to the process and everything it started."""
        process = self._child.process
        for seconds in _STOP_SECONDS:
            if process.poll() is not None:
                break
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
        else:
            if process.poll() is None:
                _kill_tree(process.pid)
        process.wait()
        self._child.read_rest()

    def _last_words(self) -> str:
        """Return the service's own words about its end if its log was already shown, else the end of its log."""
        begin = f"kerneldyno-{self._name}: "
        words = [line.removeprefix(begin) for line in self._child.tail() if line.startswith(begin)]
        return f": {'; '.join(words)}" if self._echo and words else self._log()

    def _log(self) -> str:
        return "; its log is above" if self._echo else indented(self._child.tail())


def _to_stderr(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


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

"""Helpers of the end-to-end tests: requests, services as processes, process families and metrics pages.

Nothing here is fake: the services are the programs that users start, on free ports of this machine, and runners are
sandboxed.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import psutil

from kerneldyno.client import LocalServices
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult

PROBLEMS = Path(__file__).resolve().parents[2] / "examples" / "problems"
#: The devices on which candidates of this run are judged.
DEVICES = "cuda:0" if os.environ.get("KERNELDYNO_REQUIRE_GPU") else "cpu"
ON_GPU = DEVICES != "cpu"
#: Owner of a candidate's processes if the evaluator runs as root.
NOBODY = 65534

#: A reference that takes milliseconds on any device.
REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(8)]

def get_init_inputs():
    return []
"""

_CANDIDATE = """
import os, signal, time, torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
        return x * 2 + 1
# {mark}
"""


def candidate(body: str = "pass", mark: str = "") -> str:
    """Return a right candidate for REFERENCE that also runs `body`. Another `mark` makes it other work."""
    return _CANDIDATE.format(body=body, mark=mark)


def request(id: str, body: str = "pass", **changes: Any) -> EvalRequest:
    """Return a request that takes milliseconds, unless `body` takes longer: the candidate is called twice."""
    fields = {
        "id": id,
        "reference_code": REFERENCE,
        "kernel_code": candidate(body, id),
        "backend": "torch",
        "num_correct_trials": 1,
        "stress_inputs": False,
        "run_performance": False,
        **changes,
    }
    return request_from_json(fields)


def outcome(result: EvalResult) -> str:
    """Return the name of the outcome."""
    return EvalResult.Outcome.Name(result.outcome)


# Services as processes


class Service:
    """A scheduler or an evaluator in a process of its own, ended at the end of the block."""

    def __init__(self, name: str, *options: str, stderr: IO[str] | None = None) -> None:
        """Create it. `stderr` gets its log; None: as this process's."""
        self._name = name
        self._options = options
        self._stderr = stderr

    def __enter__(self) -> Self:
        endpoints = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--exit-with-parent"]
        if self._name == "scheduler" and "--store" not in self._options:
            endpoints += ["--store", "memory"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"kerneldyno.{self._name}", *endpoints, *self._options],
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
            text=True,
        )
        try:
            self.ready = self._read_ready_line()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def address(self) -> str:
        """Return the address of its gRPC port."""
        return self.ready["grpc"]

    def exit_status(self, seconds: float) -> int:
        """Wait until it ends, and return its exit status."""
        return self.process.wait(seconds)

    def _read_ready_line(self) -> dict[str, str]:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 90)[0], f"{self._name} says nothing"
        line = self.process.stdout.readline()
        assert line.startswith(f"kerneldyno-{self._name} ready "), line
        return dict(word.split("=", 1) for word in line.split()[2:])

    def _end(self) -> None:
        if self.process.poll() is None:
            family = descendants(self.process.pid)
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
            self.process.kill()
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def scheduler(*options: str) -> Service:
    """Return a scheduler for a `with` statement."""
    return Service("scheduler", *options)


def evaluator(address: str, *options: str) -> Service:
    """Return an evaluator for a `with` statement. It registers with the scheduler at `address`."""
    return Service("evaluator", "--scheduler", address, "--devices", DEVICES, *options)


def main_processes(services: LocalServices) -> tuple[psutil.Process, psutil.Process]:
    """Return the processes of the scheduler and of the evaluator."""
    ports = {int(services.scheduler["grpc"].rpartition(":")[2]), int(services.evaluator["grpc"].rpartition(":")[2])}
    found = {}
    for process in psutil.Process().children():
        if "kerneldyno." in (line := " ".join(process.cmdline())):
            listening = {
                connection.laddr.port
                for connection in process.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN
            }
            if listening & ports:
                found["kerneldyno.evaluator" in line] = process
    return found[False], found[True]


# Processes


def descendants(pid: int) -> list[psutil.Process]:
    """Return all running processes below `pid`."""
    try:
        family = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [process for process in family if is_alive(process)]


def is_alive(process: psutil.Process) -> bool:
    """Return whether it runs; a process that only waits to be reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def judge_of(evaluator_pid: int) -> psutil.Process:
    """Return the judge among an evaluator's children."""
    (judge,) = [p for p in psutil.Process(evaluator_pid).children() if "kerneldyno.evaluator.judge" in p.cmdline()]
    return judge


def orphans() -> set[psutil.Process]:
    """Return the processes of zygotes and runners on this machine that belong to no running evaluator or test."""
    return {process for process in psutil.process_iter() if _is_orphan(process)}


def _is_orphan(process: psutil.Process) -> bool:
    """Return whether it is a zygote or a runner whose evaluator or test has gone.

    The evaluator or test is the Python process above the topmost zygote.
    """
    try:
        if not is_alive(process) or not (process.uids().real == NOBODY or _is_of_zygote(process)):
            return False
        chain = [process, *process.parents()]
        founders = [index for index, ancestor in enumerate(chain) if _is_of_zygote(ancestor)]
        above = chain[founders[-1] + 1 :] if founders else chain[1:]
        return not above or above[0].pid == 1 or "python" not in " ".join(above[0].cmdline())
    except psutil.Error:
        return False  # the process has just ended


def _is_of_zygote(process: psutil.Process) -> bool:
    return "kerneldyno.evaluator.runner.zygote" in process.cmdline()


# Metrics pages


def page(address: str) -> str:
    """Return the text of a metrics page."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        return str(response.read().decode())


def metric(text: str, name: str, **labels: str) -> float:
    """Return the sum of the series of this name whose labels include `labels`."""
    total = 0.0
    for line in text.splitlines():
        series, _, value = line.rpartition(" ")
        plain, _, rest = series.partition("{")
        if plain == name and labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', rest)).items():
            total += float(value)
    return total


def kill(process: psutil.Process | subprocess.Popen[str]) -> None:
    """Send SIGKILL, so that the process cannot clean up."""
    os.kill(process.pid, signal.SIGKILL)

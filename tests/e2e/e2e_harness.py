"""What the end-to-end tests share: requests, services as processes, process families and metrics pages.

Nothing here is fake: services are the ones a person starts, on free ports of this machine, and runners are sandboxed.
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
from typing import Any, Self

import psutil

from kerneldyno.client import LocalServices
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult

PROBLEMS = Path(__file__).resolve().parents[2] / "examples" / "problems"
#: Where candidates of this run are judged.
DEVICES = "cuda:0" if os.environ.get("KERNELDYNO_REQUIRE_GPU") else "cpu"
ON_GPU = DEVICES != "cpu"
#: Owner of a candidate's processes where the evaluator is root.
NOBODY = 65534

#: Milliseconds on any device.
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
    """A right candidate for REFERENCE, with mischief where asked for. Another `mark` makes it other work."""
    return _CANDIDATE.format(body=body, mark=mark)


def request(id: str, body: str = "pass", **changes: Any) -> EvalRequest:
    """A request that takes milliseconds, unless `body` does not: it is called twice."""
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
    """The outcome's name."""
    return EvalResult.Outcome.Name(result.outcome)


# Services


class Service:
    """A scheduler or an evaluator in a process of its own, killed at the end of the block."""

    def __init__(self, name: str, *options: str) -> None:
        self._name = name
        self._options = options

    def __enter__(self) -> Self:
        endpoints = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--exit-with-parent"]
        if self._name == "scheduler" and "--store" not in self._options:
            endpoints += ["--store", "memory"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"kerneldyno.{self._name}", *endpoints, *self._options],
            stdout=subprocess.PIPE,
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
        """Where it serves gRPC."""
        return self.ready["grpc"]

    def exit_status(self, seconds: float) -> int:
        """Wait for its end."""
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
    """A scheduler to be entered."""
    return Service("scheduler", *options)


def evaluator(address: str, *options: str) -> Service:
    """An evaluator to be entered, registered with the scheduler at `address`."""
    return Service("evaluator", "--scheduler", address, "--devices", DEVICES, *options)


def main_processes(services: LocalServices) -> tuple[psutil.Process, psutil.Process]:
    """The scheduler's and the evaluator's process."""
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
    """Everything that `pid` has started and that still runs."""
    try:
        family = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [process for process in family if is_alive(process)]


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs; one that only waits to be reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def judge_of(evaluator_pid: int) -> psutil.Process:
    """The judge among an evaluator's children."""
    (judge,) = [p for p in psutil.Process(evaluator_pid).children() if "kerneldyno.evaluator.judge" in p.cmdline()]
    return judge


def orphans() -> set[psutil.Process]:
    """Processes of runners, anywhere on this machine, that no living evaluator answers for."""
    return {process for process in psutil.process_iter() if _is_orphan(process)}


def _is_orphan(process: psutil.Process) -> bool:
    """Whether it belongs to a zygote's family whose founder has gone. The founder's parent runs an evaluator or a test."""
    try:
        if not is_alive(process) or not (process.uids().real == NOBODY or _is_of_zygote(process)):
            return False
        chain = [process, *process.parents()]
        founders = [index for index, ancestor in enumerate(chain) if _is_of_zygote(ancestor)]
        above = chain[founders[-1] + 1 :] if founders else chain[1:]
        return not above or above[0].pid == 1 or "python" not in " ".join(above[0].cmdline())
    except psutil.Error:
        return False  # it has just ended


def _is_of_zygote(process: psutil.Process) -> bool:
    return "kerneldyno.evaluator.runner.zygote" in process.cmdline()


# Metrics


def page(address: str) -> str:
    """A metrics page."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        return str(response.read().decode())


def metric(text: str, name: str, **labels: str) -> float:
    """The sum of the series of that name whose labels include `labels`."""
    total = 0.0
    for line in text.splitlines():
        series, _, value = line.rpartition(" ")
        plain, _, rest = series.partition("{")
        if plain == name and labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', rest)).items():
            total += float(value)
    return total


def kill(process: psutil.Process | subprocess.Popen[str]) -> None:
    """SIGKILL: no farewell of any kind."""
    os.kill(process.pid, signal.SIGKILL)

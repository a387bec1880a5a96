"""Measure what the services of a benchmark use: processor seconds by kind of process, host and device memory.

A runner lives for one candidate only, so its processor time is read from the zygote that forked it: when a child ends,
the kernel adds its time to the parent's time for children. The time of processes that still run is added to that.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import psutil

_MODULES = {
    "kerneldyno.scheduler": "scheduler",
    "kerneldyno.evaluator": "server",
    "kerneldyno.evaluator.runner.zygote": "zygote",
    "kerneldyno.evaluator.judge": "judge",
}
_PERIOD_SECONDS = 1.0


class Usage:
    """A context manager that samples the memory of this process's descendants, and of the GPUs, once a second."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.host_mebibytes: list[float] = []
        self.device_mebibytes: list[int] = []

    def __enter__(self) -> Self:
        self._before = cpu_seconds()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        after = cpu_seconds()
        self.cpu_seconds = {name: after[name] - self._before.get(name, 0.0) for name in after}

    def summary(self) -> dict[str, Any]:
        """Return seconds by kind, the peak of host memory, and device memory (None without a GPU), both in MiB."""
        device = self.device_mebibytes
        return {
            "cpu_seconds": self.cpu_seconds,
            "host_peak_mebibytes": max(self.host_mebibytes, default=0.0),
            "device_begin_mebibytes": device[0] if device else None,
            "device_peak_mebibytes": max(device) if device else None,
            "device_end_mebibytes": device[-1] if device else None,
        }

    def _sample(self) -> None:
        while True:
            over = self._over.wait(_PERIOD_SECONDS if self.host_mebibytes else 0.0)
            self.host_mebibytes.append(host_mebibytes())
            if (device := device_mebibytes()) is not None:
                self.device_mebibytes.append(device)
            if over:
                return


def cpu_seconds() -> dict[str, float]:
    """Return the processor seconds of this process's descendants so far, by kind; "runners" are forks of zygotes."""
    seconds: dict[str, float] = {}
    zygotes = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            kind, times = _kind(process), process.cpu_times()
            if kind == "zygote":
                zygotes.append(process)
                seconds["runners"] = seconds.get("runners", 0.0) + times.children_user + times.children_system
            if kind:
                seconds[kind] = seconds.get(kind, 0.0) + times.user + times.system
    for zygote in zygotes:
        with suppress(psutil.Error):
            for process in zygote.children(recursive=True):
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    seconds["runners"] += times.user + times.system + times.children_user + times.children_system
    return seconds


def host_mebibytes() -> float:
    """Return resident memory of this process's descendants. Shared pages count in each (reading USS takes seconds)."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total / 2**20


def resident_mebibytes() -> dict[str, float]:
    """Return resident memory of the long-lived services among this process's descendants, by kind."""
    found: dict[str, float] = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if kind := _kind(process):
                found[kind] = found.get(kind, 0.0) + process.memory_info().rss / 2**20
    return found


def device_mebibytes() -> int | None:
    """Return memory in use on the NVIDIA GPUs that this process may use; None without one."""
    if not shutil.which("nvidia-smi"):
        return None
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        query += ["-i", visible]
    return sum(int(line) for line in subprocess.check_output(query, text=True).split())


def is_forked(process: psutil.Process) -> bool:
    """Return True if a zygote forked this process: a runner or one of its wardens."""
    parent = process.parent()
    return parent is not None and _kind(parent) == "zygote"


def _kind(process: psutil.Process) -> str:
    """Return the kind of a process; "" for others and for forks of a zygote, which have the zygote's command line."""
    words = process.cmdline()
    for flag, module in itertools.pairwise(words):
        if flag == "-m":
            kind = _MODULES.get(module, "")
            parent = process.parent()
            if kind == "zygote" and parent is not None and "runner.zygote" in " ".join(parent.cmdline()):
                return ""
            return kind
    return ""

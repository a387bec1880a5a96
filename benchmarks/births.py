"""Measure what processes with a CUDA context cost the driver of a host: births, deaths, and who waits for them.

    python -m benchmarks.births [--devices 1,2] [--at-once 1,2,4,8] [--seconds 1.5] [--options] [--bystander] [--json FILE]

For each GPU one process, which has imported torch, forks children, as many concurrently as `--at-once` says. Each child
opens its GPU, launches one kernel, and is killed. There is no sandbox, no candidate and no service. As in the service, a
child can open its own GPU's node only, has one connection to the device, and another process keeps a context on
each GPU. `--options` repeats the last row with other settings. `--bystander` times calls of a process on the first GPU,
while processes are born on the last one. All calls of the driver are timed by a preloaded library (driver_calls.py).
Needs a GPU and a C compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import math
import multiprocessing
import os
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks import driver_calls
from benchmarks.bystander import Bystander
from kerneldyno.evaluator.shared import proc

_FORK = multiprocessing.get_context("fork")
#: Time limit in seconds for what cannot take long.
_LONGEST = 60.0
#: Seconds of the steps of one birth: cuInit, context, first kernel; and when it was done (monotonic).
TOLD = struct.Struct("4d")
#: Environment of children, as in the service (`Device.quick_start_environment`).
AS_SERVED = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
#: What `--options` tries: changes to that environment; and whether all GPUs' nodes can be opened.
_OPTIONS: dict[str, tuple[dict[str, str], bool]] = {
    "nodes of all GPUs": (AS_SERVED, True),
    "usual number of connections": ({}, False),
    "usual number of connections, launch queues of 4x": ({"CUDA_SCALE_LAUNCH_QUEUES": "4x"}, False),
    "one copy connection": ({**AS_SERVED, "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"}, False),
    "launch queues of 0.25x": ({**AS_SERVED, "CUDA_SCALE_LAUNCH_QUEUES": "0.25x"}, False),
}


@dataclass(frozen=True, slots=True)
class Row:
    """Births of one kind: how many a second, and the mean milliseconds of their steps."""

    label: str
    a_second: float
    initialise: float
    context: float
    kernel: float
    death: float
    #: Calls of the driver of one child, until it is killed, and the milliseconds that it spent in them.
    calls: float
    in_calls: float
    totals: list[driver_calls.Total] = field(default_factory=list)

    def line(self) -> str:
        """Return the row of a table."""
        steps = (self.initialise, self.context, self.kernel, self.death, self.calls, self.in_calls)
        return f"| {self.label} | {self.a_second:.1f} | " + " | ".join(f"{step:.0f}" for step in steps) + " |"


def main() -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description="Measure what processes with a CUDA context cost a host's driver.")
    parser.add_argument("--devices", default="1", help="numbers of GPUs to use at once, as 1,2,4 (default: 1)")
    parser.add_argument("--at-once", default="1,2,4,8", help="concurrent births on each GPU (default: 1,2,4,8)")
    parser.add_argument("--seconds", type=float, default=1.5, help="duration of each row (default: 1.5)")
    parser.add_argument("--options", action="store_true", help="also with other settings of CUDA")
    parser.add_argument("--bystander", action="store_true", help="also time the calls of another process")
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    options = parser.parse_args()
    if not numbers():  # torch may not ask: a process that has opened CUDA cannot fork others that do
        print("births.py needs an NVIDIA GPU and a PyTorch that can use it", file=sys.stderr)
        return 2
    if "DRIVER_CALLS" not in os.environ:
        return _restarted()
    devices = [int(count) for count in options.devices.split(",")]
    at_once = [int(count) for count in options.at_once.split(",")]
    print("| | born a second | cuInit ms | context | first kernel | death | calls | ms in calls |")
    print("| --- |" + " ---: |" * 7, flush=True)
    rows: list[Row] = []
    residents = [resident(gpu) for gpu in range(max(devices))]
    try:
        for count in devices:
            rows += [_births(f"{count} GPU, {each} on each", range(count), each, options.seconds) for each in at_once]
        every = range(devices[-1])
        if options.options:
            for label, (environment, all_nodes) in _OPTIONS.items():
                rows.append(
                    _births(label, every, at_once[-1], options.seconds, environment=environment, all_nodes=all_nodes)
                )
        seen = _beside(devices[-1] - 1, at_once, rows) if options.bystander else {}
    finally:
        for process in residents:
            process.kill()
    if rows:
        print(
            f"\nCalls of one birth ({rows[0].label}):\n\n| call | times | ms | longest ms |\n| --- | ---: | ---: | ---: |"
        )
        for total in rows[0].totals[:12]:
            print(f"| {total.name} | {total.times} | {total.milliseconds:.2f} | {total.longest:.1f} |")
    if options.json:
        options.json.write_text(
            json.dumps({"births": [asdict(row) for row in rows], "bystander": seen}, indent=1) + "\n"
        )
    return 0


def _restarted() -> int:
    """Run this command again with the library preloaded, and return its exit status."""
    with tempfile.TemporaryDirectory(prefix="kerneldyno-calls-") as folder:
        try:
            library = driver_calls.build(Path(folder))
        except FileNotFoundError:
            print("births.py needs a C compiler, as the command cc (Debian: apt install gcc)", file=sys.stderr)
            return 2
        environment = {**os.environ, **driver_calls.environment(library, Path(folder))}
        return os.spawnve(
            os.P_WAIT, sys.executable, [sys.executable, "-m", "benchmarks.births", *sys.argv[1:]], environment
        )


def numbers() -> list[int]:
    """Return the numbers of the GPUs' nodes, in the order of their PCI addresses, which is CUDA's as we ask for it."""
    cards = Path("/proc/driver/nvidia/gpus")
    found = [int(proc.facts(path)["Device Minor"]) for path in sorted(cards.glob("*/information"))]
    return [number for number in found if Path(f"/dev/nvidia{number}").exists()]


def environment_of(gpu: int, *, all_nodes: bool = False) -> dict[str, str]:
    """Return the variables with which a process sees one GPU only; with `all_nodes` it could open the others as well."""
    hidden = [str(number) for at, number in enumerate(numbers()) if at != gpu]
    visible = str(gpu if all_nodes else 0)  # CUDA counts what can be opened
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": visible,
        "HIDDEN_GPUS": "" if all_nodes else ",".join(hidden),
    }


def resident(gpu: int) -> Any:
    """Start a process that keeps a context on a GPU, as a judge does. The last user of a GPU shuts more of it down."""

    def stay() -> None:
        os.environ.update(environment_of(gpu))
        torch.zeros(1, device="cuda")
        ready.set()
        signal.pause()

    ready = _FORK.Event()
    process = _FORK.Process(target=stay, daemon=True)
    process.start()
    if not ready.wait(_LONGEST):
        sys.exit(f"no context on GPU {gpu}")
    return process


def _births(
    label: str,
    gpus: Sequence[int],
    at_once: int,
    seconds: float,
    *,
    environment: dict[str, str] | None = None,
    all_nodes: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> Row:
    """Have processes born on some GPUs for a while, and do something else meanwhile."""
    recording = driver_calls.Recording(Path(os.environ["DRIVER_CALLS"]))
    first, earlier = len(recording), recording.processes
    ready, told = _FORK.Barrier(len(gpus)), _FORK.Queue()
    chosen = AS_SERVED if environment is None else environment
    variables = [{**environment_of(gpu, all_nodes=all_nodes), **chosen} for gpu in gpus]
    forkers = [_FORK.Process(target=_fork, args=(each, ready, told, seconds, at_once)) for each in variables]
    for forker in forkers:
        forker.start()
    meanwhile()
    found = [told.get(timeout=_LONGEST + 10 * seconds) for _ in forkers]
    for forker in forkers:
        forker.join()
    born = [child for children, _, _ in found for child in children]
    deaths = [death for _, deaths, _ in found for death in deaths]
    calls = [call for call in recording.since(first) if call.process > earlier]
    initialise, context, kernel = (1e3 * sum(child[step] for child in born) / len(born) for step in range(3))
    row = Row(
        label,
        sum(len(children) / took for children, _, took in found),
        initialise,
        context,
        kernel,
        1e3 * sum(deaths) / len(deaths),
        len(calls) / len(born),
        sum(call.took for call in calls) * 1e-6 / len(born),
        [
            each._replace(times=round(each.times / len(born)), milliseconds=each.milliseconds / len(born))
            for each in driver_calls.totals(calls)
        ],
    )
    print(row.line(), flush=True)
    return row


def _fork(environment: dict[str, str], ready: Any, told: Any, seconds: float, at_once: int) -> None:
    os.environ.update(environment)
    reading, writing = os.pipe()
    ready.wait(_LONGEST)
    begin = time.monotonic()
    born: list[tuple[float, ...]] = []
    deaths = []
    alive = 0
    while alive or time.monotonic() - begin < seconds:
        while alive < at_once and time.monotonic() - begin < seconds:
            if os.fork() == 0:
                live(writing)
            alive += 1
        os.wait()
        gone = time.monotonic()
        alive -= 1
        *steps, done = TOLD.unpack(os.read(reading, TOLD.size))
        born.append(tuple(steps))
        deaths.append(gone - done)
    told.put((born, deaths, time.monotonic() - begin))


def live(writing: int) -> None:
    """Be born, tell how long each step took, and die."""
    times = [time.monotonic()]
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        if driver.cuInit(0) == 0:
            times.append(time.monotonic())
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)  # the one that torch uses
            times.append(time.monotonic())
        torch.zeros(1, device="cuda").add_(1)
        torch.cuda.synchronize()
        times.append(time.monotonic())
    finally:
        times += [math.nan] * (4 - len(times))
        os.write(writing, TOLD.pack(*(after - before for before, after in itertools.pairwise(times)), times[-1]))
        os.kill(os.getpid(), signal.SIGKILL)


def _beside(gpu: int, at_once: Sequence[int], rows: list[Row]) -> dict[str, Any]:
    """Time the bystander's calls while nobody is born, and while processes are born on `gpu`."""
    seen: dict[str, Any] = {}
    with Bystander(environment_of(0)) as bystander:
        seen["nobody"] = bystander.measure()
        for count in at_once:
            label = f"{count} at once on GPU {gpu}"

            def watch(label: str = label) -> None:
                seen[label] = bystander.measure()

            rows.append(_births(f"{label}, with a bystander", [gpu], count, bystander.seconds + 1.0, meanwhile=watch))
    print("\n| call, microseconds: mean, 95 %, longest | " + " | ".join(seen) + " |\n| --- |" + " ---: |" * len(seen))
    for name in seen["nobody"]:
        print(
            f"| {name} | " + " | ".join("{:.0f}, {:.0f}, {:.0f}".format(*each[name]) for each in seen.values()) + " |"
        )
    return seen


if __name__ == "__main__":
    sys.exit(main())

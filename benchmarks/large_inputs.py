"""Measure the cost of large inputs: peak memory and seconds in each stage, by the size of a problem's inputs.

    python -m benchmarks.large_inputs FILE ... [--gib 1,4,8,16] [--constant batch_size] [--devices cuda:0] [--json FILE]

Each file is a problem in KernelBench's form with one large input, whose size is proportional to a constant of the
module. The constant is changed to get the requested sizes, and the problem is judged against itself, one at a time,
with default settings. Each run has a new service, so that nothing is warm. The peak is the largest memory in use on the
device minus the memory in use before (read every 10 ms from the driver); for the CPU device it is the machine's memory.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import json
import math
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.service import capacity, collect, device_list, environment_of, outcome_of, stage_seconds
from kerneldyno.cli.suite_folders import renamed
from kerneldyno.client import AsyncClient, EvalRequest, LocalServices
from kerneldyno.rollout.problems import Problem

_GIB = 1024**3
#: Seconds between two readings of the memory in use.
_PERIOD = 0.01


@dataclass
class Peak:
    """Memory in use before a run and at its peak, in bytes."""

    before: int
    most: int = 0

    @property
    def gib(self) -> float:
        """Return the memory in use beyond that at the start, in GiB."""
        return (self.most - self.before) / _GIB


def main() -> int:
    """Measure and print; return exit status 1 if a verdict is not CORRECT."""
    parser = argparse.ArgumentParser(description="Memory and time by the size of a problem's inputs.")
    add = parser.add_argument
    add("problems", nargs="+", type=Path, help="files")
    add("--gib", default="1,4,8,16", help="sizes of the inputs (default: 1,4,8,16)")
    add("--constant", default="batch_size", help="constant that sets the size (default: batch_size)")
    add("--devices", default="auto", help="devices, of which the first is used (default: auto)")
    add("--json", type=Path, help="also write everything to this file")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for path in options.problems:
        for gib in options.gib.split(","):
            try:
                source = sized(path.read_text(), options.constant, float(gib) * _GIB)
            except (ValueError, OSError) as error:
                print(f"{path}, {gib} GiB: {error}", file=sys.stderr)
                return 2
            rows.append(measure(path.stem, float(gib), source, device_list(options.devices)[0]))
            print(_line(rows[-1]) if len(rows) > 1 else f"{rows[0]['environment']}\n\n{_HEAD}\n{_line(rows[0])}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(each["outcome"] == "CORRECT" for each in rows) else 1


def sized(source: str, constant: str, size: float) -> str:
    """Return the problem with the constant changed so that its inputs are nearest to `size` bytes.

    Raises ValueError if the module has no such constant, or its inputs do not grow with it.
    """
    one, two = (_input_bytes(_with(source, constant, value)) for value in (1, 2))
    if one == two:
        raise ValueError(f"the inputs do not grow with {constant}; name another with --constant")
    return _with(source, constant, max(1, round((size - (2 * one - two)) / (two - one))))


def _with(source: str, constant: str, value: int) -> str:
    tree = ast.parse(source)
    found = [
        statement
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        and [target.id for target in statement.targets if isinstance(target, ast.Name)] == [constant]
    ]
    if not found:
        raise ValueError(f"no constant {constant} in the module; name another with --constant")
    for statement in found:
        statement.value = ast.Constant(value)
    return ast.unparse(tree)


def _input_bytes(source: str) -> int:
    """Return the size of the inputs without allocating them."""
    module: dict[str, Any] = {}
    with torch.device("meta"):
        exec(compile(source, "problem", "exec"), module)
        return sum(each.nbytes for each in module["get_inputs"]() if isinstance(each, torch.Tensor))


def measure(name: str, gib: float, source: str, devices: str) -> dict[str, Any]:
    """Judge the problem against itself on a new service."""
    problem = Problem(id=name, reference_code=source)
    request = EvalRequest(
        id=f"{name}-{gib:g}", reference_code=source, kernel_code=renamed(problem), backend="torch", skip_cache=True
    )
    for stage in ("load", "compile", "correctness", "timing"):
        getattr(request.timeouts, f"{stage}_timeout").FromSeconds(300)
    with LocalServices(devices=devices, lanes=1) as services, _peak(_reader(services)) as peak:
        results, _ = asyncio.run(collect(services.address, [request], 1e6, 1))
        services.check()
    result = results[request.id]
    return {
        "problem": name,
        "gib": _input_bytes(source) / _GIB,
        "outcome": outcome_of(result),
        "message": result.message,
        "peak_gib": peak.gib,
        "stages": {stage: sum(spans) for stage, spans in stage_seconds([result]).items()},
        "lease_seconds": result.timing_effort.lease_seconds,
        "call_ms": result.reference_timing.median_seconds * 1e3,
        "environment": environment_of([result]),
    }


def _reader(services: LocalServices) -> Callable[[], int]:
    """Return a function that reads the memory in use, in bytes."""

    async def first() -> tuple[str, str]:
        async with AsyncClient(services.address) as client:
            kind, names, _ = await capacity(client)
            return kind, names[0]

    kind, name = asyncio.run(first())
    if kind != "cuda":
        return lambda: psutil.virtual_memory().used
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(int(name.rpartition(":")[2]))
    return lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


@contextlib.contextmanager
def _peak(read: Callable[[], int]) -> Iterator[Peak]:
    """Record the peak of `read()` until the end of the block."""
    peak, over = Peak(read()), threading.Event()

    def watch() -> None:
        while not over.wait(_PERIOD):
            peak.most = max(peak.most, read())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


_HEAD = (
    "| problem | inputs GiB | peak GiB | outcome | a call ms | preparing s | checking s | held for timing s | all s |\n"
    "| --- |" + " ---: |" * 2 + " --- |" + " ---: |" * 5
)


def _line(row: dict[str, Any]) -> str:
    stages = row["stages"]
    outcome = row["outcome"] if row["outcome"] == "CORRECT" else f"{row['outcome']}: {row['message'][:100]}"
    figures = (
        row["call_ms"],
        stages.get("preparing", math.nan),
        stages.get("checking", math.nan),
        row["lease_seconds"],
        sum(stages.values()),
    )
    return f"| {row['problem']} | {row['gib']:.3g} | {row['peak_gib']:.1f} | {outcome} | " + (
        " | ".join(f"{figure:.2f}" for figure in figures) + " |"
    )


if __name__ == "__main__":
    sys.exit(main())

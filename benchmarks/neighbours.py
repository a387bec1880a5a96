"""Measure whether times that are reported on one GPU change while processes are born on another one of the same host.

    python -m benchmarks.neighbours [--blocks 6] [--per-problem 4] [--at-once 8] [--seed 0] [--json FILE]

One evaluator judges the same correct candidates in each block, on the first GPU only. During every second block other
processes open the last GPU, launch a kernel, and die, as many concurrently as `--at-once` says (benchmarks/births.py).
For each candidate the median of its times (and of its speedups) with them is divided by the median without them. The
ratio of the later blocks without them to the earlier ones shows what differs anyway. Needs two GPUs. Exit status 1 if a
verdict is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import signal
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from benchmarks import batches, births
from benchmarks.service import collect
from benchmarks.throughput import TRIALS
from kerneldyno.client import EvalResult, LocalServices

#: Time limit in seconds for one block, and until processes are born.
_LONGEST = 300.0
_KINDS = ("with", "without")


def main() -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description="Compare times on one GPU with and without births on another one.")
    parser.add_argument(
        "--blocks", type=int, default=6, help="number of blocks, every second one with births (default: 6)"
    )
    parser.add_argument("--per-problem", type=int, default=4, help="candidates of each problem, half of them correct")
    parser.add_argument("--at-once", type=int, default=8, help="concurrent births (default: 8)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write all times to this file")
    parser.add_argument("--births", type=int, metavar="GPU", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.births is not None:
        _keep_bearing(options.births, options.at_once)
    gpus = births.numbers()
    if len(gpus) < 2:
        print("neighbours.py needs two NVIDIA GPUs", file=sys.stderr)
        return 2
    batch = batches.mixed(options.seed, tiny=False, per_problem=options.per_problem)
    right = [row for row in batch if row.right]
    times: dict[str, dict[str, list[float]]] = {kind: defaultdict(list) for kind in _KINDS}
    speedups: dict[str, dict[str, list[float]]] = {kind: defaultdict(list) for kind in _KINDS}
    wrong: list[str] = []
    with LocalServices(devices="cuda:0") as services, _births(len(gpus) - 1, options.at_once) as bear:
        for block in range(options.blocks):
            kind = _KINDS[block % 2 == 0]
            # Another source for each block: a stored verdict would answer for it.
            rows = [replace(row, name=f"{row.name}-{block}", source=f"{row.source}\n# {block}\n") for row in right]
            bear(kind == "with")
            results, seconds = asyncio.run(
                collect(services.address, [row.request(*TRIALS["cuda"]) for row in rows], _LONGEST, 8)
            )
            for row, plain in zip(rows, right, strict=True):
                result = results.get(row.name)
                if result is None or result.outcome != EvalResult.CORRECT:
                    wrong.append(row.mismatch(result) if result else f"{row.name}: no result")
                else:
                    times[kind][plain.name].append(result.candidate_timing.median_seconds)
                    speedups[kind][plain.name].append(result.speedup)
            print(f"block {block + 1}, {kind} births: {len(results)} results in {seconds:.1f} s", flush=True)
    ratios = {
        f"{label}, {name}": values
        for label, seen in (("time", times), ("speedup", speedups))
        for name, values in (
            ("with births / without", _ratios(seen["with"], seen["without"])),
            ("without, second half / first half", _halves(seen["without"])),
        )
    }
    print("\n| ratio of a candidate's medians | candidates | geometric mean | median | least | most |")
    print("| --- |" + " ---: |" * 5)
    for name, values in ratios.items():
        if values:
            mean = math.exp(statistics.fmean(map(math.log, values)))
            cells = (mean, statistics.median(values), min(values), max(values))
            print(f"| {name} | {len(values)} | " + " | ".join(f"{cell:.4f}" for cell in cells) + " |")
    print("\n".join(wrong))
    if options.json:
        options.json.write_text(json.dumps({"times": times, "speedups": speedups, "wrong": wrong}, indent=1) + "\n")
    return bool(wrong)


def _ratios(above: dict[str, list[float]], below: dict[str, list[float]]) -> list[float]:
    return [statistics.median(above[name]) / statistics.median(below[name]) for name in above if below.get(name)]


def _halves(times: dict[str, list[float]]) -> list[float]:
    first = {name: each[: len(each) // 2] for name, each in times.items()}
    return _ratios({name: each[len(each) // 2 :] for name, each in times.items()}, first)


@contextmanager
def _births(gpu: int, at_once: int) -> Iterator[Any]:
    """Provide a function that lets processes be born, or not."""
    command = [sys.executable, "-m", "benchmarks.neighbours", "--births", str(gpu), "--at-once", str(at_once)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            sys.exit(f"no process could be born on GPU {gpu}")
        yield lambda wanted: process.send_signal(signal.SIGCONT if wanted else signal.SIGSTOP)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the ones that it has started as well
        process.wait()


def _keep_bearing(gpu: int, at_once: int) -> NoReturn:
    """Have processes born on a GPU until this one is killed. Say when the first one was."""
    os.environ.update({**births.environment_of(gpu, all_nodes=True), **births.AS_SERVED})
    reading, writing = os.pipe()
    births.resident(gpu)
    for _ in range(at_once):
        _bear(writing)
    told = False
    while True:
        os.wait()
        os.read(reading, births.TOLD.size)
        if not told:
            print("born", flush=True)
        told = True
        _bear(writing)


def _bear(writing: int) -> None:
    if os.fork() == 0:
        births.live(writing)


if __name__ == "__main__":
    sys.exit(main())

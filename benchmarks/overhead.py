"""Measure the cost of judging beyond compiling a candidate and running it once, in seconds and in memory.

    python -m benchmarks.overhead [--seconds 45] [--memory N] [--json FILE] [--plot]

- *Bare*: a new Python process loads the candidate, constructs it, and calls it once, with a cold compile cache. Load
  and first call are unavoidable; importing torch and opening the device is the cost of a process of its own without a
  zygote.
- *Service*: the same candidates one at a time through a warm service over gRPC (`AsyncClient.evaluate_once`): sandboxed
  process, 12 correctness trials, timing, with and without profiling. The first candidate of each problem, for which the
  judge builds and examines the reference, is shown separately. Then a batch with all lanes busy, and candidates with a
  syntax error, for which nothing has to run.
- *Baseline*: a persistent worker (benchmarks/persistent.py), five trials on nominal inputs, no sandbox.

`--memory N` also streams N candidates, and reads the resident memory of each service and the device memory ten times.
On a CPU kernels are interpreted: none is compiled, and calls take most of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

from benchmarks import batches
from benchmarks.persistent import Pool, Task
from benchmarks.service import (
    capacity,
    collect,
    common_options,
    device_list,
    environment_of,
    percentile,
    stage_table,
    write,
)
from benchmarks.throughput import TRIALS
from benchmarks.usage import device_mebibytes, resident_mebibytes
from kerneldyno.client import AsyncClient, EvalRequest, LocalServices

#: Shares of the total time. On a GPU, half of the candidates that are judged one at a time (`single`) are profiled.
_SHARES = {"bare": 0.3, "single": 0.35, "syntax": 0.1, "batch": 0.15, "baseline": 0.1}
_SYNTAX_ERRORS = 20
_PROBLEMS = ("softmax", "gelu", "layer_norm", "matmul")
_SAMPLES = 10

#: Program that prints the seconds of each step. Arguments: the files of candidate and reference, the kind of device.
_BARE = """
import time
begin = time.perf_counter()
import importlib.util, json, sys
import torch, triton
imported = time.perf_counter()
def load(path):
    spec = importlib.util.spec_from_file_location("source", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
device = torch.device(sys.argv[3])
synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
problem = load(sys.argv[2])
inputs = [value.to(device) for value in problem.get_inputs()]
synchronize()
opened = time.perf_counter()
model = load(sys.argv[1]).ModelNew(*problem.get_init_inputs()).to(device)
with torch.no_grad():
    model(*inputs)
synchronize()
ran = time.perf_counter()
print(json.dumps({"import": imported - begin, "open": opened - imported, "compile_and_run": ran - opened}))
"""


def main() -> int:
    """Run the command; return exit status 1 if a verdict is wrong."""
    options = _options()
    with LocalServices(devices=device_list(options.devices)[0], lanes=options.lanes) as services:
        measured = asyncio.run(_measure(services.address, options))
        services.check()
    kind, seconds = measured["kind"], options.seconds
    chosen = _candidates(options.seed, kind)
    measured["bare"] = _bare(chosen, kind, seconds * _SHARES["bare"])
    measured["baseline"] = _baseline(chosen, measured, seconds * _SHARES["baseline"])
    _print(measured)
    write(measured, options, "overhead")
    return 1 if measured["wrong"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what judging costs beyond compiling and running.")
    add = parser.add_argument
    add("--seconds", type=float, default=45.0, help="time for everything without --memory (default: 45)")
    add("--memory", type=int, default=0, metavar="N", help="also judge N candidates and record memory")
    add("--devices", default="auto", help="devices, of which the first is used (default: auto)")
    add("--seed", type=int, default=0)
    add("--quick", action="store_true", help="20 seconds")
    common_options(parser, "overhead")
    options = parser.parse_args()
    if options.quick:
        options.seconds = min(options.seconds, 20.0)
    return options


def _candidates(seed: int, kind: str) -> list[batches.Candidate]:
    """Return correct candidates of a few problems; the problems take turns."""
    made = [candidate for candidate in batches.mixed(seed, tiny=kind == "cpu") if candidate.right]
    of_each = [sorted((row for row in made if row.problem == name), key=lambda row: row.name) for name in _PROBLEMS]
    return [row for rows in zip(*of_each, strict=True) for row in rows]


async def _measure(address: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything that goes through the service."""
    seconds = options.seconds
    async with AsyncClient(address) as client:
        kind, names, lanes = await capacity(client)
        trials = TRIALS[kind]
        wrong: list[str] = []
        first: list[float] = []
        for candidate in _candidates(options.seed + 1, kind)[: len(_PROBLEMS)]:
            first.append((await _time(client, candidate.request(*trials), wrong))[0])
        single: dict[str, list[float]] = {"plain": [], "profiled": []}
        results = []
        begin = time.monotonic()
        for number, candidate in enumerate(_candidates(options.seed, kind)):
            if time.monotonic() - begin > seconds * _SHARES["single"]:
                break
            request = candidate.request(*trials)
            request.enable_profiling = kind != "cpu" and bool(number // len(_PROBLEMS) % 2)
            took, result = await _time(client, request, wrong)
            single["profiled" if request.enable_profiling else "plain"].append(took)
            results.append(result)
        syntax: list[float] = []
        while len(syntax) < _SYNTAX_ERRORS and sum(syntax) < seconds * _SHARES["syntax"]:
            broken = EvalRequest(reference_code=candidate.reference, kernel_code=f"def f(:  # {len(syntax)}")
            syntax.append((await _time(client, broken, None))[0])
    batch = [row.request(*trials) for row in _candidates(options.seed + 2, kind)]
    judged, took = await collect(address, batch, seconds * _SHARES["batch"], lanes)
    wrong += [f"{result.id}: {result.message}" for result in judged.values() if not result.correct]
    return {
        "kind": kind,
        "device": names[0],
        "lanes": lanes,
        "environment": environment_of(results),
        "first_of_problem": first,
        "single": single,
        "stages": stage_table(results),
        "syntax_error": syntax,
        "batch": {"candidates": len(judged), "seconds": took},
        "memory": await _memory(address, options, kind, lanes, wrong),
        "wrong": wrong,
    }


async def _time(client: AsyncClient, request: EvalRequest, wrong: list[str] | None) -> tuple[float, Any]:
    """Return the seconds from request to result; add a result that is not correct to `wrong`, if given."""
    name, request.id = request.id, ""  # the scheduler makes an id: candidates of different seeds have the same names
    request.skip_cache = True
    begin = time.monotonic()
    result = await client.evaluate_once(request)
    took = time.monotonic() - begin
    if wrong is not None and not result.correct:
        wrong.append(f"{name}: {result.message}")
    return took, result


def _bare(chosen: Sequence[batches.Candidate], kind: str, seconds: float) -> list[dict[str, float]]:
    """Run candidates one after another, each in its own process, until the time is over; at least one."""
    found: list[dict[str, float]] = []
    begin = time.monotonic()
    for candidate in chosen:
        if found and time.monotonic() - begin + found[-1]["process"] > seconds:
            break
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / name for name in ("candidate.py", "reference.py")]
            for file, text in zip(files, (candidate.source, candidate.reference), strict=True):
                file.write_text(text)
            environment = {**os.environ, "TRITON_CACHE_DIR": folder}
            if kind == "cpu":
                environment.update(TRITON_INTERPRET="1", OMP_NUM_THREADS="1")
            started = time.monotonic()
            command = [sys.executable, "-c", _BARE, *map(str, files), kind]
            printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
            found.append({**json.loads(printed.splitlines()[-1]), "process": time.monotonic() - started})
    return found


def _baseline(chosen: Sequence[batches.Candidate], measured: dict[str, Any], seconds: float) -> list[float]:
    """Measure the seconds of each candidate in one persistent worker."""
    tasks = [Task(row.name, row.reference, row.source) for row in chosen]
    with Pool(1, [measured["device"]], TRIALS[measured["kind"]][0]) as pool:
        answers, _ = pool.judge(tasks, seconds)
    return [answer["seconds"] for answer in answers.values()]


async def _memory(
    address: str, options: argparse.Namespace, kind: str, lanes: int, wrong: list[str]
) -> list[dict[str, Any]]:
    """Judge `--memory` candidates of all kinds and read memory ten times; add wrong verdicts to `wrong`."""
    if not options.memory:
        return []
    seeds = count(100)
    source = (row for seed in seeds for row in batches.mixed(seed, tiny=kind == "cpu"))
    samples = [{"candidates": 0, "device": device_mebibytes(), **resident_mebibytes()}]
    part = max(1, options.memory // _SAMPLES)
    judged, begin = 0, time.monotonic()
    for done in range(part, options.memory + 1, part):
        rows = [replace(row, name=f"{done}/{row.name}/{number}") for number, row in enumerate(islice(source, part))]
        results, _ = await collect(address, [row.request(*TRIALS[kind]) for row in rows], float("inf"), lanes)
        wrong += [line for row in rows if (line := row.mismatch(results[row.name]))]
        judged += len(results)
        samples.append({"candidates": judged, "device": device_mebibytes(), **resident_mebibytes()})
        print(f"after {time.monotonic() - begin:.0f} s: {samples[-1]}", file=sys.stderr, flush=True)
    return samples


def _print(measured: dict[str, Any]) -> None:
    environment = ", ".join(f"{name} {value}" for name, value in measured["environment"].items())
    print(f"{environment}; {measured['lanes']} lanes\n\n| what | times | median | p95 |\n| --- | ---: | ---: | ---: |")
    bare, single, batch = measured["bare"], measured["single"], measured["batch"]
    rows = [
        ("bare: whole process", [row["process"] for row in bare]),
        ("bare: import of torch and triton", [row["import"] for row in bare]),
        ("bare: device opened, inputs made", [row["open"] for row in bare]),
        ("bare: load, construct, compile, one call", [row["compile_and_run"] for row in bare]),
        ("service: first candidate of a problem", measured["first_of_problem"]),
        ("service: one at a time", single["plain"]),
        ("service: one at a time, profiled", single["profiled"]),
        ("service: a syntax error", measured["syntax_error"]),
        ("baseline: one persistent worker", measured["baseline"]),
    ]
    for name, seconds in rows:
        if seconds:
            print(
                f"| {name} | {len(seconds)} | {_shown(statistics.median(seconds))} | {_shown(percentile(seconds, 95))} |"
            )
    each = batch["seconds"] / max(1, batch["candidates"])
    print(f"| service: all lanes busy, time over candidates | {batch['candidates']} | {_shown(each)} | |")
    needed = statistics.median(row["compile_and_run"] for row in bare)
    if single["plain"]:
        beyond = statistics.median(single["plain"]) - needed
        print(
            f"\nBeyond bare compile and run: {_shown(beyond)} one at a time, {_shown(each - needed)} with all lanes busy."
        )
    print(f"\nOne at a time, by stage:\n\n{measured['stages']}")
    if memory := measured["memory"]:
        kinds = [name for name in memory[0] if name != "candidates"]
        print(f"\n| MiB after candidates | {' | '.join(kinds)} |\n| ---: |{' ---: |' * len(kinds)}")
        for row in memory:
            shown = ["-" if row.get(name) is None else f"{row[name]:.0f}" for name in kinds]
            print(f"| {row['candidates']} | {' | '.join(shown)} |")
    for line in measured["wrong"]:
        print(f"WRONG {line}", file=sys.stderr)


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if abs(seconds) < 1 else f"{seconds:.2f} s"


if __name__ == "__main__":
    sys.exit(main())

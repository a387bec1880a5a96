"""Inspect right candidates with Nsight Compute and compute-sanitizer: what it costs, and what the tools say.

    python -m benchmarks.inspection [NAME...] [--requests FILE] [--limit N] [--only TOOL] [--by-hand] [--json FILE]

The candidates are those of `corpus/honest`, or the requests (one JSON object in each line) of a file. Each is judged with
counters and with all four tools of compute-sanitizer, and errors of memory are only labels. Every report about an honest
candidate is a false one, or a mistake that nobody knew of. With `--by-hand` the kernels of each candidate are also observed
by Nsight Compute in a program that imports the candidate, without the service; both are printed side by side.

Exit status 1 if a candidate is not CORRECT, or if one has an error of memory. It needs a GPU and both tools.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.service import capacity, collect, common_options, device_list, environment_of, outcome_of, write
from kerneldyno.cli import corpus
from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, LocalServices
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.v1 import evaluation_pb2 as pb

#: What is compared with Nsight Compute by hand: the field, the metric, and the factor to the field's unit.
_COMPARED = {
    "duration_seconds": ("gpu__time_duration.sum", 1e-9),
    "dram_throughput": ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 0.01),
    "sm_throughput": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", 0.01),
    "achieved_occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active", 0.01),
    "registers": ("launch__registers_per_thread", 1),
}
#: Imports a problem and its candidate, calls the candidate once, and once more while the tool watches.
_PROGRAM = """
import runpy, sys, torch
torch.manual_seed(0)
problem = runpy.run_path("reference.py")
import candidate
torch.set_default_device("cuda")
make = problem.get("get_init_inputs", lambda: [])()
positional, named = make if len(make) == 2 and isinstance(make[1], dict) else (make, {})
call = candidate.ModelNew(*positional, **named)
inputs = [each.cuda() if isinstance(each, torch.Tensor) else each for each in problem["get_inputs"]()]
with torch.no_grad():
    call(*inputs)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    call(*inputs)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()
"""
_BY_HAND_SECONDS = 60


def main() -> int:
    """Run the command; return the exit status."""
    options = _options()
    with LocalServices(devices=device_list(options.devices)[0], lanes=options.lanes) as services:
        measured, results = asyncio.run(_measure(services, options))
        services.check()
    _print(measured)
    if options.by_hand:
        measured["by_hand"] = _compare(options, results)
    write(measured, options, "inspection")
    return 1 if measured["shortfalls"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Inspect right candidates: what it costs, and what the tools say.")
    add = parser.add_argument
    add("names", nargs="*", help="candidates of corpus/honest (default: all)")
    add("--requests", type=Path, help="a file of requests in place of the corpus")
    add("--limit", type=int, default=1000, help="at most so many candidates")
    add("--seconds", type=float, default=1e6, help="send nothing after this time, in seconds")
    add("--devices", default="auto", help="devices, of which the first is used (default: auto)")
    add("--only", choices=("counters", "sanitizer"), help="leave out the other tool")
    add("--by-hand", action="store_true", help="compare with Nsight Compute without the service")
    common_options(parser, "inspection")
    return parser.parse_args()


def _chosen(options: argparse.Namespace, kind: str) -> Iterator[EvalRequest]:
    if options.requests:
        found = (request_from_json(json.loads(line)) for line in options.requests.read_text().splitlines() if line)
    else:
        entries = (
            entry for entry in corpus.entries(corpus.find() / "honest") if entry.backend in ("triton", "cuda", "torch")
        )
        found = (
            corpus.request(entry, kind, id=entry.name)
            for entry in entries
            if entry.runs_on(kind, {"triton", "cuda", "torch"})
        )
    wanted = (request for request in found if not options.names or request.id in options.names)
    for number, request in enumerate(wanted):
        if number == options.limit:
            return
        if options.only != "sanitizer":
            request.profile_level = pb.PROFILE_LEVEL_COUNTERS
            request.ClearField("enable_profiling")
        if options.only != "counters":
            request.sanitize = pb.SANITIZE_ALL
        request.memory_errors = pb.MEMORY_ERRORS_LABEL
        request.skip_cache = True
        yield request


async def _measure(
    services: LocalServices, options: argparse.Namespace
) -> tuple[dict[str, Any], dict[str, EvalResult]]:
    async with AsyncClient(services.address) as client:
        kind, names, lanes = await capacity(client)
    results, seconds = await collect(services.address, _chosen(options, kind), options.seconds, lanes, _tell)
    rows = [_row(name, result) for name, result in sorted(results.items())]
    measured = {
        "device": names[0],
        "lanes": lanes,
        "environment": environment_of(results.values()),
        "seconds": seconds,
        "rows": rows,
        "shortfalls": [row["candidate"] for row in rows if row["outcome"] != "CORRECT" or row["reports"]],
    }
    return measured, results


def _tell(result: EvalResult) -> None:
    """Say that a candidate is done: each takes half a minute."""
    tools = ", ".join(f"{run.tool} {run.seconds:.0f} s{'' if run.finished else '!'}" for run in result.sanitizer.runs)
    said = f"{result.id}: {outcome_of(result)}; counters {result.counters.seconds:.0f} s; {tools}"
    print(f"{time.strftime('%X')} {said}", file=sys.stderr)


def _row(name: str, result: EvalResult) -> dict[str, Any]:
    """Return what came of one candidate."""
    stages = {span.stage: span.duration.ToNanoseconds() / 1e9 for span in result.stages}
    return {
        "candidate": name,
        "outcome": outcome_of(result),
        "message": result.message,
        "findings": [found.id for found in result.findings],
        "deterministic": result.correctness.deterministic if result.correctness.HasField("deterministic") else None,
        "counters": result.counters.seconds,
        "kernels": len(result.counters.kernels),
        "unavailable": result.counters.unavailable,
        "tools": {run.tool: run.seconds for run in result.sanitizer.runs},
        "unfinished": {run.tool: run.detail for run in result.sanitizer.runs if not run.finished},
        "reports": [
            f"{run.tool}: {error.what} in {error.kernel} at {error.file}:{error.line}, {error.count} times"
            for run in result.sanitizer.runs
            for error in run.reports
        ],
        "seconds": sum(stages.values()),
        "code": [
            [code.name, code.registers, code.spill_bytes, code.shared_memory_bytes] for code in result.kernel_code
        ],
        "energy": [result.energy.joules_per_call, result.reference_energy.joules_per_call],
    }


def _compare(options: argparse.Namespace, results: dict[str, EvalResult]) -> list[dict[str, Any]]:
    """Print, and return, each kernel's counters from the service and by hand."""
    print("\n| candidate | kernel | " + " | ".join(f"{field}: service, by hand" for field in _COMPARED) + " |")
    print("| --- | --- |" + " ---: |" * len(_COMPARED))
    rows = []
    for request in _chosen(options, "cuda"):
        for row in _beside(request, results[request.id]) if request.id in results else ():
            pairs = " | ".join(f"{row[field][0]:.4g}, {row[field][1]:.4g}" for field in _COMPARED)
            print(f"| {row['candidate']} | {row['kernel']} | {pairs} |", flush=True)
            rows.append(row)
    return rows


def _beside(request: EvalRequest, result: EvalResult) -> list[dict[str, Any]]:
    """Return rows of each kernel's counters, from the service and by hand."""
    by_hand = _observe(request)
    found = []
    for kernel in result.counters.kernels:
        rows = by_hand.get(kernel.name.partition("(")[0], [])
        if rows and kernel.owner == pb.KernelUse.OWNER_CANDIDATE:
            other = rows.pop(0)
            pairs = {
                field: [getattr(kernel, field), other[metric] * factor] for field, (metric, factor) in _COMPARED.items()
            }
            found.append({"candidate": request.id, "kernel": kernel.name[:60], **pairs})
    return found


def _observe(request: EvalRequest) -> dict[str, list[dict[str, float]]]:
    """Observe a candidate by hand; return its launches by name of the kernel, each with its metrics."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "reference.py").write_text(request.reference_code)
        (place / "candidate.py").write_text(request.kernel_code)
        for file in request.kernel_files:
            (place / file.path).parent.mkdir(parents=True, exist_ok=True)
            (place / file.path).write_text(file.content)
        (place / "program.py").write_text(_PROGRAM)
        metrics = ",".join(metric for metric, _ in _COMPARED.values())
        command = ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--csv", "--page", "raw"]
        command += ["--target-processes", "application-only"]
        command += [
            "--print-units",
            "base",
            "--metrics",
            metrics,
            "--log-file",
            "table.csv",
            sys.executable,
            "program.py",
        ]
        try:
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=_BY_HAND_SECONDS)
            failed = done.stderr[-500:] if done.returncode else ""
        except subprocess.TimeoutExpired:
            failed = f"longer than {_BY_HAND_SECONDS} s"
        if failed:
            print(f"{request.id}: by hand: {failed}", file=sys.stderr)
        return _launches((place / "table.csv").read_text() if (place / "table.csv").exists() else "")


def _launches(page: str) -> dict[str, list[dict[str, float]]]:
    table = [line for line in csv.reader(io.StringIO(page)) if len(line) > len(_COMPARED)]
    found: dict[str, list[dict[str, float]]] = {}
    for line in table[2:]:
        row = dict(zip(table[0], line, strict=True))
        numbers = {metric: float(row[metric].replace(",", "")) for metric, _ in _COMPARED.values()}
        found.setdefault(row["Kernel Name"].partition("(")[0], []).append(numbers)
    return found


def _print(measured: dict[str, Any]) -> None:
    rows = measured["rows"]
    environment = ", ".join(f"{name} {value}" for name, value in measured["environment"].items())
    print(f"{environment}; {measured['lanes']} lanes; {len(rows)} candidates in {measured['seconds']:.0f} s\n")
    tools = ("memcheck", "racecheck", "initcheck", "synccheck")
    print(f"| candidate | outcome | counters s, kernels | {' s | '.join(tools)} s | notes |")
    print("| --- | --- | ---: |" + " ---: |" * len(tools) + " --- |")
    for row in rows:
        notes = "; ".join([*row["reports"], *(f"{tool}: {why}" for tool, why in row["unfinished"].items())])
        notes = notes or row["unavailable"] or (row["message"] if row["outcome"] != "CORRECT" else "")
        times = " | ".join(f"{row['tools'].get(tool, 0):.1f}" for tool in tools)
        print(
            f"| {row['candidate']} | {row['outcome']} | {row['counters']:.1f}, {row['kernels']} | {times} | {notes[:300]} |"
        )
    medians = {tool: statistics.median(row["tools"].get(tool, 0) for row in rows) for tool in tools}
    print(f"\nmedian seconds: counters {statistics.median(row['counters'] for row in rows):.1f}, {medians}")
    print(f"with an error of memory or not CORRECT: {', '.join(measured['shortfalls']) or 'none'}")


if __name__ == "__main__":
    sys.exit(main())

"""Measure how accurate the reported times are: twins, spins of known duration, and repeated runs of one kernel.

    python -m benchmarks.accuracy [--trials 20] [--seconds 90] [--graphs] [--json FILE] [--plot]

All measurements use real services over gRPC, with each candidate in its own process (sources: benchmarks/kernels.py):

- *Twins*: the candidate is the reference, so every speedup other than 1 is an error, by device time and by end-to-end
  time. The table has the shares within 1 % and 3 %, and the false wins and losses: results whose whole 95 % interval is
  above or below 1. 2.5 % of each are expected.
- *Spins*: a kernel waits for a set time by the device's own clock. A spin of 0 shows the fixed cost, for example of the
  launch. The error of a longer spin is its measured time minus the fixed cost and the set time; it should be within 1
  us or 2 %, whichever is more. This tests scale and linearity of the clock. Nobody knows which part of a kernel's time
  is fixed cost. (%globaltimer moves in steps of 32 ns to 1 us, depending on the GPU model.)
- *Repeatability*: the spread of one candidate's median over processes, and how often an interval contains the median
  speedup of the others.
- *Company*: medians while all lanes are busy, compared with medians while nothing else runs.

The baseline is one persistent worker (benchmarks/persistent.py) with exclusive use of the device. It has no intervals;
its means are compared directly. It times the reference after the candidate, and gives each of them one list of inputs.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from benchmarks import kernels
from benchmarks.persistent import Pool, Task
from benchmarks.service import capacity, collect, common_options, device_list, environment_of, outcome_of, write
from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, LocalServices
from kerneldyno.v1.evaluation_pb2 import LAUNCH_MODE_CUDA_GRAPH, LAUNCH_MODE_EAGER, LaunchMode, TimingStats

#: Shares of the total time: all lanes busy, one at a time, the baseline.
_SHARES = (0.55, 0.25, 0.2)
_LONG_SECONDS = 200e-6
_WITHIN = ((50e-6, 0.01), (5e-6, 0.03))
_SPIN_SLACK = (1e-6, 0.02)


def main() -> int:
    """Run the command; return exit status 1 if a candidate was not called correct."""
    options = _options()
    with LocalServices(devices=device_list(options.devices)[0], lanes=options.lanes) as services:
        measured = asyncio.run(_measure(services, options))
        services.check()
    measured["baseline"] = _baseline(measured, options)
    measured["spins"] = {name: spin_errors(measured[name], measured["kind"]) for name in ("busy", "baseline")}
    _print(measured)
    write(measured, options, "accuracy")
    return 1 if measured["not_correct"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how accurate the reported times are.")
    add = parser.add_argument
    add(
        "--trials",
        type=int,
        default=20,
        help="trials of each twin, and a third as many of each spin (default: 20)",
    )
    add("--seconds", type=float, default=90.0, help="time for all measurements; the rest is left out (default: 90)")
    add("--devices", default="auto", help="devices, of which the first is used (default: auto)")
    add("--quick", action="store_true", help="3 trials and 30 seconds")
    add(
        "--graphs",
        dest="launch_mode",
        action="store_const",
        const=LAUNCH_MODE_CUDA_GRAPH,
        default=LAUNCH_MODE_EAGER,
        help="reference and candidate as CUDA graphs",
    )
    common_options(parser, "accuracy")
    options = parser.parse_args()
    if options.quick:
        options.trials, options.seconds = min(options.trials, 3), min(options.seconds, 30.0)
    return options


async def _measure(services: LocalServices, options: argparse.Namespace) -> dict[str, Any]:
    """Judge all requests with all lanes busy; then, as far as the time allows, one request of each kernel at a time."""
    async with AsyncClient(services.address) as client:
        kind, names, lanes = await capacity(client)
    all_of_it = _requests(kind, options.trials, options.launch_mode)
    busy, busy_seconds = await collect(services.address, all_of_it, options.seconds * _SHARES[0], lanes)
    alone: dict[str, EvalResult] = {}
    async with AsyncClient(services.address) as client:
        loop = asyncio.get_running_loop()
        end = loop.time() + options.seconds * _SHARES[1]
        for request in _requests(kind, 1, options.launch_mode):
            request.salt = "alone"
            if loop.time() < end:
                alone[request.id] = await client.evaluate_once(request)
    results = [*busy.values(), *alone.values()]
    return {
        "kind": kind,
        "device": names[0],
        "lanes": lanes,
        "environment": environment_of(results),
        "busy_seconds": busy_seconds,
        "busy": _rows(busy),
        "alone": _rows(alone),
        "of": len(all_of_it),
        "not_correct": [
            f"{result.id}: {outcome_of(result)}: {result.message}" for result in results if not result.correct
        ],
    }


def _requests(kind: str, trials: int, mode: LaunchMode.ValueType) -> list[EvalRequest]:
    """Make `trials` requests of each twin and of the ratio, and a third as many of each spin, in turn."""
    spins = max(1, math.ceil(trials / 3))
    counted = [(known, trials) for known in [*kernels.twins(kind), kernels.ratio(kind)]]
    counted += [(known, spins) for known in kernels.spins(kind)]
    return [
        EvalRequest(
            id=f"{known.name}/{number}",
            reference_code=known.reference,
            kernel_code=known.candidate,
            backend=known.backend,
            num_perf_trials=20 if kind == "cpu" else 30 if known.seconds > _LONG_SECONDS else 100,
            launch_mode=mode,
            salt=str(number),
            skip_cache=True,
        )
        for number in range(trials)
        for known, count in counted
        if number < count
    ]


def _rows(results: dict[str, EvalResult]) -> dict[str, list[dict[str, Any]]]:
    """Return the measurements by kernel, without candidates that were not timed."""
    rows = defaultdict(list)
    for name, result in sorted(results.items()):
        if result.HasField("candidate_timing"):
            rows[name.partition("/")[0]].append(
                {
                    "seconds": result.candidate_timing.median_seconds,
                    "judge_seconds": result.candidate_timing.judge_seconds,
                    "pace_seconds": result.candidate_timing.pace_seconds,
                    "by_judge": result.candidate_timing.clock == TimingStats.CLOCK_JUDGE,
                    "speedup": result.speedup,
                    "low": result.speedup_interval.low,
                    "high": result.speedup_interval.high,
                    "end_to_end": {
                        "seconds": result.candidate_end_to_end.median_seconds,
                        "speedup": result.end_to_end_speedup,
                        "low": result.end_to_end_speedup_interval.low,
                        "high": result.end_to_end_speedup_interval.high,
                    },
                    "findings": [finding.id for finding in result.findings],
                }
            )
    return dict(rows)


def _baseline(measured: dict[str, Any], options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Judge the same requests in the same order with a persistent worker, until the time is over."""
    requests = _requests(measured["kind"], options.trials, LAUNCH_MODE_EAGER)
    tasks = [Task(request.id, request.reference_code, request.kernel_code, request.backend) for request in requests]
    with Pool(1, [measured["device"]], 20 if measured["kind"] == "cpu" else 100) as pool:
        answers, _ = pool.judge(tasks, options.seconds * _SHARES[2])
    rows = defaultdict(list)
    for name, answer in answers.items():
        if answer["correct"]:
            rows[name.partition("/")[0]].append({"seconds": answer["median_seconds"], "speedup": answer["speedup"]})
        else:
            print(f"baseline: {name}: {answer['message'][:200]}", file=sys.stderr)
    return dict(rows)


def summary_of_twins(rows: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Compute shares and counts over results of twins; wins and losses only if the results have intervals."""
    rows = list(rows)
    found: dict[str, float] = {"count": len(rows)}
    for least, share in _WITHIN:
        long_enough = [row["speedup"] for row in rows if row["seconds"] >= least]
        found[f"from_{least * 1e6:.0f}us"] = len(long_enough)
        found[f"within_{share * 100:.0f}_percent"] = sum(abs(ratio - 1) <= share for ratio in long_enough)
    if rows and "low" in rows[0]:
        found["wins"] = sum(row["low"] > 1 for row in rows)
        found["losses"] = sum(row["high"] < 1 for row in rows)
        found["wins_beyond_1_percent"] = sum(row["low"] > 1.01 for row in rows)
    return found


def spin_errors(rows: dict[str, list[dict[str, Any]]], kind: str) -> list[dict[str, float]]:
    """Return the error of each spin: its median minus the median of a spin of 0 and minus its set time.

    The list is empty if there is no spin of 0.
    """
    known = {spin.name: spin.seconds for spin in kernels.spins(kind)}
    medians = {name: statistics.median(row["seconds"] for row in rows[name]) for name in known if rows.get(name)}
    if (fixed := medians.pop("spin-0us", None)) is None:
        return []
    return [
        {
            "set": known[name],
            "measured": median,
            "error": median - fixed - known[name],
            "allowed": max(_SPIN_SLACK[0], _SPIN_SLACK[1] * known[name]),
            "fixed": fixed,
        }
        for name, median in medians.items()
    ]


def repeatability(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Compute the relative spread of the processes' medians; count the intervals that contain the others' median."""
    seconds = [row["seconds"] for row in rows]
    middle = statistics.median(seconds)
    covered = 0
    for number, row in enumerate(rows):
        others = [other["speedup"] for index, other in enumerate(rows) if index != number]
        covered += bool(others) and row["low"] <= statistics.median(others) <= row["high"]
    return {
        "count": len(rows),
        "median": middle,
        "deviation": statistics.pstdev(seconds) / middle,
        "spread": (max(seconds) - min(seconds)) / middle,
        "covered": covered,
    }


def _print(measured: dict[str, Any]) -> None:
    busy, alone, base = measured["busy"], measured["alone"], measured["baseline"]
    done = sum(map(len, busy.values()))
    environment = ", ".join(f"{name} {value}" for name, value in measured["environment"].items())
    print(f"{environment}; {measured['lanes']} lanes; {done} of {measured['of']} in {measured['busy_seconds']:.0f} s\n")
    _print_twins(busy, base)
    print("\n| spin us | measured us | error us | allowed us | within | baseline error us |\n|" + " ---: |" * 6)
    theirs = {row["set"]: row for row in measured["spins"]["baseline"]}
    spins = measured["spins"]["busy"]
    for row in spins:
        numbers = [f"{row[name] * 1e6:.2f}" for name in ("measured", "error", "allowed")]
        other = f"{theirs[row['set']]['error'] * 1e6:.2f}" if row["set"] in theirs else "-"
        within = "yes" if abs(row["error"]) <= row["allowed"] else "NO"
        print(f"| {row['set'] * 1e6:.0f} | {' | '.join(numbers)} | {within} | {other} |")
    if spins:
        print(f"\nA spin of 0 takes {spins[0]['fixed'] * 1e6:.2f} us; that is taken off the others.")
    print(
        "\n| kernel | processes | median us | deviation | max - min | intervals covering others | baseline max - min |"
    )
    print("| --- |" + " ---: |" * 6)
    for name, rows in busy.items():
        if len(rows) > 1:
            seen = repeatability(rows)
            other = f"{repeatability_spread(base[name]):.2%}" if len(base.get(name, ())) > 1 else "-"
            print(
                f"| {name} | {seen['count']} | {seen['median'] * 1e6:.2f} | {seen['deviation']:.2%} | {seen['spread']:.2%}"
                f" | {seen['covered']} | {other} |"
            )
    print("\n| kernel | all lanes busy us | alone us | busy over alone |\n| --- | ---: | ---: | ---: |")
    for name in filter(alone.get, busy):
        pair = [statistics.median(row["seconds"] for row in rows[name]) for rows in (busy, alone)]
        print(f"| {name} | {pair[0] * 1e6:.2f} | {pair[1] * 1e6:.2f} | {pair[0] / pair[1]:.3f} |")
    for line in measured["not_correct"]:
        print(f"NOT CORRECT {line}", file=sys.stderr)


def _print_twins(busy: dict[str, list[dict[str, Any]]], base: dict[str, list[dict[str, Any]]]) -> None:
    names = [name for name in busy if not name.startswith(("spin", "ratio"))]
    print(
        "| twin | trials | us | speedup: median, least, most | wins, losses | judge's clock"
        " | end to end: us | speedup: median, least, most | wins, losses | baseline: least, most |"
    )
    print("| --- |" + " ---: |" * 9)
    for name in names:
        rows = busy[name]
        others = [row["speedup"] for row in base.get(name, ())]
        print(
            f"| {name} | {len(rows)} | {_cells_of_twins(rows)} | {sum(row['by_judge'] for row in rows)}"
            f" | {_cells_of_twins(row['end_to_end'] for row in rows)}"
            f" | {f'{min(others):.4f}, {max(others):.4f}' if others else '-'} |"
        )
    twins = [row for name in names for row in busy.get(name, [])]
    for label, rows in (
        ("service, device time", twins),
        ("service, end-to-end time", [row["end_to_end"] for row in twins]),
        ("baseline", [row for name in names for row in base.get(name, [])]),
    ):
        seen = summary_of_twins(rows)
        print(f"\n{label}, all twins: " + ", ".join(f"{name} {value}" for name, value in seen.items()))


def _cells_of_twins(rows: Iterable[dict[str, Any]]) -> str:
    rows = list(rows)
    ratios, seen = [row["speedup"] for row in rows], summary_of_twins(rows)
    return (
        f"{statistics.median(row['seconds'] for row in rows) * 1e6:.1f}"
        f" | {statistics.median(ratios):.4f}, {min(ratios):.4f}, {max(ratios):.4f} | {seen['wins']}, {seen['losses']}"
    )


def repeatability_spread(rows: list[dict[str, Any]]) -> float:
    """Compute (largest - smallest median) / their median."""
    seconds: list[float] = [row["seconds"] for row in rows]
    return (max(seconds) - min(seconds)) / statistics.median(seconds)


if __name__ == "__main__":
    sys.exit(main())

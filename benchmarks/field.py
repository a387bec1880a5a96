"""Judge problems against themselves (A/A), so that every ratio other than 1 is an error of the service.

    python -m benchmarks.field [FILE or FOLDER ...] [--lanes N] [--repeat N] [--typical 0.01] [--most 0.03] [--json
    FILE]

Each file is a problem in KernelBench's form; its class Model, renamed ModelNew, is the candidate (backend torch).
Without files it uses benchmarks/field_problems: networks of many small kernels, layers in training mode, recurrent
ones, attention, convolutions, calls that wait for the device, and calls whose host or device side takes ten times as
long as the other. It prints both speedups with their intervals, both times, how calls reached the device, and how long
the device was held.

Exit status 1 if less than 98 % of the ratios are within `--typical` of 1, one is not within `--most`, less than 95 % of
the intervals contain 1, a device was held for longer than allowed, or a problem was not judged CORRECT. Problems whose
outcome is REFERENCE_ERROR, PROBLEM_TOO_LARGE or INFRASTRUCTURE_ERROR are listed and do not count as ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from benchmarks.service import capacity, collect, common_options, device_list, environment_of, outcome_of, write
from kerneldyno.cli.suite_folders import Entry, find_problems, renamed
from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, LocalServices
from kerneldyno.rollout.problems import ProblemError
from kerneldyno.v1.evaluation_pb2 import TimingStats, Tolerance

OWN = Path(__file__).parent / "field_problems"
#: Required share of ratios within the typical bound, and of intervals that cover 1.
_TYPICAL_SHARE, _COVERED_SHARE = 0.98, 0.95
#: Problems with calls below _SLOW_SECONDS may hold the device for _LEASE_SECONDS. Others may hold it for
#: _SLOW_LEASE_SECONDS, or for 1.2 times _SLOW_CALLS calls if that takes longer.
_SLOW_SECONDS, _LEASE_SECONDS, _SLOW_LEASE_SECONDS, _SLOW_CALLS = 0.1, 2.0, 5.0, 10
_TIMES = {"device": "speedup", "end to end": "end_to_end_speedup"}


def main() -> int:
    """Run the command; return exit status 1 if a requirement is not met."""
    options = _options()
    try:
        problems = find_problems(options.problems or [OWN])
    except ProblemError as error:
        print(error, file=sys.stderr)
        return 2
    with LocalServices(devices=device_list(options.devices)[0], lanes=options.lanes) as services:
        measured = asyncio.run(_measure(services, problems, options))
        services.check()
    _print(measured)
    failures = shortfalls(measured["rows"], options.typical, options.most)
    measured["shortfalls"] = failures
    write(measured, options, "field")
    for failure in failures:
        print(f"SHORT: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Judge problems against themselves: every ratio but 1 is an error.")
    add = parser.add_argument
    add("problems", nargs="*", type=Path, help="files or folders (default: benchmarks/field_problems)")
    add("--repeat", type=int, default=1, help="how often to send each problem (default: 1)")
    add("--seconds", type=float, default=1e6, help="send nothing after this time, in seconds")
    add("--typical", type=float, default=0.01, help="98 %% of the ratios are within this of 1 (default: 0.01)")
    add("--most", type=float, default=0.03, help="all ratios are within this of 1 (default: 0.03)")
    add("--trials", type=int, default=100, help="largest number of timed calls (default: 100)")
    add("--precision", type=float, default=0.01, help="width of the intervals at which timing stops (default: 0.01)")
    add("--devices", default="auto", help="devices, of which the first is used (default: auto)")
    add(
        "--full",
        action="store_true",
        help="check outputs as by default; else one trial and allclose, which takes less time and memory",
    )
    common_options(parser, "field")
    return parser.parse_args()


def request_for(entry: Entry, number: int, options: argparse.Namespace) -> EvalRequest:
    """Return a request in which a problem is its own candidate."""
    request = EvalRequest(
        id=f"{entry.name}#{number}",
        reference_code=entry.problem.reference_code,
        kernel_code=renamed(entry.problem),
        backend="torch",
        num_perf_trials=options.trials,
        timing_precision=options.precision,
        salt=f"aa-{number}",
        skip_cache=True,
    )
    if not options.full:
        request.num_correct_trials = 1
        request.tolerance.CopyFrom(Tolerance(preset=Tolerance.PRESET_LOOSE))
        request.stress_inputs = False
    for stage in ("load", "compile", "correctness", "timing"):
        getattr(request.timeouts, f"{stage}_timeout").FromSeconds(300)
    return request


async def _measure(services: LocalServices, problems: list[Entry], options: argparse.Namespace) -> dict[str, Any]:
    async with AsyncClient(services.address) as client:
        _, names, lanes = await capacity(client)
    requests = [request_for(entry, number, options) for number in range(options.repeat) for entry in problems]
    results, seconds = await collect(services.address, requests, options.seconds, lanes)
    return {
        "device": names[0],
        "lanes": lanes,
        "environment": environment_of(results.values()),
        "seconds": seconds,
        "rows": [row(name, result) for name, result in sorted(results.items())],
    }


def row(name: str, result: EvalResult) -> dict[str, Any]:
    """Return the printed fields of one result."""
    found: dict[str, Any] = {
        "problem": name,
        "outcome": outcome_of(result),
        "message": result.message,
        "findings": [finding.id for finding in result.findings],
        "stages": {span.stage: span.duration.ToNanoseconds() / 1e9 for span in result.stages},
    }
    if not result.HasField("reference_timing"):
        return found
    for time, field in _TIMES.items():
        interval = getattr(result, f"{field}_interval")
        found[time] = {"ratio": getattr(result, field), "low": interval.low, "high": interval.high}
    for side in ("candidate", "reference"):
        device, end_to_end = getattr(result, f"{side}_timing"), getattr(result, f"{side}_end_to_end")
        found[side] = {
            "device_seconds": device.median_seconds,
            "judge_seconds": device.judge_seconds,
            "end_to_end_seconds": end_to_end.median_seconds,
            "launch_seconds": device.launch_seconds,
            "pace_seconds": device.pace_seconds,
            "clock": TimingStats.Clock.Name(device.clock),
        }
    found["regime"] = TimingStats.Regime.Name(result.candidate_timing.regime)
    effort = result.timing_effort
    found["lease_seconds"], found["rounds"] = effort.lease_seconds, effort.rounds
    found["calls"] = effort.candidate_calls + effort.reference_calls
    return found


def shortfalls(rows: list[dict[str, Any]], typical: float, most: float) -> list[str]:
    """Return a sentence for each requirement that is not met."""
    found = []
    timed = [each for each in rows if "regime" in each]
    excused = {"REFERENCE_ERROR", "PROBLEM_TOO_LARGE", "INFRASTRUCTURE_ERROR"}
    found += [
        f"{each['problem']}: {each['outcome']}: {each['message'][:200]}"
        for each in rows
        if each["outcome"] != "CORRECT" and each["outcome"] not in excused
    ]
    if not timed:
        return [*found, "nothing was timed"]
    for time in _TIMES:
        errors = [(each["problem"], abs(each[time]["ratio"] - 1)) for each in timed]
        near = sum(error <= typical for _, error in errors)
        if near < _TYPICAL_SHARE * len(errors):
            found.append(f"{time}: {near} of {len(errors)} ratios within 1 +- {typical}")
        found += [
            f"{time}: {name}: {error:.4f} away from 1, more than {most}" for name, error in errors if error > most
        ]
        covered = sum(each[time]["low"] <= 1 <= each[time]["high"] for each in timed)
        if covered < _COVERED_SHARE * len(timed):
            found.append(f"{time}: {covered} of {len(timed)} intervals cover 1")
    found += [
        f"{each['problem']}: held the device for {each['lease_seconds']:.2f} s, {each['calls']} calls"
        for each in timed
        if each["lease_seconds"] > _allowed(each)
    ]
    return found


def _allowed(found: dict[str, Any]) -> float:
    """Return how long the device may be held for one problem, in seconds."""
    call: float = max(found[side]["end_to_end_seconds"] for side in ("candidate", "reference"))
    if call < _SLOW_SECONDS:
        return _LEASE_SECONDS
    return max(_SLOW_LEASE_SECONDS, 1.2 * _SLOW_CALLS * call)


def _print(measured: dict[str, Any]) -> None:
    rows = measured["rows"]
    timed = [each for each in rows if "regime" in each]
    environment = ", ".join(f"{name} {value}" for name, value in measured["environment"].items())
    print(f"{environment}; {measured['lanes']} lanes; {len(rows)} evaluations in {measured['seconds']:.0f} s\n")
    print(
        "| problem | speedup [interval] | end-to-end speedup [interval] | candidate ms: device, end to end |"
        " reference ms: device, end to end | regime | rounds | lease s | notes |"
    )
    print("| --- |" + " ---: |" * 4 + " --- |" + " ---: |" * 2 + " --- |")
    for each in rows:
        if "regime" not in each:
            print(f"| {each['problem']} | - | - | - | - | {each['outcome']} | - | - | {each['message'][:120]} |")
            continue
        ratios = [f"{each[time]['ratio']:.4f} [{each[time]['low']:.4f}, {each[time]['high']:.4f}]" for time in _TIMES]
        times = [
            f"{each[side]['device_seconds'] * 1e3:.4f}, {each[side]['end_to_end_seconds'] * 1e3:.4f}"
            for side in ("candidate", "reference")
        ]
        regime = each["regime"].removeprefix("REGIME_").lower().replace("_", " ")
        notes = " ".join([*each["findings"], *({"judge's clock"} if "JUDGE" in each["candidate"]["clock"] else ())])
        print(
            f"| {each['problem']} | {' | '.join([*ratios, *times])} | {regime} | {each['rounds']}"
            f" | {each['lease_seconds']:.2f} | {notes} |"
        )
    print()
    for time in _TIMES:
        errors = sorted(abs(each[time]["ratio"] - 1) for each in timed)
        within = {bound: sum(error <= bound for error in errors) for bound in (0.005, 0.01, 0.03, 0.05)}
        covered = sum(each[time]["low"] <= 1 <= each[time]["high"] for each in timed)
        text = ", ".join(f"{count} within {bound:.1%}" for bound, count in within.items())
        print(f"{time}: {len(timed)} ratios, {text}, worst {max(errors, default=0):.2%}; {covered} intervals cover 1")
    if timed:
        leases = sorted(each["lease_seconds"] for each in timed)
        print(f"leases: median {leases[len(leases) // 2]:.2f} s, longest {leases[-1]:.2f} s")


if __name__ == "__main__":
    sys.exit(main())

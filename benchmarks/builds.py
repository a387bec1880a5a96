"""Measure CUDA C++ candidates: builds, candidates a minute, and what they cost Triton candidates beside them.

    python -m benchmarks.builds MATERIAL.json [--count 64] [--triton 128] [--lanes 8] [--baseline 8] [--json FILE]

MATERIAL.json is a list of objects with `name`, `reference` and `candidate` (sources in KernelBench's form), and perhaps
`right` (true: must be CORRECT). docs/benchmarks.md says which public material was used; none of it is in this
repository. The parts, each with services and a build cache of its own:

1. one candidate alone, from the call to its verdict, and the same work again, with a stored library;
2. all candidates at once: candidates a minute, outcomes, the steps of the builds;
3. Triton candidates (benchmarks/batches.py) alone, and then together with CUDA candidates, in turns;
4. the baseline: some of the candidates with `--builders 0`, where lanes build, as PyTorch does.

In parts 2 to 4 each problem is judged once before the clock starts, with its reference as the candidate: a rate is that
of an evaluator that knows its problems, as in training. `--cold` leaves that out. Exit status 1 if a verdict is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import batches
from benchmarks.service import environment_of, outcome_of, stage_table
from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, LocalServices
from kerneldyno.v1.evaluation_pb2 import NativeBuild, StageSpan

#: Unfinished requests at once: the scheduler's queue takes them all.
_WINDOW = 256


@dataclass(slots=True)
class _Run:
    """The results of one part, each with the second at which it came."""

    results: dict[str, EvalResult] = field(default_factory=dict)
    came: dict[str, float] = field(default_factory=dict)
    #: Processors that were busy, on average; NaN if the system does not tell.
    processors: float = float("nan")

    def a_minute(self, names: Iterable[str]) -> float:
        """Return candidates a minute, over the middle of the run: from the first tenth to the last."""
        times = sorted(self.came[name] for name in names if name in self.came)
        skip = len(times) // 10
        middle = times[skip : len(times) - skip]
        return 60 * (len(middle) - 1) / (middle[-1] - middle[0]) if len(middle) > 1 else float("nan")


def main() -> int:
    """Measure and print; return the exit status."""
    options = _options()
    material = json.loads(options.material.read_text())[: options.count]
    measured: dict[str, Any] = {}
    wrong: list[str] = []
    if not options.no_alone:
        measured["alone"] = _alone(material[0], options)
    run = _serve([_request(each) for each in material], options, None)
    measured["all"] = _summary("all candidates", run, [each["name"] for each in material])
    wrong += _wrong(material, run)
    if options.triton:
        triton = [each.request(100, 3) for each in batches.mixed(0, tiny=False)[: options.triton]]
        names = [each.id for each in triton]
        alone = _serve(triton, options, None)
        both = _serve(_in_turns([_request(each) for each in material], triton), options, None)
        measured["triton alone"] = _summary("Triton alone", alone, names)
        measured["triton beside CUDA"] = _summary("Triton beside CUDA", both, names)
        measured["CUDA beside Triton"] = _summary("CUDA beside Triton", both, [each["name"] for each in material])
        wrong += _wrong(material, both)
    if options.baseline:
        chosen = material[: options.baseline]
        run = _serve([_request(each) for each in chosen], options, 0)
        measured["baseline"] = _summary("lanes build (--builders 0)", run, [each["name"] for each in chosen])
    for line in wrong:
        print(f"WRONG {line}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("material", type=Path, metavar="MATERIAL.json")
    add("--count", type=int, default=64, help="CUDA candidates (default: 64)")
    add("--triton", type=int, default=0, help="Triton candidates beside them (default: none)")
    add("--baseline", type=int, default=0, help="candidates that lanes build, for comparison (default: none)")
    add("--no-alone", action="store_true", help="leave out the first part")
    add("--cold", action="store_true", help="count the first judgement of each problem too")
    add("--devices", default="cuda:0")
    add("--builders", type=int, help="builds at once (default: the evaluator's)")
    add("--lanes", type=int, help="concurrent candidates on one device (default: the evaluator's)")
    add("--json", type=Path, help="also write everything to this file")
    return parser.parse_args()


def _request(each: dict[str, Any]) -> EvalRequest:
    return EvalRequest(
        id=each["name"],
        reference_code=each["reference"],
        kernel_code=each["candidate"],
        backend="cuda",
        skip_cache=True,
    )


def _alone(each: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache, _services(options, options.builders, cache) as services:
        times = []
        for number in range(2):
            request = _request(each)
            request.id = f"{each['name']}-{number}"
            began = time.monotonic()
            run = asyncio.run(_evaluate(services.address, [request]))
            times.append(time.monotonic() - began)
            result = run.results[request.id]
            print(f"alone {number + 1}: {outcome_of(result)} in {times[-1]:.2f} s\n\n{stage_table([result])}\n")
            for build in result.builds:
                print(f"build {build.name}: {build.seconds:.2f} s, {'cached' if build.cached else 'built'}")
                for step in build.steps:
                    print(f"  {step.seconds:6.2f} s  {step.name}")
    return {"first_seconds": times[0], "second_seconds": times[1]}


def _services(options: argparse.Namespace, builders: int | None, cache: str) -> LocalServices:
    return LocalServices(devices=options.devices, lanes=options.lanes, builders=builders, build_cache=cache)


def _serve(requests: Sequence[EvalRequest], options: argparse.Namespace, builders: int | None) -> _Run:
    """Evaluate requests with new services and an empty build cache."""
    with (
        tempfile.TemporaryDirectory() as cache,
        _services(options, options.builders if builders is None else builders, cache) as services,
    ):
        if not options.cold:
            asyncio.run(_evaluate(services.address, _first_of_each_problem(requests)))
        run = asyncio.run(_evaluate(services.address, requests))
        services.check()
    return run


async def _evaluate(address: str, requests: Sequence[EvalRequest]) -> _Run:
    run, began, used = _Run(), time.monotonic(), _processor_seconds()
    async with AsyncClient(address, window=_WINDOW) as client:
        async for result in client.evaluate(requests):
            run.results[result.id] = result
            run.came[result.id] = time.monotonic() - began
    run.processors = (_processor_seconds() - used) / (time.monotonic() - began)
    return run


def _first_of_each_problem(requests: Sequence[EvalRequest]) -> list[EvalRequest]:
    """Return a request for each problem, whose candidate is the reference."""
    first = {request.reference_code: request for request in requests}
    return [
        EvalRequest(
            id=f"first-{number}",
            reference_code=reference,
            kernel_code=f"{reference}\n\nclass ModelNew(Model):\n    pass\n",
            backend="torch",
            num_perf_trials=request.num_perf_trials,
            num_warmup=request.num_warmup,
        )
        for number, (reference, request) in enumerate(first.items())
    ]


def _in_turns(few: Sequence[EvalRequest], many: Sequence[EvalRequest]) -> list[EvalRequest]:
    """Return both, spread evenly over the whole."""
    placed = [((at + 0.5) / len(each), request) for each in (few, many) for at, request in enumerate(each)]
    return [request for _, request in sorted(placed, key=lambda pair: pair[0])]


def _processor_seconds() -> float:
    """Return the processor time that this machine has used, in seconds; NaN if the system does not tell."""
    try:
        ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return float("nan")
    user, nice, system, _idle, _waiting, *interrupts = map(int, ticks[:7])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def _summary(label: str, run: _Run, names: Sequence[str]) -> dict[str, Any]:
    results = [run.results[name] for name in names]
    seconds = max(run.came[name] for name in names)
    outcomes = Counter(map(outcome_of, results))
    builds = [build for result in results for build in result.builds]
    ways = Counter(NativeBuild.Headers.Name(build.headers) if not build.failed else "FAILED" for build in builds)
    steps: dict[str, list[float]] = defaultdict(list)
    for build in builds:
        for step in build.steps if not build.cached else ():
            steps[step.name.partition(" ")[0] + step.name[step.name.rfind(".") :]].append(step.seconds)
    minute = run.a_minute(names)
    print(
        f"\n{label}: {len(results)} in {seconds:.1f} s, {60 * len(results) / seconds:.0f} a minute, {minute:.0f} in the"
    )
    print(
        f"middle; {run.processors:.1f} processors busy; {dict(outcomes)}; builds {dict(ways)}\n\n{stage_table(results)}\n"
    )
    for name, times in sorted(steps.items()):
        print(f"  {name:<24} {len(times):4} times, median {statistics.median(times):5.2f} s, sum {sum(times):6.1f} s")
    return {
        "seconds": seconds,
        "a_minute": 60 * len(results) / seconds,
        "a_minute_in_the_middle": minute,
        "outcomes": outcomes,
        "builds": ways,
        "steps": {name: [len(times), statistics.median(times), sum(times)] for name, times in steps.items()},
        "processors_busy": run.processors,
        "stages": {
            result.id: [[span.stage, *_start_and_seconds(span)] for span in result.stages] for result in results
        },
        "verdicts": {result.id: [outcome_of(result), result.message[:300]] for result in results},
        "environment": environment_of(results),
    }


def _start_and_seconds(span: StageSpan) -> tuple[float, float]:
    return round(span.start_time.ToMicroseconds() / 1e6, 3), round(span.duration.ToNanoseconds() / 1e9, 3)


def _wrong(material: Sequence[dict[str, Any]], run: _Run) -> list[str]:
    return [
        f"{each['name']}: {outcome_of(result)}: {result.message[:500]}"
        for each in material
        if each.get("right") and outcome_of(result := run.results[each["name"]]) != "CORRECT"
    ]


if __name__ == "__main__":
    sys.exit(main())

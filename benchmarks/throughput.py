"""Measure candidates a minute on a batch as training makes them, check every verdict, and compare with a baseline.

    python -m benchmarks.throughput [--batch mixed|early|turns|violent] [--runs 3] [--devices 0,1] [--lanes N] [--json FILE]

It starts a scheduler and an evaluator as `make demo` does, and streams the batch (benchmarks/batches.py) to them over
gRPC: each candidate gets its own sandboxed process, all correctness trials and a time. The time runs from the first
request to the last result; starting the services is not part of it. Each run sends the batch in the same order, with a
cold compile cache and no stored result. In `early` half of the candidates fail before they need a device. `turns` sends
near-identical candidates in three turns, each turn after the verdict on the previous one. `violent`
(benchmarks/violent.py) checks which processes and device memory are left over after 200 candidates, a fifth of which
crash, hang or corrupt their process. The baseline has no walls and does not run this batch.

The baseline (benchmarks/persistent.py) judges the same sources in long-lived workers that are ready before the time
starts: once with one worker on each device, as is usual in evaluators for training, and once with as many as there are
lanes. It does less for each candidate: five trials on nominal inputs, no stress inputs, no sandbox, no second clock. A
verdict is wrong if a correct candidate is not called correct, or another one is; for the service the kind of error must
be right, too.

With several devices the same batch also goes to the first one alone. On a CPU everything is tiny and runs in Triton's
interpreter: verdicts count there, rates do not. Exit status 1 if a verdict of the service is wrong, a process is left
over, or device memory was not released.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import psutil

from benchmarks import batches
from benchmarks.persistent import Pool, Task
from benchmarks.service import (
    PER_LANE,
    capacity,
    collect,
    common_options,
    device_list,
    environment_of,
    outcome_of,
    stage_seconds,
    stage_table,
    write,
)
from benchmarks.usage import Usage, device_mebibytes, is_forked
from benchmarks.violent import violent
from kerneldyno.client import AsyncClient, EvalResult, LocalServices

#: Timed and warm-up calls. Interpreted kernels are a thousand times slower, and their times mean nothing.
TRIALS = {"cuda": (100, 3), "cpu": (5, 1)}
#: Within this time killed runners must be gone, and spares must be ready again.
SETTLE_SECONDS = 3.0
#: Growth of device memory that is allowed, since the driver may keep some.
SLACK_MEBIBYTES = 64

Trajectories = Sequence[Sequence[batches.Candidate]]


def main() -> int:
    """Run the command; return the exit status."""
    options = _options()
    devices = device_list(options.devices)
    measured: dict[str, Any] = {"batch": options.batch, "seed": options.seed, "service": [], "one_device": []}
    for run in range(options.runs):
        measured["service"].append(_serve(devices, options, f"run {run + 1}", show=run == options.runs - 1))
    if len(devices) > 1:
        measured["one_device"].append(_serve(devices[:1], options, "first device alone", show=False))
    if not options.no_baseline and options.batch != "violent":  # the baseline has no walls
        last = measured["service"][-1]
        measured["baseline"] = [_baseline(last, options, workers) for workers in dict.fromkeys((1, last["lanes"]))]
    _print(measured)
    write(measured, options, "throughput")
    return 1 if any(map(_is_bad, measured["service"] + measured["one_device"])) else 0


def _is_bad(run: dict[str, Any]) -> bool:
    return bool(run["wrong"] or run["left_over"] or (run["device_left_mebibytes"] or 0) > SLACK_MEBIBYTES)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure candidates a minute, and compare every verdict.")
    add = parser.add_argument
    add("--batch", choices=("mixed", "early", "turns", "violent"), default="mixed")
    add("--runs", type=int, default=1)
    add("--seconds", type=float, default=60.0, help="submit nothing after this time, in each run (default: 60)")
    add("--devices", default="auto", help="0,1 or a value of the evaluator's --devices (default: auto)")
    add(
        "--per-problem",
        type=int,
        default=16,
        help="number of candidates, or trajectories, of each of 8 problems (default: 16)",
    )
    add("--count", type=int, default=200, help="candidates of the violent batch (default: 200)")
    add("--seed", type=int, default=0)
    add("--quick", action="store_true", help="4 of each problem, and 20 seconds")
    add("--no-baseline", action="store_true")
    common_options(parser, "throughput")
    options = parser.parse_args()
    if options.quick:
        options.per_problem, options.seconds = min(options.per_problem, 4), min(options.seconds, 20.0)
        options.count = min(options.count, 30)
    return options


def make_batch(options: argparse.Namespace, *, tiny: bool) -> Trajectories:
    """Make the batch: lists of candidates; those of one list are sent one after another."""
    if options.batch == "violent":
        return [[candidate] for candidate in violent(options.count, options.seed, tiny=tiny)]
    if options.batch == "turns":
        return batches.turns(options.seed, tiny=tiny, per_problem=options.per_problem)
    make = batches.early if options.batch == "early" else batches.mixed
    return [[candidate] for candidate in make(options.seed, tiny=tiny, per_problem=options.per_problem)]


def _serve(devices: list[str], options: argparse.Namespace, label: str, *, show: bool) -> dict[str, Any]:
    """Run the batch once through new services."""
    before = device_mebibytes()
    with LocalServices(devices=",".join(devices), lanes=options.lanes) as services:
        kind, names, lanes = asyncio.run(_capacity(services.address))
        trajectories = make_batch(options, tiny=kind == "cpu")
        with Usage() as usage:
            results, seconds = asyncio.run(
                _evaluate(services.address, trajectories, options.seconds, lanes * len(names), TRIALS[kind])
            )
            services.check()
            time.sleep(SETTLE_SECONDS)
        family = psutil.Process().children(recursive=True)
        spares = sum(is_forked(process) for process in family)
    _, left = psutil.wait_procs(family, timeout=5)
    after = device_mebibytes()
    sent = list(itertools.chain(*trajectories))
    wrong = [row.mismatch(results[row.name]) for row in sent if row.name in results]
    wrong = [line for line in wrong if line]
    if show:
        print(f"{label}:\n\n{stage_table(list(results.values()))}\n")
    for line in wrong:
        print(f"WRONG {line}", file=sys.stderr)
    minute = 60 * len(results) / seconds
    print(
        f"{label}: {len(results)} of {len(sent)} candidates in {seconds:.1f} s, {minute:.0f} a minute, {len(wrong)} wrong"
    )
    return {
        "label": label,
        "kind": kind,
        "devices": names,
        "lanes": lanes,
        "candidates": len(results),
        "of": len(sent),
        "seconds": seconds,
        "a_minute": minute,
        "wrong": wrong,
        "outcomes": Counter(map(outcome_of, results.values())),
        "by_device": Counter(result.environment.device for result in results.values()),
        "merged_or_cached": sum(result.merged or result.cached for result in results.values()),
        "stages": stage_seconds(results.values()),
        "spares": spares,
        "left_over": len(left),
        "device_left_mebibytes": None if before is None or after is None else after - before,
        "environment": environment_of(results.values()),
        **usage.summary(),
    }


async def _capacity(address: str) -> tuple[str, list[str], int]:
    async with AsyncClient(address) as client:
        return await capacity(client)


async def _evaluate(
    address: str, trajectories: Trajectories, seconds: float, lanes: int, trials: tuple[int, int]
) -> tuple[dict[str, EvalResult], float]:
    """Send all candidates; those of a trajectory one at a time."""
    if all(len(steps) == 1 for steps in trajectories):
        return await collect(address, [steps[0].request(*trials) for steps in trajectories], seconds, lanes)
    begin = time.monotonic()
    results: dict[str, EvalResult] = {}

    room = asyncio.Semaphore(PER_LANE * lanes)

    async def follow(client: AsyncClient, steps: Sequence[batches.Candidate]) -> None:
        for step in steps:
            async with room:
                if time.monotonic() - begin < seconds:
                    result = await client.evaluate_once(step.request(*trials))
                    results[result.id] = result

    async with AsyncClient(address) as client, asyncio.TaskGroup() as group:
        for steps in trajectories:
            group.create_task(follow(client, steps))
    return results, time.monotonic() - begin


def _baseline(run: dict[str, Any], options: argparse.Namespace, workers: int) -> dict[str, Any]:
    """Judge the same batch in persistent workers."""
    tiny = run["kind"] == "cpu"
    chosen = {candidate.name: candidate for candidate in itertools.chain(*make_batch(options, tiny=tiny))}
    tasks = [Task(candidate.name, candidate.reference, candidate.source) for candidate in chosen.values()]
    with Pool(workers, run["devices"], TRIALS[run["kind"]][0]) as pool:
        answers, seconds = pool.judge(tasks, options.seconds)
    wrong = []
    for name, answer in answers.items():
        candidate = chosen[name]
        if answer["correct"] != candidate.right:
            called = "called correct" if answer["correct"] else f"not called correct: {answer['message'][:150]}"
            wrong.append(f"{name} ({candidate.kind}): {called}")
    return {
        "candidates": len(answers),
        "seconds": seconds,
        "a_minute": 60 * len(answers) / seconds,
        "wrong": sorted(wrong),
        "restarts": pool.restarts,
        "workers": workers * len(run["devices"]),
    }


def _print(measured: dict[str, Any]) -> None:
    runs = measured["service"]
    last = runs[-1]
    print(f"\n| what | seen |\n| --- | --- |\n| on | {', '.join(f'{k} {v}' for k, v in last['environment'].items())} |")
    rates = ", ".join(f"{run['a_minute']:.0f}" for run in runs)

    def row(name: str, seen: object) -> None:
        print(f"| {name} | {seen} |")

    row("devices, lanes on each", f"{', '.join(last['devices'])}; {last['lanes']}")
    row("candidates a minute, each run", f"{rates} (median {statistics.median(run['a_minute'] for run in runs):.0f})")
    row("candidates", f"{last['candidates']} of {last['of']}; {last['merged_or_cached']} answered by another's run")
    row("wrong verdicts, each run", ", ".join(str(len(run["wrong"])) for run in runs))
    row("outcomes", ", ".join(f"{count} {name}" for name, count in Counter(last["outcomes"]).most_common()))
    cpu = last["cpu_seconds"]
    row("processor seconds", ", ".join(f"{name} {seconds:.1f}" for name, seconds in sorted(cpu.items())))
    row("processor seconds a candidate", f"{sum(cpu.values()) / max(1, last['candidates']):.2f}")
    row("host memory, peak (shared pages count in each process)", f"{last['host_peak_mebibytes']:.0f} MiB")
    memory = [last[f"device_{when}_mebibytes"] for when in ("begin", "peak", "end")]
    row(
        "device memory, begin, peak, end",
        "no GPU" if memory[0] is None else f"{memory[0]}, {memory[1]}, {memory[2]} MiB",
    )
    if last["device_left_mebibytes"] is not None:
        row("device memory kept after the services stopped", f"{last['device_left_mebibytes']} MiB")
    row(
        "runners after the last result (spares, kept references), left at the end",
        f"{last['spares']}, {last['left_over']}",
    )
    for run in measured["one_device"]:
        ratio = statistics.median(run["a_minute"] for run in runs) / run["a_minute"]
        row("first device alone", f"{run['a_minute']:.0f} a minute, {len(run['wrong'])} wrong; ratio {ratio:.2f}")
        row("candidates on each device", ", ".join(f"{name} {n}" for name, n in sorted(last["by_device"].items())))
    ours = statistics.median(run["a_minute"] for run in runs)
    for base in measured.get("baseline", []):
        wrong = f"{len(base['wrong'])} of {base['candidates']} verdicts wrong, {base['restarts']} workers replaced"
        ratio = f"the service makes {ours / base['a_minute']:.2f} times as many"
        row(f"baseline: persistent workers: {base['workers']}", f"{base['a_minute']:.0f} a minute; {ratio}; {wrong}")
    for base in measured.get("baseline", []):
        print(f"\nwrong verdicts of the baseline, {base['workers']} workers:", *base["wrong"], sep="\n    ")


if __name__ == "__main__":
    sys.exit(main())

"""Judge problems of real size mixed with candidates as in training, from several clients: no verdict may change.

    python -m benchmarks.mixed_sizes FILE or FOLDER ... [--clients 4] [--seconds 400] [--devices cuda:0] [--json FILE]

Each file is a problem in KernelBench's form; it is its own candidate, with default settings, and must be CORRECT. The
candidates of training (benchmarks/batches.py) are generated, so their outcomes are known. Both are shuffled together
and distributed over the clients, which send them concurrently. Exit status 1 if a verdict is not the expected one, a
process is left over, device memory was not released, or no problem of real size or no candidate of training was judged.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from benchmarks import batches
from benchmarks.service import capacity, collect, device_list, environment_of, outcome_of, stage_seconds, stage_table
from benchmarks.throughput import SETTLE_SECONDS, SLACK_MEBIBYTES, TRIALS
from benchmarks.usage import Usage, device_mebibytes
from kerneldyno.cli.suite_folders import find_problems, renamed, request_of
from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, LocalServices
from kerneldyno.rollout.problems import ProblemError


def main() -> int:
    """Run the command; return the exit status."""
    options = _options()
    try:
        entries = find_problems(options.problems)
    except ProblemError as error:
        print(error, file=sys.stderr)
        return 2
    settings = {"backend": "torch", "skip_cache": True}
    requests = [request_of(entry, renamed(entry.problem), settings) for entry in entries]
    measured = _serve(requests, options)
    _print(measured)
    if options.json:
        measured["results"] = {name: [row(each) for each in found] for name, found in measured["results"].items()}
        options.json.write_text(json.dumps(measured, indent=1) + "\n")
    return 1 if measured["shortfalls"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Judge problems of real size between a batch of training.")
    add = parser.add_argument
    add("problems", nargs="+", type=Path, help="files or folders")
    add("--clients", type=int, default=4, help="number of concurrent clients (default: 4)")
    add("--per-problem", type=int, default=16, help="candidates of each of the batch's 8 problems (default: 16)")
    add("--seconds", type=float, default=400.0, help="submit nothing after this time (default: 400)")
    add("--seed", type=int, default=0)
    add("--devices", default="auto", help="devices, of which the first is used (default: auto)")
    add("--lanes", type=int, help="concurrent candidates on the device (default: the evaluator's)")
    add("--json", type=Path, help="also write everything to this file")
    return parser.parse_args()


def _serve(large: list[EvalRequest], options: argparse.Namespace) -> dict[str, Any]:
    before = device_mebibytes()
    with LocalServices(devices=device_list(options.devices)[0], lanes=options.lanes) as services:
        kind, names, lanes = asyncio.run(_capacity(services.address))
        batch = batches.mixed(options.seed, tiny=kind == "cpu", per_problem=options.per_problem)
        sent = large + [candidate.request(*TRIALS[kind]) for candidate in batch]
        random.Random(options.seed).shuffle(sent)
        with Usage() as usage:
            results, seconds = asyncio.run(_send(services.address, sent, options, lanes))
            services.check()
            time.sleep(SETTLE_SECONDS)
        family = psutil.Process().children(recursive=True)
    _, left = psutil.wait_procs(family, timeout=5)
    after = device_mebibytes()
    found = {
        "device": names[0],
        "lanes": lanes,
        "clients": options.clients,
        "environment": environment_of(results.values()),
        "seconds": seconds,
        "of": {"real size": len(large), "training": len(batch)},
        "results": {
            "real size": [results[each.id] for each in large if each.id in results],
            "training": [results[each.name] for each in batch if each.name in results],
        },
        "left_over": len(left),
        "device_left_mebibytes": None if before is None or after is None else after - before,
        **usage.summary(),
    }
    found["shortfalls"] = _shortfalls(found, batch)
    return found


async def _capacity(address: str) -> tuple[str, list[str], int]:
    async with AsyncClient(address) as client:
        return await capacity(client)


async def _send(
    address: str, requests: list[EvalRequest], options: argparse.Namespace, lanes: int
) -> tuple[dict[str, EvalResult], float]:
    """Distribute the requests over the clients; return all results and the seconds until the last."""
    dealt = [requests[first :: options.clients] for first in range(options.clients)]
    share = max(1, lanes // options.clients)
    begin = time.monotonic()
    parts = await asyncio.gather(*(collect(address, each, options.seconds, share) for each in dealt))
    found = dict(itertools.chain.from_iterable(part.items() for part, _ in parts))
    return found, time.monotonic() - begin


def _shortfalls(measured: dict[str, Any], batch: list[batches.Candidate]) -> list[str]:
    """Return a sentence for each requirement that is not met."""
    results = measured["results"]
    made = {candidate.name: candidate for candidate in batch}
    found = [
        f"{result.id}: {outcome_of(result)}: {result.message[:200]}"
        for result in results["real size"]
        if outcome_of(result) != "CORRECT"
    ]
    found += [line for result in results["training"] if (line := made[result.id].mismatch(result))]
    found += [f"nothing of {name} was judged" for name, judged in results.items() if not judged]
    if measured["left_over"]:
        found.append(f"{measured['left_over']} processes were left over")
    if (kept := measured["device_left_mebibytes"] or 0) > SLACK_MEBIBYTES:
        found.append(f"{kept} MiB of the device were not given back")
    return found


def row(result: EvalResult) -> dict[str, Any]:
    """Return the written fields of one result."""
    return {
        "id": result.id,
        "outcome": outcome_of(result),
        "message": result.message,
        "attempts": result.attempts,
        "speedup": result.speedup,
        "stages": {stage: sum(spans) for stage, spans in stage_seconds([result]).items()},
    }


def _print(measured: dict[str, Any]) -> None:
    environment = ", ".join(f"{name} {value}" for name, value in measured["environment"].items())
    print(f"{environment}; {measured['device']}, {measured['lanes']} lanes, {measured['clients']} clients\n")
    for name, results in measured["results"].items():
        outcomes = ", ".join(f"{count} {what}" for what, count in Counter(map(outcome_of, results)).most_common())
        print(f"{name}: {len(results)} of {measured['of'][name]}: {outcomes}\n\n{stage_table(results)}\n")
    judged = sum(map(len, measured["results"].values()))
    print(f"{judged} evaluations in {measured['seconds']:.0f} s; {measured['left_over']} processes left over")
    print(f"host memory at the peak (shared pages count in each process): {measured['host_peak_mebibytes']:.0f} MiB")
    if measured["device_peak_mebibytes"] is not None:
        left = measured["device_left_mebibytes"]
        print(f"device memory at the peak {measured['device_peak_mebibytes']} MiB, kept after the end {left} MiB")
    for line in measured["shortfalls"]:
        print(f"SHORT: {line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

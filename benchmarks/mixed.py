"""200 mixed candidates, a fifth of which crash, hang or corrupt their process: are all verdicts right, and what is left?

`python benchmarks/mixed.py [--count 200] [--devices auto]` starts services of its own, judges variants of the candidates in
`examples/problems` and prints a Markdown table for docs/benchmarks.md. Exit status 1 when a verdict is not the expected one,
a process is left over, or device memory has not come back.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import psutil
from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, LocalServices
from kerneldyno.v1.evaluation_pb2 import Stage

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from demo import Candidate, read_table

#: Outcomes of candidates that take their process with them, or have to be killed.
_VIOLENT = {"RUNTIME_ERROR", "TIMEOUT", "OUT_OF_MEMORY"}
_LIMIT_SECONDS = 900.0


def main() -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description="Judge mixed candidates and look for what they leave behind.")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--perf-trials", type=int, default=20)
    options = parser.parse_args()
    before = _device_mebibytes()
    with LocalServices(devices=options.devices) as services:
        wrong, seconds, results = asyncio.run(_run(services.address, options.count, options.perf_trials))
        time.sleep(3)
        family = psutil.Process().children(recursive=True)
        settled = sum(_is_forked(process) for process in family)
    _, left = psutil.wait_procs(family, timeout=5)
    after = _device_mebibytes()
    outcomes = Counter(EvalResult.Outcome.Name(result.outcome) for result in results)
    findings = Counter(finding.id for result in results for finding in result.findings)
    environment = results[0].environment
    print("| what | seen |\n| --- | --- |")
    print(
        f"| device | {environment.device_model}, torch {environment.torch_version}, triton {environment.triton_version} |"
    )
    print(f"| candidates | {len(results)}: {', '.join(f'{n} {name}' for name, n in outcomes.most_common())} |")
    devices = Counter(result.environment.device for result in results if result.environment.device)
    print(f"| devices | {', '.join(f'{n} on {name}' for name, n in sorted(devices.items()))} |")
    print(f"| wrong verdicts | {len(wrong)} |")
    print(f"| findings | {', '.join(f'{n} {name}' for name, n in findings.items()) or 'none'} |")
    print(f"| time | {seconds:.1f} s, {60 * len(results) / seconds:.0f} a minute |")
    print(f"| processes of runners after the last result (spares only) | {settled} |")
    print(f"| processes left after the services stopped | {len(left)} |")
    print(f"| device memory before and after | {before}, {after} MiB |")
    stages: dict[str, list[float]] = defaultdict(list)
    for result in results:
        for span in result.stages:
            stages[Stage.Name(span.stage)].append(span.duration.seconds + span.duration.nanos * 1e-9)
    for stage, spans in stages.items():
        name = stage.removeprefix("STAGE_").lower().replace("_", " ")
        print(
            f"| {name}: median, longest | {sorted(spans)[len(spans) // 2]:.3f} s, {max(spans):.3f} s ({len(spans)}) |"
        )
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong or left or (after or 0) > (before or 0) + 64 else 0


async def _run(address: str, count: int, perf_trials: int) -> tuple[list[str], float, list[EvalResult]]:
    async with AsyncClient(address) as client:
        kind = (await client.nodes())[0].devices[0].kind
        chosen = dict(_choose(count, kind))
        requests = [_variant(name, candidate, perf_trials) for name, candidate in chosen.items()]
        begin = time.monotonic()
        results = []
        async with asyncio.timeout(_LIMIT_SECONDS):
            async for result in client.evaluate(requests):
                results.append(result)
        seconds = time.monotonic() - begin
    wrong = [
        f"{result.id}: {EvalResult.Outcome.Name(result.outcome)}, expected {chosen[result.id].outcomes}: {result.message}"
        for result in results
        if not chosen[result.id].as_expected(result)
    ]
    return wrong, seconds, results


def _choose(count: int, kind: str) -> Iterator[tuple[str, Candidate]]:
    """Name `count` candidates, every fifth a violent one, in random order."""
    table = [row for row in read_table() if row.backend != "cuda" and (kind == "cuda" or not row.needs_gpu)]
    violent = itertools.cycle([row for row in table if set(row.outcomes) & _VIOLENT])
    others = itertools.cycle([row for row in table if not set(row.outcomes) & _VIOLENT])
    rows = [next(violent) if number % 5 == 0 else next(others) for number in range(count)]
    random.Random(0).shuffle(rows)
    for number, row in enumerate(rows):
        yield f"{number:03d}/{row.name}", row


def _variant(name: str, candidate: Candidate, perf_trials: int) -> EvalRequest:
    request = candidate.request({"num_perf_trials": perf_trials})
    request.id = name
    request.kernel_code += f"\n# variant {name}\n"
    return request


def _is_forked(process: psutil.Process) -> bool:
    """Whether a process was forked by a zygote: a runner or one of its wardens."""
    parent = process.parent()
    return parent is not None and "runner.zygote" in " ".join(parent.cmdline())


def _device_mebibytes() -> int | None:
    if not shutil.which("nvidia-smi"):
        return None
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return sum(int(line) for line in subprocess.check_output(query, text=True).split())


if __name__ == "__main__":
    sys.exit(main())

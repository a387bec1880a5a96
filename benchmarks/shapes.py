"""Judge the Triton candidates of `examples/shapes` through real services and print verdicts, times and stage times.

`python -m benchmarks.shapes [--address HOST:PORT] [--json FILE]`. Needs an NVIDIA GPU, for which the sizes are made. The
table is Markdown, for docs/benchmarks.md. The client measures seconds per candidate, from first request to last result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import defaultdict
from pathlib import Path

from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, LocalServices
from kerneldyno.rpc.jsonio import result_to_json
from kerneldyno.v1.evaluation_pb2 import Stage, TimingStats

SHAPES = Path(__file__).resolve().parents[1] / "examples/shapes"


def main() -> int:
    """Run the command; return exit status 1 if a verdict is not CORRECT."""
    parser = argparse.ArgumentParser(description="Judge the GPU shapes.")
    parser.add_argument("names", nargs="*", help="only these shapes (default: all)")
    parser.add_argument("--address", help="a running scheduler (default: start services here)")
    parser.add_argument("--json", type=Path, help="also write the results to this file, one on each line")
    options = parser.parse_args()
    if options.address:
        return _report(*asyncio.run(_run(options.address, options.names)), options.json)
    with LocalServices(devices="cuda") as services:
        return _report(*asyncio.run(_run(services.address, options.names)), options.json)


async def _run(address: str, names: list[str]) -> tuple[dict[str, EvalResult], float]:
    requests = [_request(path) for path in sorted(SHAPES.glob("*__triton.py"))]
    requests = [request for request in requests if not names or request.id in names]
    results: dict[str, EvalResult] = {}
    begin = time.monotonic()
    async with AsyncClient(address) as client:
        async for result in client.evaluate(requests):
            results[result.id] = result
    return results, time.monotonic() - begin


def _report(results: dict[str, EvalResult], seconds: float, output: Path | None) -> int:
    _print(results, seconds)
    if output:
        output.write_text("".join(json.dumps(result_to_json(result)) + "\n" for result in results.values()))
    return 0 if all(result.correct for result in results.values()) else 1


def _request(candidate: Path) -> EvalRequest:
    name = candidate.name.removesuffix("__triton.py")
    return EvalRequest(
        id=name,
        reference_code=(SHAPES / f"{name}.py").read_text(),
        kernel_code=candidate.read_text(),
        num_perf_trials=50,
    )


def _print(results: dict[str, EvalResult], seconds: float) -> None:
    print("| shape | verdict | reference us | candidate us | by the judge us | speedup | 95 % interval | findings |")
    print("| --- | --- | ---: | ---: | ---: | ---: | --- | --- |")
    for name in sorted(results):
        result = results[name]
        mine, other, interval = result.candidate_timing, result.reference_timing, result.speedup_interval
        numbers = (
            f"{other.median_seconds * 1e6:.1f} | {mine.median_seconds * 1e6:.1f} | {mine.judge_seconds * 1e6:.1f}"
            f" | {result.speedup:.2f} | {interval.low:.2f} to {interval.high:.2f}"
            if mine.samples
            else " | | | | "
        )
        verdict = EvalResult.Outcome.Name(result.outcome)
        clock = "" if mine.clock != TimingStats.CLOCK_JUDGE else " (judge's clock)"
        found = ", ".join(finding.id for finding in result.findings) + clock
        print(f"| {name} | {verdict} | {numbers} | {found} |")
    for name, result in sorted(results.items()):
        if not result.correct:
            print(f"{name}: {result.message}", file=sys.stderr)
    stages: dict[str, list[float]] = defaultdict(list)
    for result in results.values():
        for span in result.stages:
            stages[Stage.Name(span.stage)].append(span.duration.seconds + span.duration.nanos * 1e-9)
    print("\n| stage | mean seconds | largest |\n| --- | ---: | ---: |")
    for stage, spans in stages.items():
        print(f"| {stage.removeprefix('STAGE_').lower()} | {sum(spans) / len(results):.3f} | {max(spans):.3f} |")
    environment = next(iter(results.values())).environment
    print(
        f"\n{len(results)} candidates in {seconds:.1f} s; {environment.device_model}, driver {environment.driver_version},"
        f" torch {environment.torch_version}, triton {environment.triton_version}"
    )


if __name__ == "__main__":
    sys.exit(main())

"""Shared code of benchmarks that start services: options, processes, devices, a time limit, stage times of results."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kerneldyno.client import AsyncClient, EvalRequest, EvalResult
from kerneldyno.v1.evaluation_pb2 import Stage

#: Unfinished requests for each lane: one runs, one waits at the evaluator.
PER_LANE = 2
ROOT = Path(__file__).resolve().parents[1]


def common_options(parser: argparse.ArgumentParser, picture: str) -> None:
    """Add the options that several benchmarks share: lanes, and the files that `write` writes."""
    parser.add_argument("--lanes", type=int, help="concurrent candidates on one device (default: the evaluator's)")
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    drawn = ROOT / "docs" / "images" / f"{picture}.png"
    parser.add_argument("--plot", nargs="?", type=Path, const=drawn, help="also draw (docs/images/)")


def write(measured: dict[str, Any], options: argparse.Namespace, picture: str) -> None:
    """Write and plot, if the options say so; `picture` is the name of a function in plots.py."""
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")
    if options.plot:
        from benchmarks import plots

        print(f"\nplot: {getattr(plots, picture)(measured, options.plot)}")


@contextlib.contextmanager
def spawned(command: Sequence[str], stdout: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that is killed at the end of the block."""
    process = subprocess.Popen(command, stdout=stdout, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def device_list(text: str) -> list[str]:
    """Read "0,1" (GPUs), or a value of the evaluator's `--devices`, which is returned unchanged.

    >>> device_list("0,1"), device_list("cpu"), device_list("cuda:0,cuda:2")
    (['cuda:0', 'cuda:1'], ['cpu'], ['cuda:0', 'cuda:2'])
    """
    return [f"cuda:{part}" if part.isdigit() else part for part in text.split(",")]


async def capacity(client: AsyncClient) -> tuple[str, list[str], int]:
    """Return the kind of the devices, their names, and the lanes of one."""
    devices = [device for node in await client.nodes() for device in node.devices]
    return devices[0].kind, [device.name for device in devices], devices[0].lanes


async def collect(
    address: str,
    requests: Iterable[EvalRequest],
    seconds: float,
    lanes: int,
    tell: Callable[[EvalResult], object] = lambda _: None,
) -> tuple[dict[str, EvalResult], float]:
    """Evaluate `requests` until `seconds` have passed, then wait for the unfinished ones; `tell` gets each result at once.

    Returns results by id, and seconds from the first request to the last result. `lanes` is the number of lanes of all
    devices. It limits the unfinished requests, so that the wait at the end is short.
    """
    begin = time.monotonic()

    async def source() -> AsyncIterator[EvalRequest]:
        for request in requests:
            if time.monotonic() - begin > seconds:
                return
            yield request
            await asyncio.sleep(0)

    results: dict[str, EvalResult] = {}
    async with AsyncClient(address, window=PER_LANE * lanes) as client:
        async for result in client.evaluate(source()):
            results[result.id] = result
            tell(result)
    return results, time.monotonic() - begin


def outcome_of(result: EvalResult) -> str:
    """Return the name of the outcome."""
    return EvalResult.Outcome.Name(result.outcome)


def stage_seconds(results: Iterable[EvalResult]) -> dict[str, list[float]]:
    """Return for each stage, in order, the seconds of each result that entered it."""
    found: dict[Stage.ValueType, list[float]] = {}
    for result in results:
        for span in result.stages:
            found.setdefault(span.stage, []).append(span.duration.ToNanoseconds() / 1e9)
    return {Stage.Name(stage).removeprefix("STAGE_").lower(): found[stage] for stage in sorted(found)}


def stage_table(results: Sequence[EvalResult]) -> str:
    """Return a Markdown table of the time in each stage. Means are over all results, also those that ended earlier."""
    lines = ["| stage | results | mean s | p95 s | longest s |", "| --- | ---: | ---: | ---: | ---: |"]
    for stage, spans in stage_seconds(results).items():
        mean = sum(spans) / len(results)
        lines.append(f"| {stage} | {len(spans)} | {mean:.3f} | {percentile(spans, 95):.3f} | {max(spans):.3f} |")
    return "\n".join(lines)


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest value that at least `percent` of all values do not exceed; NaN if there are none.

    >>> percentile([3, 1, 2, 4], 50), percentile([1, 2, 3, 4], 95)
    (2, 4)
    """
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]


def environment_of(results: Iterable[EvalResult]) -> dict[str, Any]:
    """Return the environment of the first result that has one."""
    for result in results:
        if result.environment.device_model:
            found = result.environment
            told = {
                "device": found.device_model,
                "driver": found.driver_version,
                "torch": found.torch_version,
                "triton": found.triton_version,
            }
            return {name: value for name, value in told.items() if value}  # a CPU has no driver
    return {}

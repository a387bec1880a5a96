"""Measure how much two halves of one process's end-to-end times differ: no evaluator on this host can be more accurate.

    python -m benchmarks.floor FILE [FILE ...] [--seconds 1.4] [--calls 3] [--repeat 5] [--device cuda]

Each file is a problem in KernelBench's form. One process makes all calls, without a judge, walls or another process: a
few of side A, a few of side B, and so on, on the same object and the same inputs with a cold cache, from a processor
that is fast at that moment, as the judge does. The judge's own arithmetic (`judge/timing/ratio.py`) computes the ratio
of A to B from these rounds. It would be 1 if the host did nothing else, so its distance from 1 comes from the host.
Compare it with `benchmarks/field.py`, whose two sides are two processes behind walls, for the same duration.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kerneldyno.cli.suite_folders import find_problems
from kerneldyno.evaluator.judge.timing import ratio
from kerneldyno.evaluator.judge.timing.processors import Processors
from kerneldyno.rollout.problems import ProblemError

#: Bytes written before each call to evict the cache, as the judge does: more than any cache has.
_EVICTED_BYTES = 256 << 20
_WARM_UP = 10


def main() -> int:
    """Run the command: print a line for each problem and repetition."""
    options = _options()
    device = torch.device(options.device)
    processors = Processors((0, 1), roams=device.type == "cuda")
    try:
        problems = find_problems(options.problems)
    except ProblemError as error:
        print(error, file=sys.stderr)
        return 2
    print("| problem | A / B [interval] | end to end ms | rounds |\n| --- | ---: | ---: | ---: |", flush=True)
    values = []
    for entry in problems:
        call, inputs = _build(entry.problem.reference_code, device)
        for _ in range(options.repeat):
            rounds, calm = _rounds(call, inputs, device, processors, options)
            found = ratio.of_delayed_rounds(rounds[0], rounds[1], calm=calm)
            values.append(found.value)
            middle = statistics.median(second for side in rounds for calls in side for second in calls)
            cells = f"{found.value:.4f} [{found.low:.4f}, {found.high:.4f}] | {middle * 1e3:.4f} | {len(rounds[0])}"
            print(f"| {entry.name} | {cells} |", flush=True)
        del call, inputs
    errors = sorted(abs(value - 1) for value in values)
    near = sum(error <= 0.01 for error in errors)
    print(
        f"{near} of {len(errors)} within 1 +- 0.01; median {errors[len(errors) // 2]:.4f} off, worst {errors[-1]:.4f}"
    )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare two halves of one process's times; their ratio should be 1.")
    add = parser.add_argument
    add("problems", nargs="+", type=Path, help="files or folders")
    add(
        "--seconds",
        type=float,
        default=1.4,
        help="time for one ratio, like the judge's rounds in a lease (default: 1.4)",
    )
    add("--calls", type=int, default=3, help="calls of one side in one round (default: 3)")
    add("--repeat", type=int, default=5, help="ratios for each problem (default: 5)")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def _build(code: str, device: torch.device) -> tuple[torch.nn.Module, list[Any]]:
    """Return the problem's model and inputs on the device."""
    names: dict[str, Any] = {"__name__": "problem"}
    exec(compile(code, "problem.py", "exec"), names)
    torch.manual_seed(0)
    model = names["Model"](*names.get("get_init_inputs", list)()).to(device)
    inputs = [value.to(device) if isinstance(value, torch.Tensor) else value for value in names["get_inputs"]()]
    return model, inputs


def _rounds(
    call: torch.nn.Module, inputs: list[Any], device: torch.device, processors: Processors, options: argparse.Namespace
) -> tuple[list[list[list[float]]], list[list[bool]]]:
    """Return the seconds of each call in each round of A and B, and whether the processor stayed fast in each round."""
    evicted = torch.empty(_EVICTED_BYTES, dtype=torch.uint8, device=device)
    synchronize: Callable[[], object] = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    rounds: list[list[list[float]]] = [[], []]
    calm: list[list[bool]] = [[], []]
    with torch.no_grad():
        for _ in range(_WARM_UP):
            call(*inputs)
        end = time.perf_counter() + options.seconds
        while time.perf_counter() < end:
            for side in (0, 1) if len(rounds[0]) % 2 == 0 else (1, 0):
                if (chosen := processors.choose()) is not None:
                    os.sched_setaffinity(0, {chosen})
                seconds = []
                for step in range(options.calls + 1):  # the first call is not timed: it warms up a new processor
                    evicted.zero_()
                    synchronize()
                    began = time.perf_counter()
                    call(*inputs)
                    synchronize()
                    if step:
                        seconds.append(time.perf_counter() - began)
                rounds[side].append(seconds)
                calm[side].append(processors.is_quick())
    return rounds, calm


if __name__ == "__main__":
    raise SystemExit(main())

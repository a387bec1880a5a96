"""The reference as a candidate: how much less it takes in a runner than in the judge, which times it for everybody.

The very same kernel takes 0.1 to 0.5 us longer in the judge than in a runner, whatever it takes (H200; "Lessons measured" in
docs/architecture.md). Of a kernel of 5 us that is several per cent, and each candidate would seem so much too good. So a
short reference is evaluated in runners of its own, like any candidate, and what it takes there counts.
"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ..spec import EvalSpec
from ..toolkits import Problem
from . import timing
from .baseline import Baseline

#: References that take longer than this, in seconds, are not worth it: a difference of 0.4 us is less than 3 % of them.
_SHORT = 15e-6
#: Runners that it is evaluated in: each takes 0.1 us more or less than another.
_RUNNERS = 2
#: More than this, in seconds, is no difference between processes.
_MOST = 1.5e-6
#: How often it is evaluated for one problem: again after it failed, or when the judge has come to take clearly longer or
#: shorter than it did.
_ROUNDS = 3


def is_wanted(spec: EvalSpec, problem: Problem, reference: Sequence[timing.Burst]) -> bool:
    """Say whether a reference is short, was queued ahead of the device, and can be a candidate as it is."""
    if not reference or not timing.launching(reference) or spec.torch_compile or problem.cases is not None:
        return False
    return statistics.median(second for burst in reference for second in burst.device_seconds) < _SHORT


def spec_of(spec: EvalSpec, problem: Problem) -> EvalSpec:
    """Return what evaluates the reference of `spec` as a candidate for the same problem."""
    renamed = f"\n\n{problem.symbol} = {spec.entry_point}\n"
    return dataclasses.replace(
        spec,
        kernel_code=spec.reference_code + renamed,
        correct_trials=1,
        enable_profiling=False,
        provenance_policy="PROVENANCE_POLICY_LABEL",
    )


async def shift(baseline: Baseline, evaluate: Callable[[], Coroutine[Any, Any, dict[str, Any]]]) -> float:
    """Return how many seconds longer a call of the reference takes in a runner (shorter, where negative).

    `evaluate` is called where that is not known, and returns a result as a candidate's. 0 where the reference does not pass
    as one.
    """
    async with baseline.shifting:
        if not baseline.shift_known and baseline.shift_rounds < _ROUNDS:
            baseline.shift_rounds += 1
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(evaluate()) for _ in range(_RUNNERS)]
            differences = [_difference(task.result()) for task in tasks]
            found = [seconds for seconds in differences if seconds is not None and abs(seconds) <= _MOST]
            if found:
                baseline.shift, baseline.shift_known = statistics.fmean(found), True
        return baseline.shift


def _difference(result: dict[str, Any]) -> float | None:
    timed = result.get("candidate_timing")
    if timed is None or timed["clock"] != "CLOCK_DEVICE_EVENTS":
        return None
    reference = result["reference_timing"]
    if timed["launch_mode"] != reference["launch_mode"]:
        return None
    seconds: float = timed["median_seconds"] - reference["median_seconds"]
    return seconds


def shifted(bursts: Sequence[timing.Burst], seconds: float) -> list[timing.Burst]:
    """Return bursts of the reference as they would have been in a runner."""
    return [
        dataclasses.replace(
            burst, device_seconds=[max(each + seconds, timing.SHORTEST) for each in burst.device_seconds]
        )
        for burst in bursts
    ]

"""The reference as a candidate: what it takes in a runner, where the judge, which times it for everybody, takes longer.

The very same kernel takes 0.1 to 0.5 us longer in the judge than in a runner, whatever it takes (H200; "Lessons measured" in
docs/architecture.md). Of a kernel of 5 us that is several per cent, and each candidate would seem so much too good. So a
short reference is evaluated in runners of its own, like any candidate, and what it takes there counts.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ..spec import EvalSpec, Limits
from ..toolkits import Problem
from . import timing
from .baseline import PAUSE, Baseline

_log = logging.getLogger("kerneldyno.judge")

#: References that take longer than this, in seconds, are not worth it: a difference of 0.4 us is less than 3 % of them.
_SHORT = 15e-6
#: Runners that it is evaluated in, one after the other: each takes 0.1 us more or less than another. And how long both may
#: take, in seconds.
_RUNNERS = 2
_PATIENCE = 120.0
#: More than this, in seconds, or than this share of the time, is no difference between processes.
_MOST = 1.5e-6
_MOST_SHARE = 0.2
#: The same for everybody who shares what is found.
_CALLS = 100
_WARMUP = 3


def is_wanted(problem: Problem, reference: Sequence[timing.Burst]) -> bool:
    """Say whether a reference is short, was queued ahead of the device, and can be a candidate."""
    if not reference or not timing.launching(reference) or not problem.as_candidate:
        return False
    return _median(reference) < _SHORT


def spec_of(spec: EvalSpec, problem: Problem) -> EvalSpec:
    """Return what evaluates the reference of `spec` as a candidate for the same problem."""
    return dataclasses.replace(
        spec,
        kernel_code=problem.as_candidate,
        backend="triton",  # which takes any Python
        correct_trials=1,
        perf_trials=_CALLS,
        warmup=_WARMUP,
        limits=Limits(60, 60, 60, 60),
        enable_profiling=False,
        provenance_policy="PROVENANCE_POLICY_LABEL",
    )


async def median(baseline: Baseline, evaluate: Callable[[], Awaitable[dict[str, Any]]]) -> float | None:
    """Return the seconds that a call of the reference takes in a runner, or None where nobody can say.

    `evaluate` evaluates it there. It is called again when what is known is of a reference that has been forgotten since, and
    after a while where nothing came of it.
    """
    async with baseline.looking:
        if time.monotonic() >= baseline.in_runner_until:
            try:
                async with asyncio.timeout(_PATIENCE):
                    found = [_median_of(await evaluate()) for _ in range(_RUNNERS)]
            except Exception as error:  # nobody's verdict shall be lost for it
                _log.warning("what a reference takes in a runner is not known: %r", error)
                found = []
            known = [seconds for seconds in found if seconds is not None]
            baseline.in_runner = statistics.fmean(known) if known else None
            baseline.in_runner_until = math.inf if known else time.monotonic() + PAUSE
        return baseline.in_runner


def _median_of(result: dict[str, Any]) -> float | None:
    timed = result.get("candidate_timing")
    if timed is None or timed["clock"] != "CLOCK_DEVICE_EVENTS":
        return None
    seconds: float = timed["median_seconds"]
    return seconds if timed["launch_mode"] == result["reference_timing"]["launch_mode"] else None


def shifted(bursts: Sequence[timing.Burst], seconds: float | None) -> list[timing.Burst]:
    """Return the judge's bursts of the reference as they would be in a runner, where the median of calls is `seconds`."""
    here = _median(bursts)
    if seconds is None or abs(seconds - here) > min(_MOST, _MOST_SHARE * here):
        return list(bursts)
    return [
        dataclasses.replace(
            burst, device_seconds=[max(each + seconds - here, timing.SHORTEST) for each in burst.device_seconds]
        )
        for burst in bursts
    ]


def _median(bursts: Sequence[timing.Burst]) -> float:
    return statistics.median(second for burst in bursts for second in burst.device_seconds)

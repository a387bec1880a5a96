"""Timing one candidate: which bursts are made, in which order, and what follows from them. Called by the lane.

All of it happens under the exclusive lease; the runner stands still except in its own bursts. Cold bursts of reference,
nothing and candidate in turn give the reported times; warm ones, in which nothing lies between the calls, tell by the
judge's clock alone whether those can be true. More warm ones are made until the clock is sharp.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import statistics
import time
from typing import Any

from ..devices.base import Device
from . import timing, verdict
from .bursts import Bursts
from .candidate import Candidate
from .problems import Announce, Known
from .trial import Trial

_log = logging.getLogger("kerneldyno.judge")

#: Bursts of each kind; warm ones until the clock is sharp, at the most so many pairs.
_COLD_BURSTS = 8
_WARM_PAIRS = 3
_MOST_WARM_PAIRS = 16
#: Length of a long warm burst: about so many seconds, and at least so many calls if memory allows. On the CPU, where
#: interpreted calls take milliseconds, shorter ones are sharp enough.
_WARM_SECONDS = {"cuda": 0.1, "cpu": 0.04}
_SHORTEST_LONG = 4
#: A burst longer than this is not rehearsed: its calls are so long that few launches are queued.
_REHEARSAL_SECONDS = 0.5
#: Share of the timing limit that planned calls may take.
_TIMING_SHARE = 0.3
#: Longest stretch of reference bursts in one timing, in seconds.
_MAX_REFERENCE_SECONDS = 20.0
#: How much slower than at its quietest the device may be before somebody else must be using it.
_QUIET_FACTOR = 1.3
_QUIET_SECONDS = 0.5


class DeviceBusyError(Exception):
    """Somebody else uses the device, and does not stop: nothing can be timed now."""


class Quiet:
    """Knows how fast the device is when nobody else uses it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._best = min((device.probe_seconds() for _ in range(5)), default=0.0)

    async def wait(self) -> bool:
        """Wait until the device is quiet; False when it does not become so."""
        deadline = time.monotonic() + _QUIET_SECONDS
        while True:
            now = min(self._device.probe_seconds() for _ in range(3))
            self._best = min(self._best, now) if now else 0.0
            if now <= self._best * _QUIET_FACTOR:
                return True
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)


async def measure(
    candidate: Candidate, known: Known, example: Trial, announce: Announce, quiet: Quiet
) -> verdict.Result:
    """Time the candidate; return the part of the result that says how fast it is. Raises Finished, ReferenceFailure."""
    rng = random.Random(secrets.randbits(64))
    await candidate.runner.stop()
    if not await quiet.wait():
        raise DeviceBusyError
    device = candidate.device
    bursts = Bursts(candidate, known, announce, example, rng)
    timed = known.problem.timed is not None
    before = device.state()
    per_call = await _warm_up(bursts, candidate, timed=timed)
    affordable = int(_TIMING_SHARE * candidate.spec.limits.timing / max(per_call, 1e-7))
    calls = max(1, min(candidate.spec.perf_trials, max(affordable, _COLD_BURSTS)))
    cold, cold_empty, reference = [], [], []
    spent = 0.0
    for length in timing.lengths(calls, bursts.longest, _COLD_BURSTS, rng):
        count = min(length, bursts.longest)
        right = bursts.draw(count)
        if not await quiet.wait():  # what a stopped candidate left on the device would slow the reference down
            raise candidate.record.reject("T26", "the candidate keeps the device busy after it has answered")
        if timed and spent < _MAX_REFERENCE_SECONDS:
            reference.append(await bursts.reference(count))
            spent += reference[-1].wall_seconds
        cold_empty.append(bursts.nothing(count, cold=True))
        cold.append(await bursts.candidate_burst(count, right, cold=True))
    evidence = timing.Evidence(cold, cold_empty, [], [], device.kind, bursts.gated, cold_reference=reference)
    await _add_warm_bursts(evidence, bursts, per_call)
    conclusion = timing.conclude(evidence)
    _log.debug("%s", timing.summary(evidence))
    return _result(candidate, conclusion, reference, rng, _state(before, device.state()))


async def _warm_up(bursts: Bursts, candidate: Candidate, *, timed: bool) -> float:
    """Make the untimed calls that were asked for; return how long one takes, in seconds.

    Nothing waits behind a gate yet: what is loaded or tuned at first use would wait for the device, and so for the gate.
    """
    for cold in (False, True):
        count = min(max(1, candidate.spec.warmup), bursts.longest)
        right = bursts.draw(count)
        if timed:
            await bursts.reference(count, gated=False)
        bursts.nothing(count, cold=cold, gated=False)
        last = await bursts.candidate_burst(count, right, cold=cold, gated=False)
    per_call = last.wall_seconds / last.calls
    # How much can be queued ahead is found out before anything counts.
    while bursts.gated and bursts.longest * per_call < _REHEARSAL_SECONDS:
        longest = bursts.longest
        await bursts.candidate_burst(longest, bursts.draw(longest), cold=True)
        if bursts.longest == longest:
            break
    return per_call


async def _add_warm_bursts(evidence: timing.Evidence, bursts: Bursts, per_call: float) -> None:
    """Make pairs of a short and a long warm burst until the judge's clock is sharp."""
    long = max(_SHORTEST_LONG, min(bursts.longest, int(_WARM_SECONDS[evidence.kind] / max(per_call, 1e-6))))
    long = min(long, bursts.longest)
    for pair in range(_MOST_WARM_PAIRS):
        for count in (max(1, long // 4), long):
            right = bursts.draw(count)
            if evidence.cold_reference and pair == 0 and evidence.kind == "cuda":
                evidence.warm_reference.append(await bursts.reference(count, cold=False))
            evidence.warm_empty.append(bursts.nothing(count, cold=False))
            evidence.warm.append(await bursts.candidate_burst(count, right, cold=False))
        if pair + 1 >= _WARM_PAIRS and timing.sharp(evidence):
            break


def _result(
    candidate: Candidate,
    conclusion: timing.Timing,
    reference: list[timing.Burst],
    rng: random.Random,
    state: dict[str, Any],
) -> verdict.Result:
    record = candidate.record
    if conclusion.doubt is not None:
        record.find(conclusion.doubt[0], "SEVERITY_WARNING", conclusion.doubt[1])
    result: verdict.Result = {"candidate_timing": conclusion.to_json(), "correctness": record.report()}
    if state:
        result["device_state"] = state
    if reference:
        baseline = timing.conclude_trusted(reference)
        low, high = timing.ratio_interval(baseline, conclusion, rng)
        result["reference_timing"] = baseline.to_json()
        result["speedup"] = baseline.median / conclusion.median
        result["speedup_interval"] = {"low": low, "high": high}
    return result


def _state(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    if not before or not after:
        return {}
    reasons = sorted({*before["throttle_reasons"], *after["throttle_reasons"]})
    return {
        "sm_clock_mhz_before": before["sm_clock_mhz"],
        "sm_clock_mhz_after": after["sm_clock_mhz"],
        "memory_clock_mhz": after["memory_clock_mhz"],
        "temperature_celsius": after["temperature_celsius"],
        "power_watts": statistics.fmean((before["power_watts"], after["power_watts"])),
        "throttle_reasons": reasons,
    }

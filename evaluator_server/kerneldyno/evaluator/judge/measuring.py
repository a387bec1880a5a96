"""Timing one candidate: which bursts are made, in which order, and what follows from them. Called by the lane.

Inputs are drawn before, outputs compared and conclusions drawn after; what lies between happens under the exclusive lease,
and the runner stands still except in its own bursts. Cold bursts of reference, nothing and candidate in turn give the
reported times; warm ones, in which nothing lies between the calls, tell by the judge's clock alone whether those can be
true. More warm ones are made until the clock is sharp, and while it contradicts what is claimed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import statistics
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..devices.base import Device, Pace
from . import timing, verdict
from .bursts import CAPTURED_SETS, Bursts
from .candidate import Candidate
from .levelling import Level, shared_kernels
from .problems import Announce, Known, Problems
from .trial import Trial

_log = logging.getLogger("kerneldyno.judge")

#: Bursts of each kind; warm ones until the clock is settled, at the most so many pairs.
_COLD_BURSTS = 8
_WARM_PAIRS = 2
_MOST_WARM_PAIRS = {"cuda": 16, "cpu": 6}
#: Bursts of the reference and of nothing that are made in every timing, however well known they are.
_AGAIN = 3
#: No more warm bursts than this, in seconds, for whom a sharp clock contradicts.
_SETTLING_SECONDS = 0.5
#: Length of a long warm burst: about so many seconds, and at least so many calls. Longer ones would be no sharper.
_WARM_SECONDS = 0.1
_SHORTEST_LONG = 2
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
        #: How long a kernel that does next to nothing takes in this process.
        self.pace = device.pace()

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


@dataclass(frozen=True, slots=True)
class Measured:
    """What a timing has found."""

    evidence: timing.Evidence
    reference: Sequence[timing.Burst]
    state: dict[str, Any]
    #: Whether the candidate's calls, and the reference's, were replayed as CUDA graphs.
    replayed: bool
    reference_replayed: bool
    reference_kernels: int


class Session:
    """The timing of one candidate. `prepare` before it has the device to itself, `measure` while it has, `judge` after."""

    def __init__(self, candidate: Candidate, known: Known, example: Trial, announce: Announce, quiet: Quiet) -> None:
        self._candidate = candidate
        self._known = known
        self._example = example
        self._kernels = 1
        self._quiet = quiet
        self._rng = random.Random(secrets.randbits(64))
        self._bursts = Bursts(candidate, known, announce, example, self._rng)
        self._timed = known.problem.timed is not None
        # Short calls are the rule: what they need is known beforehand. Longer ones will be called less often.
        self._lengths = timing.lengths(candidate.spec.perf_trials, self._bursts.longest, _COLD_BURSTS, self._rng)

    async def prepare(self, problems: Problems, announce: Announce) -> None:
        """Count and draw ahead what will be needed. Raises ReferenceFailure."""
        with contextlib.suppress(torch.OutOfMemoryError):  # another time, then
            counted = await problems.count(self._known, self._example, announce)
            # Nobody knows how many are left when torch.compile has made one of several.
            self._kernels = 1 if self._candidate.spec.torch_compile else counted.kernels
        longest = self._bursts.longest
        warmup = min(max(1, self._candidate.spec.warmup), longest)
        captured = [CAPTURED_SETS] if self._candidate.spec.cuda_graph else []
        warm = [max(1, longest // 4), longest] * _WARM_PAIRS
        counts = [*captured, warmup, warmup, *self._lengths, *warm]
        await self._bursts.supply.draw_ahead(counts, lambda: problems.executing(announce))

    async def measure(self) -> Measured:
        """Make all bursts. Raises Finished, ReferenceFailure, DeviceBusyError."""
        candidate, bursts, baseline = self._candidate, self._bursts, self._known.baseline
        await candidate.runner.stop()
        if not await self._quiet.wait():
            raise DeviceBusyError
        bursts.begin()
        before = candidate.device.state()
        if candidate.spec.cuda_graph:
            await bursts.capture()
            baseline.expect(replayed=bursts.reference_replays)
        known = baseline.nothing(self._cold_kind)
        per_call = await _warm_up(
            bursts, candidate, reference=self._timed and not baseline.reference, nothing=not known
        )
        affordable = int(_TIMING_SHARE * candidate.spec.limits.timing / max(per_call, 1e-7))
        calls = max(1, min(candidate.spec.perf_trials, max(affordable, _COLD_BURSTS)))
        if calls < candidate.spec.perf_trials:
            self._lengths = timing.lengths(calls, bursts.longest, _COLD_BURSTS, self._rng)
        while (evidence := await self._evidence(per_call)) is None:
            self._lengths = timing.lengths(calls, bursts.longest, _COLD_BURSTS, self._rng)
        state = _state(before, candidate.device.state())
        measured = Measured(
            evidence, evidence.cold_reference, state, bursts.replays, bursts.reference_replays, self._kernels
        )
        bursts.release()
        return measured

    def judge(self) -> None:
        """Compare what the bursts have left. Raises Finished."""
        self._bursts.judge()

    async def _evidence(self, per_call: float) -> timing.Evidence | None:
        """Make all bursts that count; None when it turns out that not so many calls can be queued ahead, or none at all."""
        queued = self._bursts.queued_ahead
        cold_bursts = await self._cold_bursts()
        if cold_bursts is None:
            return None
        cold, cold_empty, reference = cold_bursts
        evidence = timing.Evidence(
            cold, cold_empty, [], [], self._candidate.device.kind, self._bursts.gated, cold_reference=reference
        )
        await self._add_warm_bursts(evidence, per_call)
        return evidence if self._bursts.queued_ahead == queued else None

    async def _cold_bursts(self) -> tuple[list[timing.Burst], list[timing.Burst], list[timing.Burst]] | None:
        """Make bursts of reference, nothing and candidate in turn; fewer of the former two where they are known.

        None when fewer calls can be queued than was thought.
        """
        bursts, baseline = self._bursts, self._known.baseline
        queued = bursts.queued_ahead
        empties = baseline.nothing(self._cold_kind)
        rounds = range(len(self._lengths))
        again = set(self._rng.sample(rounds, min(len(rounds), _AGAIN)))
        cold: list[timing.Burst] = []
        reference: list[timing.Burst] = []
        for at, length in enumerate(self._lengths):
            count = min(length, bursts.longest)
            right = bursts.draw(count)
            # What a stopped candidate left on the device would slow the reference down.
            if not await self._quiet.wait():
                raise self._candidate.record.reject("T26", "the candidate keeps the device busy after it has answered")
            if self._affords(reference) and (at in again or len(baseline.reference) < len(rounds)):
                reference.append(await bursts.reference(count))
            if at in again or len(empties) < len(rounds):
                empties.append(bursts.nothing(count, cold=True))
            cold.append(await bursts.candidate_burst(count, right, cold=True))
            if bursts.queued_ahead != queued:
                baseline.reference.extend(reference)
                return None
        if len(reference) < len(rounds) and not baseline.still_true(reference):
            baseline.forget_reference()
            for length in self._lengths[len(reference) :]:
                if self._affords(reference):
                    bursts.draw(count := min(length, bursts.longest))
                    reference.append(await bursts.reference(count))
        baseline.reference.extend(reference)
        return cold, list(empties), list(baseline.reference)

    @property
    def _kind(self) -> tuple[Hashable, ...]:
        """What bursts of nothing must have in common with the candidate's."""
        return self._bursts.gated, self._bursts.replays, self._bursts.strides

    @property
    def _cold_kind(self) -> tuple[Hashable, ...]:
        """Which cold bursts of nothing go with the candidate's."""
        return True, *self._kind

    def _affords(self, reference: list[timing.Burst]) -> bool:
        """Say whether the reference is to be timed, and has not taken too long already."""
        return self._timed and sum(burst.wall_seconds for burst in reference) < _MAX_REFERENCE_SECONDS

    async def _add_warm_bursts(self, evidence: timing.Evidence, per_call: float) -> None:
        """Make pairs of a short and a long warm burst until the judge's clock is settled, or fewer calls can be queued."""
        bursts, baseline = self._bursts, self._known.baseline
        long = self._long(per_call)
        evidence.warm_reference.extend(baseline.warm_reference)
        noisy, queued = False, bursts.queued_ahead
        while len(evidence.warm) < 2 * _MOST_WARM_PAIRS[evidence.kind]:
            kinds = {count: (False, *self._kind, count) for count in (max(1, long // 4), long)}
            first = not evidence.warm
            for count, kind in kinds.items():
                right = bursts.draw(count)
                if evidence.cold_reference and len(evidence.warm_reference) < 2 and evidence.kind == "cuda":
                    evidence.warm_reference.append(await bursts.reference(count, cold=False))
                if first or noisy or len(baseline.nothing(kind)) < _WARM_PAIRS:
                    baseline.nothing(kind).append(bursts.nothing(count, cold=False))
                evidence.warm.append(await bursts.candidate_burst(count, right, cold=False))
            if bursts.queued_ahead != queued:
                return
            evidence.warm_empty[:] = [burst for kind in kinds.values() for burst in baseline.nothing(kind)]
            longer = self._long(evidence.warm[-1].wall_seconds / long)
            if longer > 2 * long:  # what was taken for long calls was somebody else's noise: too short to tell anything
                long = longer
                evidence.warm.clear()
            elif len(evidence.warm) >= 2 * _WARM_PAIRS and self._settled(evidence):
                break
            else:
                noisy = timing.nothing_is_noisier(evidence)
        baseline.warm_reference[:] = evidence.warm_reference

    @staticmethod
    def _settled(evidence: timing.Evidence) -> bool:
        """Say whether the clock is sharp, and contradicts nothing, or has been asked for long enough whether it does."""
        spent = sum(burst.wall_seconds for burst in evidence.warm)
        return timing.settled(evidence) or (timing.sharp(evidence) and spent > _SETTLING_SECONDS)

    def _long(self, per_call: float) -> int:
        """Return the length of a long warm burst of calls that take so long, in seconds."""
        return min(self._bursts.longest, max(_SHORTEST_LONG, int(_WARM_SECONDS / max(per_call, 1e-6))))


async def _warm_up(bursts: Bursts, candidate: Candidate, *, reference: bool, nothing: bool) -> float:
    """Make the untimed calls that were asked for, and of what else is new; return how long one takes, in seconds.

    Nothing waits behind a gate yet: what is loaded or tuned at first use would wait for the device, and so for the gate.
    """
    for cold in (False, True):
        count = min(max(1, candidate.spec.warmup), bursts.longest)
        right = bursts.draw(count)
        if reference:
            await bursts.reference(count, gated=False)
        if nothing:
            bursts.nothing(count, cold=cold, gated=False)
        last = await bursts.candidate_burst(count, right, cold=cold, gated=False)
    return last.wall_seconds / last.calls


def report(candidate: Candidate, measured: Measured, judge: Pace | None, typical: float) -> verdict.Result:
    """Return the part of the result that says how fast the candidate is; whatever is doubted becomes a finding.

    `judge` is the pace of this process, `typical` that of runners, in cycles.
    """
    record, reference = candidate.record, measured.reference
    conclusion = timing.conclude(measured.evidence)
    _log.debug("%s", timing.summary(measured.evidence))
    if conclusion.doubt is not None:
        record.find(conclusion.doubt[0], "SEVERITY_WARNING", conclusion.doubt[1])
    level = _level(candidate, measured, judge, typical)
    launched = _launched(measured.evidence.cold, measured.replayed)
    timed = conclusion.to_json() | launched | {"pace_seconds": level.runner}
    result: verdict.Result = {"candidate_timing": timed, "correctness": record.report()}
    if measured.state:
        result["device_state"] = measured.state
    if reference:
        baseline = timing.conclude_trusted(reference, level.seconds)
        low, high = timing.ratio_interval(baseline, conclusion, random.Random(secrets.randbits(64)), level.unsure)
        launched = _launched(reference, measured.reference_replayed)
        levelled = {"pace_seconds": level.judge, "levelled_seconds": level.seconds}
        result["reference_timing"] = baseline.to_json() | launched | levelled
        result["speedup"] = baseline.median / conclusion.median
        result["speedup_interval"] = {"low": low, "high": high}
    return result


def _level(candidate: Candidate, measured: Measured, judge: Pace | None, typical: float) -> Level:
    """Return what makes the reference comparable; a replay takes as long in one process as in another."""
    judge_pace, cycle = (judge.cycles / judge.hertz, 1 / judge.hertz) if judge else (0.0, 0.0)
    kernels, shared = 0, 0.0
    if measured.reference and not measured.reference_replayed:
        kernels = measured.reference_kernels
        if judge_pace:  # what was counted may have been made less by whoever compiled it
            most = timing.conclude_trusted(measured.reference).median / judge_pace
            kernels = max(1, min(kernels, int(most)))
        launching = timing.launching(measured.reference), timing.launching(measured.evidence.cold)
        shared = shared_kernels(kernels, *launching)
    return Level(judge_pace, typical * cycle, candidate.runner.pace * cycle, kernels, shared)


def _launched(bursts: Sequence[timing.Burst], replayed: bool) -> dict[str, Any]:
    mode = "LAUNCH_MODE_CUDA_GRAPH" if replayed else "LAUNCH_MODE_EAGER"
    return {"launch_seconds": timing.launching(bursts), "launch_mode": mode}


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

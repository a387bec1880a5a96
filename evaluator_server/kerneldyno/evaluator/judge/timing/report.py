"""The part of a result that says how fast a candidate is, by device time and by end-to-end time. Called by the lane.

A speedup is a ratio of two times of one regime (`regime.Regime`). Times of two regimes are never compared. If they
would be, that is our own failure, and it is reported as one.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence
from dataclasses import replace

from kerneldyno.v1 import evaluation_pb2 as pb

from ..results import verdict
from ..results.record import Finished, Record
from ..results.times import Times
from ..runners.answers import SHORTEST
from . import device_time, end_to_end_time, ratio
from .device_time import Timing
from .end_to_end_time import PacedBurst
from .measured import Measured, Visit, evidence

_log = logging.getLogger("kerneldyno.judge")


def report(record: Record, measured: Measured, paces: tuple[float, float], device_kind: str) -> Times:
    """Return times, speedups and intervals, and add a finding for each doubt. Raises Finished.

    Args:
        record: The evaluation's record, which gets the findings.
        measured: What the timing has measured.
        paces: The paces of the processes of reference and candidate, in seconds; 0 if processes do not differ in pace.
        device_kind: The kind of device.
    """
    require_one_regime(measured)
    _log.debug("%s", _summary(measured))
    fixed = end_to_end_time.overhead(measured.paced_nothing)
    like = device = None
    ours, theirs = measured.reference, measured.candidate
    if measured.queued:
        like = measured.device_ratio() if ours else None
        rounds = list(range(len(theirs))) if like is None else like.rounds
        device = device_time.conclude(evidence(measured, rounds))
        _find(record, device)
    between = measured.paced_ratio(fixed) if ours else None
    waiting = [visit.paced for visit in (_kept(theirs, between.rounds) if between else theirs)]
    device_seconds = device.median if device else 0.0
    end_to_end = end_to_end_time.conclude_paced(waiting, measured.paced_nothing, device_kind, device_seconds)
    _find(record, end_to_end)
    as_called, mode = pb.TimingStats.REGIME_AS_CALLED, _mode(measured)
    candidate = device or end_to_end
    stats = _stats(candidate, measured.regime, mode)
    stats.launch_seconds, stats.pace_seconds = _launching(theirs), paces[1]
    times = Times(_effort(measured), stats, _stats(end_to_end, as_called, mode), device_state=measured.state)
    times = replace(times, energy=measured.energies[0], reference_energy=measured.energies[1])
    if not between:
        return times
    queued = [visit.queued for visit in _kept(ours, like.reference_rounds) if visit.queued] if like else []
    trusted = device_time.conclude_trusted(queued) if queued else None
    our_waiting = [visit.paced for visit in _kept(ours, between.reference_rounds)]
    waited = _trusted(our_waiting, fixed, trusted.median if trusted else 0.0)
    reference = trusted or waited
    stats = _stats(reference, measured.regime, mode)
    stats.launch_seconds, stats.pace_seconds = _launching(ours), paces[0]
    stats.queued_seconds = measured.queued_reference
    between = between.scaled(
        _raised(end_to_end, waiting, fixed, measured.least(theirs))
        / _raised(waited, our_waiting, fixed, measured.least(ours))
    )
    host = max(0.0, 1 - device.median / end_to_end.median) if device else 1.0
    low, high = ratio.widened(between, waited.median, end_to_end.median, host=host, kind=device_kind)
    speedup, interval = between, pb.Interval(low=low, high=high)
    times = replace(
        times,
        reference_timing=stats,
        reference_end_to_end=_stats(waited, as_called, mode),
        end_to_end_speedup=between.value,
        end_to_end_speedup_interval=interval,
    )
    if device and like:
        speedup = like.scaled(_raised_device(device, _kept(theirs, like.rounds)))
        low, high = ratio.widened(
            speedup, reference.median, device.median, kernels=measured.kernels, same_pace=measured.same_pace
        )
        interval = pb.Interval(low=low, high=high)
    if measured.queued_reference:
        record.find("T31", pb.Finding.SEVERITY_WARNING, _waits(measured, candidate))
    return replace(times, speedup=speedup.value, speedup_interval=interval)


def _summary(measured: Measured) -> str:
    """Return what every round has seen, in microseconds, for a log."""

    def seen(side: str, visits: Sequence[Visit]) -> str:
        device = ",".join(f"{visit.device_seconds * 1e6:.1f}" for visit in visits if visit.queued)
        paced = ",".join(f"{visit.paced_seconds * 1e6:.1f}" for visit in visits)
        return f"{side}_device={device} {side}_paced={paced}"

    checked = f" {device_time.summary(evidence(measured))}" if measured.queued else ""
    spent = " ".join(f"{name}_seconds={seconds:.3f}" for name, seconds in measured.phases.items())
    return (
        f"event=timed regime={_name(measured.regime)} effort={str(measured.effort)!r}"
        f" {seen('candidate', measured.candidate)} {seen('reference', measured.reference)}{checked} {spent}"
    )


def require_one_regime(measured: Measured) -> None:
    """Raise Finished, as a failure of ours, unless all visits of both sides are of one regime."""
    visits = (*measured.candidate, *measured.reference)
    seen = {visit.regime for visit in visits} | ({measured.regime} if visits else set())
    pairs = zip(measured.candidate, measured.reference, strict=False)
    if len(seen) != 1 or any((ours.queued is None) != (theirs.queued is None) for ours, theirs in pairs):
        detail = (
            f"calls were timed in different regimes, which cannot be compared: {', '.join(sorted(map(_name, seen)))}"
        )
        raise Finished(verdict.infrastructure("MIXED_REGIMES", detail, retryable=True))


def _waits(measured: Measured, candidate: Timing) -> str:
    reached = measured.queued_reference / candidate.median
    return (
        "the candidate cannot be queued ahead of the device, but its reference can: both were timed as called. Queued"
        f" ahead, the reference takes {measured.queued_reference * 1e6:.1f} us, which is {reached:.3g} times what the"
        " candidate takes"
    )


def _kept(visits: Sequence[Visit], rounds: Sequence[int]) -> list[Visit]:
    return [visits[at] for at in rounds]


def _raised_device(device: Timing, visits: Sequence[Visit]) -> float:
    """Return the factor by which the candidate's device times were raised because they could not be believed."""
    claimed = statistics.median(second for visit in visits if visit.queued for second in visit.queued.device_seconds)
    return max(1.0, device.median / max(claimed, SHORTEST))


def _raised(concluded: Timing, bursts: Sequence[PacedBurst], fixed: float, least: float) -> float:
    """Return the factor by which a side's end-to-end times were raised because calls take more than was seen."""
    seen = statistics.median(max(least, second - fixed) for burst in bursts for second in burst.seconds)
    return max(1.0, concluded.median / seen)


def _trusted(bursts: Sequence[PacedBurst], fixed: float, device_seconds: float) -> Timing:
    """Return the reference's end-to-end times. It hides nothing, so apparent hidden work is the host's noise."""
    samples = [max(SHORTEST, second - fixed) for burst in bursts for second in burst.seconds]
    samples = end_to_end_time.no_less_than_device(samples, device_seconds)
    return Timing(samples, pb.TimingStats.CLOCK_EACH_CALL, statistics.fmean(samples))


def _find(record: Record, concluded: Timing) -> None:
    known = {finding.id for finding in record.findings}
    if concluded.doubt is not None and concluded.doubt[0] not in known:
        record.find(concluded.doubt[0], pb.Finding.SEVERITY_WARNING, concluded.doubt[1])


def _mode(measured: Measured) -> pb.LaunchMode.ValueType:
    return pb.LAUNCH_MODE_CUDA_GRAPH if measured.replayed else pb.LAUNCH_MODE_EAGER


def _name(regime: pb.TimingStats.Regime.ValueType) -> str:
    return pb.TimingStats.Regime.Name(regime)


def _stats(timing: Timing, regime: pb.TimingStats.Regime.ValueType, mode: pb.LaunchMode.ValueType) -> pb.TimingStats:
    """Return the report of one time of one side."""
    ordered = sorted(timing.samples)
    return pb.TimingStats(
        median_seconds=timing.median,
        mean_seconds=statistics.fmean(ordered),
        min_seconds=ordered[0],
        max_seconds=ordered[-1],
        p10_seconds=ordered[round(0.1 * (len(ordered) - 1))],
        p90_seconds=ordered[round(0.9 * (len(ordered) - 1))],
        samples=len(ordered),
        clock=timing.clock,
        judge_seconds=timing.judge_seconds,
        regime=regime,
        launch_mode=mode,
    )


def _launching(visits: Sequence[Visit]) -> float:
    return device_time.launching([visit.queued for visit in visits if visit.queued])


def _effort(measured: Measured) -> pb.TimingEffort:
    """Return the cost of the timing."""

    def calls(visits: Sequence[Visit]) -> int:
        return sum(visit.paced.calls + (visit.queued.calls if visit.queued else 0) for visit in visits)

    return pb.TimingEffort(
        lease_seconds=measured.seconds,
        rounds=len(measured.candidate),
        candidate_calls=calls(measured.candidate) + sum(burst.calls for burst in measured.warm),
        reference_calls=calls(measured.reference),
    )

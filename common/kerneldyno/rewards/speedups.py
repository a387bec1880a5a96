"""Choose the speedup that counts: a result has one by device time and one by end-to-end time, and says which counts.

Scoring, feedback, cards, reports and trainers all take "the" speedup of a result from here, so they all use the same
one. A time that was not measured is never replaced by the other time. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1.evaluation_pb2 import BaselineResult, EvalResult, Interval, TimingStats, WorkloadResult

DEVICE, END_TO_END = pb.SPEEDUP_KIND_DEVICE, pb.SPEEDUP_KIND_END_TO_END

#: Words for people: "1.80x by device time".
WORDS = {DEVICE: "by device time", END_TO_END: "end to end"}
#: Names in files and labels.
NAMES = {DEVICE: "device", END_TO_END: "end_to_end"}


@dataclass(frozen=True, slots=True)
class CountedSpeedup:
    """One of the two speedups of a result, with its times. None means that the result does not have the value."""

    kind: pb.SpeedupKind.ValueType
    #: 0 if there is none: not CORRECT, not timed, no reference to compare with, or `unmeasured`.
    value: float = 0.0
    interval: Interval | None = None
    candidate: TimingStats | None = None
    reference: TimingStats | None = None
    #: True if the candidate was timed, but not by this time: evaluators of earlier releases measure device time only.
    unmeasured: bool = False

    @property
    def low(self) -> float | None:
        """Return the lower end of the 95 % interval, a ratio of times; None without an interval or a finite end."""
        return None if self.interval is None or not math.isfinite(self.interval.low) else self.interval.low

    @property
    def high(self) -> float | None:
        """Return the upper end of the 95 % interval, likewise."""
        return None if self.interval is None or not math.isfinite(self.interval.high) else self.interval.high

    @property
    def words(self) -> str:
        """Return which time this is, in words for people."""
        return WORDS.get(self.kind, f"by time {self.kind}")


def counted_speedup(
    result: EvalResult | WorkloadResult | BaselineResult,
    kind: pb.SpeedupKind.ValueType = pb.SPEEDUP_KIND_UNSPECIFIED,
) -> CountedSpeedup:
    """Return the speedup of `result` that counts, with its interval and the times of both sides.

    Args:
        result: a finished result, complete or as ListEvaluations returns it; or that of one workload, or beside one
            baseline, which has no times of the candidate.
        kind: which speedup to take. UNSPECIFIED takes the one that the result names, or device time if it names none.
    """
    chosen = kind or (result.speedup_kind if isinstance(result, EvalResult) else DEVICE) or DEVICE
    if isinstance(result, BaselineResult):
        device = chosen == DEVICE
        interval = result.speedup_interval if device else result.end_to_end_speedup_interval
        value = result.speedup if device else result.end_to_end_speedup
        return CountedSpeedup(chosen, value, interval if interval.high > 0 else None)
    if chosen == DEVICE:
        return CountedSpeedup(
            chosen,
            result.speedup,
            result.speedup_interval if result.HasField("speedup_interval") else None,
            result.candidate_timing if result.HasField("candidate_timing") else None,
            result.reference_timing if result.HasField("reference_timing") else None,
        )
    if chosen == END_TO_END:
        timed = result.HasField("candidate_end_to_end")
        return CountedSpeedup(
            chosen,
            result.end_to_end_speedup,
            result.end_to_end_speedup_interval if result.HasField("end_to_end_speedup_interval") else None,
            result.candidate_end_to_end if timed else None,
            result.reference_end_to_end if result.HasField("reference_end_to_end") else None,
            unmeasured=result.HasField("candidate_timing") and not timed,
        )
    return CountedSpeedup(chosen, unmeasured=result.HasField("candidate_timing"))  # a kind of a later release


def other_speedup(result: EvalResult, counted: CountedSpeedup) -> CountedSpeedup:
    """Return the speedup of `result` other than `counted`."""
    return counted_speedup(result, DEVICE if counted.kind == END_TO_END else END_TO_END)


def as_called(result: EvalResult) -> bool:
    """Return True if calls could not be queued ahead of the device, so that device time is end-to-end time."""
    return result.candidate_timing.regime == TimingStats.REGIME_AS_CALLED


def most_paid(result: EvalResult | WorkloadResult, counted: CountedSpeedup) -> float:
    """Return the largest speedup that may be paid for `counted`; infinity if nothing limits it.

    A candidate that cannot be queued ahead is timed as called, and so is its reference, which may be much slower that
    way (finding T31). Without this limit a candidate could gain by making its reference's calls wait.
    """
    queued, own = result.reference_timing.queued_seconds, result.candidate_timing.median_seconds
    if counted.kind != DEVICE or not queued > 0 or not own > 0:
        return math.inf
    return queued / own


def counted_in_json(result: Mapping[str, Any]) -> float:
    """Return the speedup that counts of a result in proto-JSON; 0 if it has none.

    Raises:
        TypeError, ValueError: the value is not a number.
    """
    return float(result.get(_counted_field(result)) or 0.0)


def counted_interval_in_json(result: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return both ends of the 95 % interval of the speedup that counts, of a result in proto-JSON.

    Returns:
        Lower and upper end, ratios of times. An end that is not finite is None; both are None without an interval.

    Raises:
        TypeError, ValueError: the value is not an interval.
    """
    interval = result.get(f"{_counted_field(result)}_interval")
    if interval is None:
        return None, None
    if not isinstance(interval, Mapping):
        raise TypeError(f"{str(interval)[:60]!r} is not an interval")
    # proto-JSON leaves zeros out, and writes NaN and infinity as words, which float() accepts.
    low, high = float(interval.get("low") or 0.0), float(interval.get("high") or 0.0)
    return low if math.isfinite(low) else None, high if math.isfinite(high) else None


def _counted_field(result: Mapping[str, Any]) -> str:
    """Return the field of the speedup that counts in a result's proto-JSON; "" for a kind of a later release."""
    kind = result.get("speedup_kind") or "SPEEDUP_KIND_UNSPECIFIED"
    fields = {
        "SPEEDUP_KIND_UNSPECIFIED": "speedup",
        "SPEEDUP_KIND_DEVICE": "speedup",
        "SPEEDUP_KIND_END_TO_END": "end_to_end_speedup",
    }
    return fields.get(str(kind), "")

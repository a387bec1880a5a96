"""What a timing says of a candidate: the times and speedups of a result, by their names in EvalResult.

Made by `timing/report.py`; `verdict.correct` puts it into the result.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerneldyno.v1 import evaluation_pb2 as pb


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a candidate. Those of the reference, and the speedups, are None where there is none to compare with."""

    timing_effort: pb.TimingEffort
    candidate_timing: pb.TimingStats
    candidate_end_to_end: pb.TimingStats
    reference_timing: pb.TimingStats | None = None
    reference_end_to_end: pb.TimingStats | None = None
    speedup: float | None = None
    speedup_interval: pb.Interval | None = None
    end_to_end_speedup: float | None = None
    end_to_end_speedup_interval: pb.Interval | None = None
    #: None where the device does not report it.
    device_state: pb.DeviceState | None = None
    #: None where it cannot be told.
    roofline: pb.Roofline | None = None

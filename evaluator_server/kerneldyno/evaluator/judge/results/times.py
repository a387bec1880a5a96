"""The times and speedups of a candidate, by their names in EvalResult.

`timing/report.py` makes them, and `verdict.correct` puts them into the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kerneldyno.v1 import evaluation_pb2 as pb


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a candidate. If there is no reference to compare with, its times and the speedups are None."""

    timing_effort: pb.TimingEffort
    candidate_timing: pb.TimingStats
    candidate_end_to_end: pb.TimingStats
    reference_timing: pb.TimingStats | None = None
    reference_end_to_end: pb.TimingStats | None = None
    speedup: float | None = None
    speedup_interval: pb.Interval | None = None
    end_to_end_speedup: float | None = None
    end_to_end_speedup_interval: pb.Interval | None = None
    #: None if the device does not report it.
    device_state: pb.DeviceState | None = None
    #: None if it cannot be measured.
    roofline: pb.Roofline | None = None
    baselines: Sequence[pb.BaselineResult] = ()
    #: None if it was not asked for, or is unknown.
    energy: pb.Energy | None = None
    reference_energy: pb.Energy | None = None

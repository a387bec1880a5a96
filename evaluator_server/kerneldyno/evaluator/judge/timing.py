"""The clock: how long one call of a candidate takes, by the judge's own time.

Bursts of random length run alternately in the runner (the candidate), in the judge (the reference) and in the judge again
(nothing, through the same loop). A runner's burst counts from the moment the judge asks to the moment the answer is there
and its outputs lie in the judge's memory. What one call costs is the slope of burst time over burst length, less the slope
of the empty bursts, so that fixed costs of messages and waiting cancel. Times that the runner reports from device events
are finer, and are believed only while they agree with that slope; else the slope counts and a finding (T01) says so.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: Bursts of each kind.
_BURSTS = 8
#: Disagreement that is still called agreement: this factor and this many seconds per call. Measured noise of the slope is
#: about 5 us a call on a GPU (docs/benchmarks.md); host timers on a busy CPU are off by far more.
_FACTOR = 1.25
_SLACK_SECONDS = {"cuda": 20e-6, "cpu": 2e-3}
_RESAMPLES = 400


@dataclass(frozen=True, slots=True)
class Burst:
    """One burst: its length in calls, its wall time, and the device time of each call."""

    calls: int
    wall_seconds: float
    device_seconds: Sequence[float]


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one call takes, in seconds."""

    samples: Sequence[float]
    clock: str
    judge_seconds: float
    agrees: bool
    device_median: float

    @property
    def median(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples)

    def to_json(self) -> dict[str, Any]:
        """The proto-JSON of TimingStats."""
        ordered = sorted(self.samples)
        return {
            "median_seconds": self.median,
            "mean_seconds": statistics.fmean(ordered),
            "min_seconds": ordered[0],
            "max_seconds": ordered[-1],
            "p10_seconds": ordered[round(0.1 * (len(ordered) - 1))],
            "p90_seconds": ordered[round(0.9 * (len(ordered) - 1))],
            "samples": len(ordered),
            "clock": self.clock,
            "judge_seconds": self.judge_seconds,
        }


def burst_lengths(calls: int, rng: random.Random) -> list[int]:
    """Divide `calls` into bursts of random, clearly different lengths that nobody can predict."""
    bursts = max(1, min(_BURSTS, calls // 2))
    weights = [rng.uniform(0.4, 1.6) for _ in range(bursts)]
    total = sum(weights)
    lengths = [max(1, round(calls * weight / total)) for weight in weights]
    return lengths


def timed(run: Callable[[], Sequence[float]], calls: int) -> Burst:
    """Run a burst of the judge's own and time it."""
    begin = time.perf_counter()
    device_seconds = run()
    return Burst(calls, time.perf_counter() - begin, device_seconds)


def slope(bursts: Sequence[Burst]) -> float:
    """Return seconds a call by least squares over bursts, or the plain mean where the lengths do not differ."""
    mean_calls = statistics.fmean(burst.calls for burst in bursts)
    mean_wall = statistics.fmean(burst.wall_seconds for burst in bursts)
    spread = sum((burst.calls - mean_calls) ** 2 for burst in bursts)
    if spread < 1:
        return mean_wall / mean_calls
    return sum((burst.calls - mean_calls) * (burst.wall_seconds - mean_wall) for burst in bursts) / spread


def conclude(bursts: Sequence[Burst], empty: Sequence[Burst], kind: str) -> Timing:
    """Decide what the bursts of a candidate say, given empty ones of the same loop on the same device."""
    overhead = max(0.0, slope(empty))
    by_judge = max(1e-9, slope(bursts) - overhead)
    device = [sample for burst in bursts for sample in burst.device_seconds]
    # The mean, not the median: work that is done only now and then must cost what it costs (T27).
    agrees = min(device) > 0 and by_judge <= _FACTOR * statistics.fmean(device) + _SLACK_SECONDS[kind]
    if agrees:
        return Timing(device, "CLOCK_DEVICE_EVENTS", by_judge, True, statistics.median(device))
    return Timing(_by_judge(bursts, overhead), "CLOCK_JUDGE", by_judge, False, statistics.median(device))


def conclude_trusted(bursts: Sequence[Burst], empty: Sequence[Burst], *, by_judge: bool) -> Timing:
    """The same for the reference, whose device times are the judge's own; `by_judge` puts it on the candidate's clock."""
    overhead = max(0.0, slope(empty))
    device = [sample for burst in bursts for sample in burst.device_seconds]
    samples = _by_judge(bursts, overhead) if by_judge else device
    clock = "CLOCK_JUDGE" if by_judge else "CLOCK_DEVICE_EVENTS"
    return Timing(samples, clock, max(1e-9, slope(bursts) - overhead), True, statistics.median(device))


def _by_judge(bursts: Sequence[Burst], overhead: float) -> list[float]:
    """Seconds a call of each burst. Messages count in: where clocks disagree, the slower one is believed."""
    return [max(1e-9, burst.wall_seconds / burst.calls - overhead) for burst in bursts]


def ratio_interval(reference: Timing, candidate: Timing, rng: random.Random) -> tuple[float, float]:
    """Return a 95 % bootstrap interval of the ratio of medians, reference over candidate."""

    def resampled(samples: Sequence[float]) -> float:
        return statistics.median(rng.choices(samples, k=len(samples)))

    ratios = sorted(resampled(reference.samples) / resampled(candidate.samples) for _ in range(_RESAMPLES))
    return ratios[round(0.025 * _RESAMPLES)], ratios[round(0.975 * _RESAMPLES) - 1]

"""The clock: how long one call of a candidate takes, by the judge's own time.

Bursts of random length run in turn in the runner (the candidate), in the judge (the reference) and in the judge again
(nothing, through the same loop). A runner's burst counts from the moment the judge asks to the moment the answer is there
and its outputs lie in the judge's memory. What one call costs is the slope of burst time over burst length, less the slope
of the empty bursts, so that fixed costs of messages and waiting cancel. Times that the runner reports from device events
are finer, and are believed only while they agree with that slope within its own standard error; else the judge's time
counts, and a finding (T01) says so.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: Bursts of each kind.
_BURSTS = 8
#: Disagreement that is still called agreement: this factor, this many seconds a call, and this many standard errors.
_FACTOR = 1.25
_SLACK_SECONDS = {"cuda": 10e-6, "cpu": 200e-6}
_STANDARD_ERRORS = 2.0
#: Noise, in seconds a call, that is not worth a second measurement. The interpreter's times on the CPU are not worth much.
_GOOD_ENOUGH_SECONDS = {"cuda": 15e-6, "cpu": 3e-3}
#: Share of the device time of an empty call below which a device time is an invention.
_LEAST = 0.5
_RESAMPLES = 400


@dataclass(frozen=True, slots=True)
class Burst:
    """One burst: its length in calls, its wall time, and the device time of each call."""

    calls: int
    wall_seconds: float
    device_seconds: Sequence[float]


@dataclass(frozen=True, slots=True)
class Line:
    """Burst time over burst length: seconds a call, its standard error, and seconds a burst of any length costs."""

    slope: float
    error: float
    intercept: float


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one call takes, in seconds."""

    samples: Sequence[float]
    clock: str
    judge_seconds: float
    device_median: float
    #: Whether the bursts were quiet enough to tell a lie of the size of the device times themselves.
    sharp: bool

    @property
    def agrees(self) -> bool:
        """Whether the device times were believed."""
        return self.clock == "CLOCK_DEVICE_EVENTS"

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
    weights = [rng.uniform(0.2, 1.8) for _ in range(bursts)]
    total = sum(weights)
    return [max(1, round(calls * weight / total)) for weight in weights]


def timed(run: Callable[[], Sequence[float]], calls: int) -> Burst:
    """Run a burst of the judge's own and time it."""
    begin = time.perf_counter()
    device_seconds = run()
    return Burst(calls, time.perf_counter() - begin, device_seconds)


def fit(bursts: Sequence[Burst]) -> Line:
    """Fit burst time over length by least squares; without different lengths, the plain mean and no idea of its error."""
    count = len(bursts)
    mean_calls = statistics.fmean(burst.calls for burst in bursts)
    mean_wall = statistics.fmean(burst.wall_seconds for burst in bursts)
    spread = sum((burst.calls - mean_calls) ** 2 for burst in bursts)
    if count < 3 or spread < 1:
        return Line(mean_wall / mean_calls, mean_wall / mean_calls, 0.0)
    slope = sum((burst.calls - mean_calls) * (burst.wall_seconds - mean_wall) for burst in bursts) / spread
    intercept = mean_wall - slope * mean_calls
    rest = sum((burst.wall_seconds - intercept - slope * burst.calls) ** 2 for burst in bursts)
    return Line(slope, math.sqrt(rest / (count - 2) / spread), intercept)


def conclude(bursts: Sequence[Burst], empty: Sequence[Burst], kind: str) -> Timing:
    """Decide what the bursts of a candidate say, given empty ones of the same loop on the same device."""
    ours, nothing = fit(bursts), fit(empty)
    by_judge = max(1e-9, ours.slope - max(0.0, nothing.slope))
    error = math.hypot(ours.error, nothing.error)
    device = [sample for burst in bursts for sample in burst.device_seconds]
    device_median = statistics.median(device)
    # The mean, not the median: work that is done only now and then must cost what it costs (T27).
    mean, slack = statistics.fmean(device), _SLACK_SECONDS[kind]
    noise = slack + _STANDARD_ERRORS * error
    sharp = noise <= max(mean, _GOOD_ENOUGH_SECONDS[kind])
    # Nothing at all, timed by the judge on the same device, is the least that a call can take (T28).
    least = _LEAST * statistics.median(sample for burst in empty for sample in burst.device_seconds)
    if device_median > least and by_judge <= _FACTOR * mean + noise:
        return Timing(device, "CLOCK_DEVICE_EVENTS", by_judge, device_median, sharp)
    # Messages and waiting count in here: where the clocks disagree, whatever is slower is believed.
    samples = [max(1e-9, burst.wall_seconds / burst.calls - max(0.0, nothing.slope)) for burst in bursts]
    return Timing(samples, "CLOCK_JUDGE", by_judge, device_median, sharp)


def conclude_trusted(bursts: Sequence[Burst], empty: Sequence[Burst]) -> Timing:
    """The same for the reference, whose device times are the judge's own."""
    device = [sample for burst in bursts for sample in burst.device_seconds]
    by_judge = max(1e-9, fit(bursts).slope - max(0.0, fit(empty).slope))
    return Timing(device, "CLOCK_DEVICE_EVENTS", by_judge, statistics.median(device), True)


def ratio_interval(reference: Timing, candidate: Timing, rng: random.Random) -> tuple[float, float]:
    """Return a 95 % bootstrap interval of the ratio of medians, reference over candidate."""

    def resampled(samples: Sequence[float]) -> float:
        return statistics.median(rng.choices(samples, k=len(samples)))

    ratios = sorted(resampled(reference.samples) / resampled(candidate.samples) for _ in range(_RESAMPLES))
    return ratios[round(0.025 * _RESAMPLES)], ratios[round(0.975 * _RESAMPLES) - 1]

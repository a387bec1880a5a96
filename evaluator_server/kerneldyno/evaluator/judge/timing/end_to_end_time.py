"""End-to-end time: how long a caller waits who makes one call on an idle device and waits for its result.

The judge releases each call and sees when its output is there, by words in shared memory and its own clock. Nothing
that a runner says is part of the number. The cost of the loop itself (two signals, a copy of the output, a wait for an
idle device) is measured on a call that does nothing, and subtracted. A candidate could hide work between the calls,
while caches are flushed, so the judge looks for that: a burst may not last longer than its calls and the gaps of an
empty burst together. This module is pure arithmetic.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kerneldyno.v1 import evaluation_pb2 as pb

from ..runners.answers import SHORTEST
from . import ratio
from .device_time import Timing

#: Time between the calls of a burst that is tolerated beyond an empty burst's: seconds per call, seconds per burst, and
#: a share of a call.
_GAP = {"cuda": 10e-6, "cpu": 100e-6}
_BURST_GAP = {"cuda": 0.15e-3, "cpu": 0.5e-3}
_SHARE = 0.25
#: How much less than the judge sees a runner may claim, as a share and in seconds: the clocks are one signal apart.
_UNDERSTATED = 0.8
_SIGNALLING = {"cuda": 20e-6, "cpu": 100e-6}
#: An end-to-end time below the first share of the device time is impossible, with one exception: a call whose inputs
#: were just written may find them in the cache, while device time is that of a cold cache. Two honest scans took 70 and
#: 114 us on an H100, and 150 and 187 us of device time. Below the second share, the cache is no explanation either.
_LEAST_OF_DEVICE = 0.9
_LEAST_IN_CACHE = 0.4


@dataclass(frozen=True, slots=True)
class PacedBurst:
    """One burst of calls. The judge has released each call and waited for it."""

    #: Seconds of each call, from its release until it was done, by the judge's clock.
    seconds: Sequence[float]
    #: The same as claimed by the runner.
    claimed: Sequence[float]
    #: Seconds from the moment when the inputs were there until all outputs were.
    wall_seconds: float

    @property
    def calls(self) -> int:
        """Number of calls."""
        return len(self.seconds)

    @property
    def between(self) -> float:
        """Seconds of the burst that are part of no call."""
        return self.wall_seconds - sum(self.seconds)


def overhead(nothing: Sequence[PacedBurst]) -> float:
    """Return the apparent duration of an empty call in seconds, from the calls that nothing delayed.

    A larger value would also be subtracted from calls that nothing delayed, and they would seem quicker than they are.
    """
    return ratio.undisturbed([second for burst in nothing for second in burst.seconds])


def conclude_paced(
    bursts: Sequence[PacedBurst], nothing: Sequence[PacedBurst], kind: str, device_seconds: float = 0.0
) -> Timing:
    """Decide how long a call of one side takes, given empty bursts of the same length.

    `device_seconds` is the device time of its calls, if known: the least that they can take.
    """
    fixed = overhead(nothing)
    samples = [max(SHORTEST, second - fixed) for burst in bursts for second in burst.seconds]
    median = statistics.median(samples)
    hidden = min(_hidden(burst, nothing) for burst in bursts)
    calls = max(burst.calls for burst in bursts)
    judge_seconds = statistics.fmean(samples)
    if hidden > _SHARE * median + _GAP[kind] + _BURST_GAP[kind] / calls:
        said = f"{hidden * 1e6:.1f} us per call pass between the calls, in addition to the time between empty calls"
        bounded = [sample + hidden for sample in samples]
        return Timing(bounded, pb.TimingStats.CLOCK_JUDGE, judge_seconds + hidden, ("T01", f"{said}; this time counts"))
    bounded = no_less_than_device(samples, device_seconds)
    if bounded != samples:
        said = f"a call takes {median * 1e6:.1f} us from end to end, but {device_seconds * 1e6:.1f} us of device time"
        # The empty call may have cost more than usual: the device's time counts, but this is no accusation yet.
        accused = median + fixed < _LEAST_IN_CACHE * device_seconds - _GAP[kind]
        doubt = ("T01", f"{said}; the device time counts") if accused else None
        return Timing(bounded, pb.TimingStats.CLOCK_JUDGE, max(judge_seconds, device_seconds), doubt)
    claimed = statistics.median(second for burst in bursts for second in burst.claimed)
    seen = statistics.median(second for burst in bursts for second in burst.seconds)
    if claimed < _UNDERSTATED * seen - _SIGNALLING[kind]:
        said = f"the runner says that a call takes {claimed * 1e6:.1f} us, but the judge sees {seen * 1e6:.1f} us"
        return Timing(samples, pb.TimingStats.CLOCK_JUDGE, judge_seconds, ("T01", f"{said}; the judge's time counts"))
    return Timing(samples, pb.TimingStats.CLOCK_EACH_CALL, judge_seconds)


def no_less_than_device(samples: Sequence[float], device_seconds: float) -> list[float]:
    """Return end-to-end times, each raised to at least the device time if they are clearly below it."""
    if statistics.median(samples) >= _LEAST_OF_DEVICE * device_seconds:
        return list(samples)
    return [max(sample, device_seconds) for sample in samples]


def _hidden(burst: PacedBurst, nothing: Sequence[PacedBurst]) -> float:
    """Return the seconds per call between the calls of a burst, beyond those between empty calls."""
    gaps = min(other.between / (other.calls + 1) for other in nothing)
    return (burst.between - gaps * (burst.calls + 1)) / burst.calls

"""End-to-end time: how long a caller waits who makes one call on an idle device and waits for its result.

The judge releases each call and sees when its output is there, by words in shared memory and its own clock: nothing that
a runner says is part of the number. What the loop itself costs (two signals, a copy of the output, a wait for an idle
device) is measured on a call that does nothing, and taken off. What could be hidden is work between the calls, while
caches are flushed, and is looked for: a burst may not last longer than its calls and as much between them as a burst of
nothing has. Pure arithmetic.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kerneldyno.v1 import evaluation_pb2 as pb

from ..runners.answers import SHORTEST
from . import ratio
from .device_time import Timing

#: What may lie between the calls of a burst beyond what lies between those of nothing, for each call and for each
#: burst, in seconds, and as a share of a call.
_GAP = {"cuda": 10e-6, "cpu": 100e-6}
_BURST_GAP = {"cuda": 0.15e-3, "cpu": 0.5e-3}
_SHARE = 0.25
#: How much less than the judge has seen a runner may say, as a share and in seconds: two clocks, one signal apart.
_UNDERSTATED = 0.8
_SIGNALLING = {"cuda": 20e-6, "cpu": 100e-6}
#: A call cannot take less from end to end than the device needs for it, all but this share; and one whose inputs have just
#: been written may find them in the cache: two honest scans took 70 and 114 us on an H100, and 150 and 187 us of device
#: time, which is that of a cold cache. Less than this share is neither.
_LEAST_OF_DEVICE = 0.9
_LEAST_IN_CACHE = 0.4


@dataclass(frozen=True, slots=True)
class PacedBurst:
    """One burst of calls, each of which the judge has released and waited for."""

    #: Of each call, from its release until it was done, by the judge's clock.
    seconds: Sequence[float]
    #: The same as the runner says.
    claimed: Sequence[float]
    #: From the moment at which the inputs were there until all outputs were.
    wall_seconds: float

    @property
    def calls(self) -> int:
        """How many calls it has."""
        return len(self.seconds)

    @property
    def between(self) -> float:
        """Seconds of the burst that are part of no call."""
        return self.wall_seconds - sum(self.seconds)


def overhead(nothing: Sequence[PacedBurst]) -> float:
    """Return the seconds that a call seems to take which does nothing, where nothing has delayed it.

    More than that would be taken off calls that nothing has delayed either, and they would seem to be quicker than they
    are.
    """
    return ratio.undisturbed([second for burst in nothing for second in burst.seconds])


def conclude_paced(
    bursts: Sequence[PacedBurst], nothing: Sequence[PacedBurst], kind: str, device_seconds: float = 0.0
) -> Timing:
    """Decide what the bursts of one side say, beside bursts of nothing of the same length.

    `device_seconds` is what its calls take by device time, where that is known: the least that they can take.
    """
    fixed = overhead(nothing)
    samples = [max(SHORTEST, second - fixed) for burst in bursts for second in burst.seconds]
    median = statistics.median(samples)
    hidden = min(_hidden(burst, nothing) for burst in bursts)
    calls = max(burst.calls for burst in bursts)
    judge_seconds = statistics.fmean(samples)
    if hidden > _SHARE * median + _GAP[kind] + _BURST_GAP[kind] / calls:
        said = (
            f"{hidden * 1e6:.1f} us for each call pass between the calls, beyond what passes between calls of nothing"
        )
        bounded = [sample + hidden for sample in samples]
        return Timing(bounded, pb.TimingStats.CLOCK_JUDGE, judge_seconds + hidden, ("T01", f"{said}; they count"))
    bounded = no_less_than_device(samples, device_seconds)
    if bounded != samples:
        said = f"a call takes {median * 1e6:.1f} us from end to end, and {device_seconds * 1e6:.1f} us of the device"
        # What a call of nothing cost may have been more than usual: the device's time counts, and is no accusation yet.
        accused = median + fixed < _LEAST_IN_CACHE * device_seconds - _GAP[kind]
        doubt = ("T01", f"{said}; the latter counts") if accused else None
        return Timing(bounded, pb.TimingStats.CLOCK_JUDGE, max(judge_seconds, device_seconds), doubt)
    claimed = statistics.median(second for burst in bursts for second in burst.claimed)
    seen = statistics.median(second for burst in bursts for second in burst.seconds)
    if claimed < _UNDERSTATED * seen - _SIGNALLING[kind]:
        said = f"the runner says that a call takes {claimed * 1e6:.1f} us, the judge sees {seen * 1e6:.1f} us"
        return Timing(
            samples, pb.TimingStats.CLOCK_JUDGE, judge_seconds, ("T01", f"{said}; what the judge sees counts")
        )
    return Timing(samples, pb.TimingStats.CLOCK_EACH_CALL, judge_seconds)


def no_less_than_device(samples: Sequence[float], device_seconds: float) -> list[float]:
    """Return end-to-end times, each at least the device time where they are clearly below it."""
    if statistics.median(samples) >= _LEAST_OF_DEVICE * device_seconds:
        return list(samples)
    return [max(sample, device_seconds) for sample in samples]


def _hidden(burst: PacedBurst, nothing: Sequence[PacedBurst]) -> float:
    """Return the seconds for each call that lie between the calls of a burst and not between those of nothing."""
    gaps = min(other.between / (other.calls + 1) for other in nothing)
    return (burst.between - gaps * (burst.calls + 1)) / burst.calls

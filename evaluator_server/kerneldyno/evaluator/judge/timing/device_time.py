"""Device time: how long the device works on one queued call, by device events and by the judge's own clock.

A burst lasts from the moment at which the judge lets its inputs into the arena to the moment at which its outputs have
been copied out. The cost of one call is the slope of burst time over burst length, minus the slope of empty bursts of
the same loop, so fixed costs of messages and waiting cancel. Waiting is never negative. So among bursts of one length
the quickest tells most; and a quick burst did all its work, or else its outputs would be wrong. Times that the runner
reports from device events are more precise, but the judge believes them only while they agree with that slope within
its standard error. Otherwise the slower one counts, and a finding says so. This module is pure arithmetic; `bursts`
makes the bursts that are fitted here.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from kerneldyno.v1 import evaluation_pb2 as pb

from ..runners.answers import SHORTEST

#: Largest difference between the clocks that still counts as agreement: a factor, seconds per call, and standard
#: errors. Cold bursts flush the cache between calls, so more has to be subtracted from them. Cold and warm calls also
#: differ from each other: honest kernels were seen to take 1.4 times as long on memory that they touched first.
_WARM_FACTOR = 1.1
_COLD_FACTOR = 1.25
_COLD_TO_WARM = 1.5
_WARM_SLACK = 3e-6
_COLD_SLACK = 10e-6
_STANDARD_ERRORS = 2.0
#: Seconds that messages, waking up and waiting may cost a cold burst more than an empty one; and seconds that switching
#: to another context and back may cost a warm burst (0.35 to 0.61 ms on an H200).
_MESSAGES = 1e-3
_CHANGES = 0.65e-3
#: Shares of the usual overhead. The first is the standard error of a clock that sees bursts of one length only. The
#: second is the standard error of what that clock may have missed, because empty bursts switch contexts as well: on an
#: H200, 21 such clocks were between 33 us below device times and 120 us above.
_SHARE_OF_OVERHEAD, _SHARE_MISSED = 0.25, 0.1
#: Limit in seconds for subtracting the time by which the judge's copy of the inputs was slower than the quickest copy.
#: A candidate that already works on what has been copied gains no more than this in a burst.
_REVEALING = 50e-6
#: A claimed device time below this share of an empty call's device time is false.
_LEAST = 0.5
#: If the mean exceeds the typical call by this factor, some calls do the work and others do not (T27).
_UNEVEN = 1.3


@dataclass(frozen=True, slots=True)
class Burst:
    """One burst: its length in calls, its wall time, and the device time of each call, in seconds."""

    calls: int
    wall_seconds: float
    device_seconds: Sequence[float]
    #: Part of the wall time in which the judge copied inputs that have the same size in each burst.
    revealing_seconds: float = 0.0
    #: Host seconds per call while all calls were queued ahead, by the clock of the runner's own process; 0 if they were
    #: not queued ahead.
    launch_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """Burst time over burst length: seconds per call, its standard error, and fixed seconds per burst."""

    slope: float
    error: float
    intercept: float


@dataclass(frozen=True, slots=True)
class Clock:
    """What the judge's clock says about one call, in seconds, and its standard error.

    `beneath` is the standard error of what the clock may have missed. It is separate because a delay never makes a
    burst quicker.
    """

    seconds: float
    error: float
    beneath: float


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one call takes, in seconds."""

    samples: Sequence[float]
    clock: pb.TimingStats.Clock.ValueType
    judge_seconds: float
    #: The finding's id and a sentence that says why the runner's times were not believed. None if they were.
    doubt: tuple[str, str] | None = None

    @property
    def median(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Bursts of a candidate and of empty calls: cold ones, which are reported, and warm ones, which check them.

    Calls that take long have only one kind of burst, which serves as both, because no cache matters to them.
    """

    cold: Sequence[Burst]
    cold_empty: Sequence[Burst]
    warm: list[Burst] = field(default_factory=list)
    warm_empty: list[Burst] = field(default_factory=list)
    #: Warm bursts of the reference. They show how much longer a call takes if its inputs lie where no call has been.
    warm_reference: list[Burst] = field(default_factory=list)
    cold_reference: Sequence[Burst] = ()

    def warmed(self, seconds: float) -> float:
        """Estimate from the reference how long a call that takes `seconds` in a cold burst may take in a warm one."""
        if not self.warm_reference or not self.cold_reference:
            return seconds
        warm, cold = (statistics.median(_samples(bursts)) for bursts in (self.warm_reference, self.cold_reference))
        return max(seconds, seconds * warm / cold, seconds + warm - cold)


def length(mean: int, longest: int, rng: random.Random) -> int:
    """Return an unpredictable burst length in calls: about `mean`, and clearly different from other lengths."""
    return max(1, min(longest, round(mean * rng.uniform(0.5, 1.5))))


def fit(bursts: Sequence[Burst]) -> Line:
    """Fit burst time over length by least squares. Without different lengths, return the mean; its error is unknown."""
    count = len(bursts)
    mean_calls = statistics.fmean(burst.calls for burst in bursts)
    walls = _evened(bursts)
    mean_wall = statistics.fmean(walls)
    spread = sum((burst.calls - mean_calls) ** 2 for burst in bursts)
    if count < 3 or spread < 1:
        return Line(mean_wall / mean_calls, mean_wall / mean_calls, 0.0)
    both = list(zip(bursts, walls, strict=True))
    slope = sum((burst.calls - mean_calls) * (wall - mean_wall) for burst, wall in both) / spread
    intercept = mean_wall - slope * mean_calls
    rest = sum((wall - intercept - slope * burst.calls) ** 2 for burst, wall in both)
    return Line(slope, math.sqrt(rest / (count - 2) / spread), intercept)


def _evened(bursts: Sequence[Burst]) -> list[float]:
    """Return the wall times as if the judge's copying of inputs had taken equally long in all of them."""
    least = min(burst.revealing_seconds for burst in bursts)
    return [burst.wall_seconds - min(burst.revealing_seconds - least, _REVEALING) for burst in bursts]


def quickest(bursts: Sequence[Burst]) -> Line:
    """Draw a line through the quickest short burst and the quickest long one; use `fit` if lengths vary.

    The delays of slower bursts are assumed to be exponential. Then the least of n delays has 1/n of their scale as its
    error, and their median lies ln 2 - 1/n of the scale above it.
    """
    lengths = sorted({burst.calls for burst in bursts})
    if len(lengths) != 2:
        return fit(bursts)
    least, errors = [], []
    evened = list(zip(bursts, _evened(bursts), strict=True))
    for length in lengths:
        walls = sorted(wall for burst, wall in evened if burst.calls == length)
        least.append(walls[0])
        errors.append(_delay(walls) if len(walls) > 1 else walls[0])
    span = lengths[1] - lengths[0]
    slope = (least[1] - least[0]) / span
    return Line(slope, math.hypot(*errors) / span, least[0] - slope * lengths[0])


def by_judge(bursts: Sequence[Burst], empty: Sequence[Burst], overhead: float) -> Clock:
    """Return what one call costs beyond an empty one, by the judge's clock.

    Fixed costs cancel in the slope, but only up to `overhead`, the fixed cost in seconds that a runner's burst may
    have. A candidate that delays short bursts, so that they look as long as the long ones, pays for the delay in each
    call of the longest burst. A candidate that was delayed by chance pays the same: however noisy a slope is, the calls
    of the quickest long burst took no more time than that burst, and not much less. If all bursts have one length,
    because no more calls can be queued or each takes long, they are compared with equally long empty bursts, which come
    from a similar process.
    """
    if len({burst.calls for burst in (*bursts, *empty)}) == 1:
        return _above(bursts, empty, overhead)
    ours, nothing = quickest(bursts), quickest(empty)
    error = math.hypot(ours.error, nothing.error)
    longest = max(burst.calls for burst in bursts)
    waited = max(0.0, ours.intercept - nothing.intercept - overhead) / longest
    return Clock(max(0.0, ours.slope - max(0.0, nothing.slope)) + waited, error, error)


def _above(bursts: Sequence[Burst], empty: Sequence[Burst], overhead: float) -> Clock:
    """Return how far the quickest of `bursts` is above the quickest of `empty` per call; all have one length."""
    calls = bursts[0].calls
    ours, nothing = (sorted(_evened(kind)) for kind in (bursts, empty))
    error, beneath = math.hypot(_delay(ours), _delay(nothing)), _delay(nothing)
    fixed, missed = (share * overhead for share in (_SHARE_OF_OVERHEAD, _SHARE_MISSED))
    return Clock(max(0.0, ours[0] - nothing[0]) / calls, (error + fixed) / calls, (beneath + missed) / calls)


def _delay(walls: Sequence[float]) -> float:
    """Return the standard error of the least of some sorted wall times, assuming exponential delays."""
    delay = statistics.median(walls) - walls[0]
    return delay / max(0.5, len(walls) * math.log(2) - 1) if len(walls) > 1 else 0.0


def cold_clock(evidence: Evidence) -> Clock:
    """Return what the judge's clock says about a cold call, from the burst with the least time per call.

    Delays of a burst are never negative, and hidden work takes its time in any burst.
    """
    nothing = fit(evidence.cold_empty)
    least = min(
        (wall - nothing.intercept - nothing.slope * burst.calls) / burst.calls
        for burst, wall in zip(evidence.cold, _evened(evidence.cold), strict=True)
    )
    longest = max(burst.calls for burst in evidence.cold)
    error = _SHARE_OF_OVERHEAD * _MESSAGES / longest
    return Clock(max(0.0, least), error, error)


def warm_clock(evidence: Evidence) -> Clock:
    """Return what the judge's clock says about a warm call."""
    return by_judge(evidence.warm, evidence.warm_empty, _CHANGES)


def sharp(evidence: Evidence) -> bool:
    """Return True if the judge's clock can detect a claim that is false by a tenth or a few microseconds."""
    return not _uncertain(evidence, warm_clock(evidence))


def settled(evidence: Evidence) -> bool:
    """Return True if more warm bursts would change nothing: the clock confirms the claim, or is precise enough.

    If the clock contradicts the claim, more bursts may clear a candidate that was delayed by chance, and do not help
    one that lied.
    """
    clock = warm_clock(evidence)
    return not _beyond(evidence, clock) and (sharp(evidence) or _borne_out(evidence, clock))


def _beyond(evidence: Evidence, clock: Clock) -> bool:
    """Return True if warm bursts took longer by the judge's clock than what is claimed for their calls."""
    return clock.seconds > _most_credible(evidence) + _STANDARD_ERRORS * clock.error


def _borne_out(evidence: Evidence, clock: Clock) -> bool:
    """Return True if the judge's clock confirms the claim, and its reading needs no delay as an explanation.

    For a clock that is not precise, the limit is lowered by the part of its error that exceeds the detectable
    difference.
    """
    uncertain = _uncertain(evidence, clock)
    room = -uncertain if uncertain else _STANDARD_ERRORS * clock.beneath
    return clock.seconds <= _most_credible(evidence) + room


def _most_credible(evidence: Evidence) -> float:
    return _WARM_FACTOR * _claimed_mean(_samples(evidence.warm)) + _WARM_SLACK


def nothing_is_noisier(evidence: Evidence) -> bool:
    """Return True if more empty warm bursts would sharpen the clock more than more bursts of the candidate."""
    nothing, ours = evidence.warm_empty, evidence.warm
    if len({burst.calls for burst in (*nothing, *ours)}) == 1:
        return _delay(sorted(_evened(nothing))) > _delay(sorted(_evened(ours)))
    return quickest(nothing).error > quickest(ours).error


def _uncertain(evidence: Evidence, clock: Clock) -> float:
    """Return by how many seconds per call the clock's error exceeds the smallest false claim that must be detected."""
    tellable = (_WARM_FACTOR - 1) * max(clock.seconds, _claimed_mean(_samples(evidence.warm)))
    return max(0.0, _STANDARD_ERRORS * clock.beneath - max(_WARM_SLACK, tellable))


def conclude(evidence: Evidence) -> Timing:
    """Decide how long a call of the candidate takes, from its bursts."""
    samples = _samples(evidence.cold)
    cold = cold_clock(evidence)
    clock = warm_clock(evidence)
    doubt = _doubt(evidence, samples, cold, clock)
    judge_seconds = max(SHORTEST, clock.seconds)
    if doubt is None and _borne_out(evidence, clock):
        return Timing(samples, pb.TimingStats.CLOCK_DEVICE_EVENTS, judge_seconds)
    if doubt is None:
        # The clock is too noisy to decide. Add to each call what the clock may say beyond the device times of the very
        # same bursts, and let no call take clearly less than that. An uncertain time must not be a good one.
        most = clock.seconds + _uncertain(evidence, clock)
        hidden = max(0.0, most - _claimed_mean(_samples(evidence.warm)))
        least = most / _COLD_FACTOR
        return Timing([max(sample + hidden, least) for sample in samples], pb.TimingStats.CLOCK_JUDGE, judge_seconds)
    # Believe the slower one, and add everything that was hidden.
    bounds = [clock.seconds + _STANDARD_ERRORS * clock.error, statistics.fmean(samples)]
    if doubt[0] == "T01":
        bounds.append(cold.seconds)
    bound = max(judge_seconds, *bounds)
    return Timing([max(sample, bound) for sample in samples], pb.TimingStats.CLOCK_JUDGE, judge_seconds, doubt)


def summary(evidence: Evidence) -> str:
    """Return the fitted lines of all bursts, in microseconds, for a log."""
    lines = {
        name: quickest(bursts)
        for name, bursts in (
            ("cold", evidence.cold),
            ("cold_empty", evidence.cold_empty),
            ("warm", evidence.warm),
            ("warm_empty", evidence.warm_empty),
        )
        if bursts
    }
    fitted = " ".join(
        f"{name}={line.slope * 1e6:.1f}+-{line.error * 1e6:.1f}/call+{line.intercept * 1e6:.0f}"
        for name, line in lines.items()
    )
    claims = (
        f"claimed_cold={_claimed(_samples(evidence.cold)) * 1e6:.1f}"
        f" claimed_warm={_claimed_mean(_samples(evidence.warm)) * 1e6:.1f}"
    )
    return f"{fitted} {claims} longest={max(burst.calls for burst in evidence.warm)} pairs={len(evidence.warm)}"


def launching(bursts: Sequence[Burst]) -> float:
    """Return how long the host needs to launch a call, in seconds; 0 if calls were not queued ahead."""
    if not bursts or not all(burst.launch_seconds for burst in bursts):
        return 0.0
    return statistics.median(burst.launch_seconds for burst in bursts)


def _samples(bursts: Sequence[Burst]) -> list[float]:
    return [sample for burst in bursts for sample in burst.device_seconds]


def _doubt(evidence: Evidence, samples: Sequence[float], cold: Clock, clock: Clock) -> tuple[str, str] | None:
    claimed = _claimed(samples)
    # No call can take less than an empty call that the judge has timed on the same device.
    least = _LEAST * statistics.median(_samples(evidence.cold_empty))
    if claimed <= least:
        return "T28", f"device times say {claimed * 1e6:.1f} us a call, less than an empty call takes"
    if _beyond(evidence, clock):
        return "T01", _disagreement(_claimed_mean(_samples(evidence.warm)), clock.seconds)
    noise = _WARM_SLACK + _STANDARD_ERRORS * clock.error
    if clock.seconds > _COLD_TO_WARM * evidence.warmed(claimed) + noise:
        said = f"device times say {claimed * 1e6:.1f} us for a call with a cold cache"
        return "T16", f"{said}, the judge's clock {clock.seconds * 1e6:.1f} us for one with a warm cache"
    if cold.seconds > _COLD_FACTOR * claimed + _COLD_SLACK + _STANDARD_ERRORS * cold.error:
        return "T01", _disagreement(claimed, cold.seconds)
    mean = statistics.fmean(samples)
    if len(samples) >= 10 and mean > _UNEVEN * claimed + _COLD_SLACK:
        return "T27", f"most calls take {claimed * 1e6:.1f} us or less, and the mean is {mean * 1e6:.1f} us"
    return None


def _claimed(samples: Sequence[float]) -> float:
    """Return the claimed time of a typical call: the median, or less if a few calls would carry the others' time."""
    typical = sorted(samples)[: max(1, math.ceil(0.95 * len(samples)))]
    return min(statistics.median(samples), statistics.fmean(typical))


def _claimed_mean(samples: Sequence[float]) -> float:
    """Return the mean of the claimed times, trimmed so that a few calls cannot carry the others' time.

    A slope is made of means, so a mean is compared with it.
    """
    return statistics.fmean(sorted(samples)[: max(1, math.ceil(0.95 * len(samples)))])


def _disagreement(device: float, judge: float) -> str:
    return (
        f"device times say {device * 1e6:.1f} us a call, the judge's clock {judge * 1e6:.1f} us; the slower one counts"
    )


def conclude_trusted(bursts: Sequence[Burst]) -> Timing:
    """Return the same for the reference. Its device times are believed: no candidate has access to its process."""
    samples = [max(SHORTEST, sample) for sample in _samples(bursts)]
    return Timing(samples, pb.TimingStats.CLOCK_DEVICE_EVENTS, max(SHORTEST, statistics.fmean(samples)))

"""Device time: how long the device works on one call that is queued ahead, by device events and the judge's own clock.

A burst counts from the moment at which the judge lets its inputs into the arena to the moment at which its outputs
have been copied out of it. What one call costs is the slope of burst time over burst length, less the slope of empty
bursts of the same loop, so that fixed costs of messages and waiting cancel. Waiting is never negative: of bursts of
one length the quickest tells most, and a burst that was quick has done all its work, or its outputs would be wrong.
Times that the runner reports from device events are finer, and are believed only while they agree with that slope
within its own standard error; else the slower one counts, and a finding says so. Pure arithmetic; `bursts` makes what
is fitted here.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from kerneldyno.v1 import evaluation_pb2 as pb

from ..runners.answers import SHORTEST

#: Disagreement between the clocks that is still called agreement: this factor, this many seconds a call, and so many
#: standard errors. Cold bursts have the cache flushed between calls, which leaves more to be taken off. Between cold
#: and warm calls lies a difference of its own: honest kernels were seen to take 1.4 times as long on memory first
#: touched.
_WARM_FACTOR = 1.1
_COLD_FACTOR = 1.25
_COLD_TO_WARM = 1.5
_WARM_SLACK = 3e-6
_COLD_SLACK = 10e-6
_STANDARD_ERRORS = 2.0
#: What messages, waking up and waiting may cost a cold burst more than one of nothing, in seconds; and what changing
#: from one context to the other and back may cost a warm one: 0.35 to 0.61 ms on an H200.
_MESSAGES = 1e-3
_CHANGES = 0.65e-3
#: Share of that which it usually is: the standard error of a clock that sees bursts of one length only; and of what it may
#: have missed, since bursts of nothing change contexts as well: on an H200 21 such clocks were from 33 us below device
#: times to 120 above.
_SHARE_OF_OVERHEAD, _SHARE_MISSED = 0.25, 0.1
#: How much longer than the quickest the judge's copy of the inputs may have taken without counting, in seconds: who
#: works on what has been copied already gains no more than this in a burst.
_REVEALING = 50e-6
#: Share of the device time of an empty call below which a device time is an invention.
_LEAST = 0.5
#: A mean this much above the typical call is made of calls that do the work and calls that do not (T27).
_UNEVEN = 1.3


@dataclass(frozen=True, slots=True)
class Burst:
    """One burst: its length in calls, its wall time, and the device time of each call."""

    calls: int
    wall_seconds: float
    device_seconds: Sequence[float]
    #: How long the judge took, of the wall time, to put inputs there that are of the same size in each burst.
    revealing_seconds: float = 0.0
    #: Host seconds that one call took while all were queued ahead, by the clock of its own process; 0 where they were
    #: not.
    launch_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """Burst time over burst length: seconds a call, its standard error, and seconds a burst of any length costs."""

    slope: float
    error: float
    intercept: float


@dataclass(frozen=True, slots=True)
class Clock:
    """What the judge's clock says of one call, in seconds, and its standard error.

    `beneath` is the standard error of what it may have missed: a delay makes a burst no quicker.
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
    #: Why the runner's times were not believed: id of the finding and a sentence. Empty when they were.
    doubt: tuple[str, str] | None = None

    @property
    def median(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Bursts of a candidate and of nothing: cold ones, which are reported, and warm ones, which check them.

    Calls that take long have one kind of burst only, which is both: no cache matters to them.
    """

    cold: Sequence[Burst]
    cold_empty: Sequence[Burst]
    warm: list[Burst] = field(default_factory=list)
    warm_empty: list[Burst] = field(default_factory=list)
    #: Warm bursts of the reference: how much longer a call takes whose inputs lie where no call has been, if at all.
    warm_reference: list[Burst] = field(default_factory=list)
    cold_reference: Sequence[Burst] = ()

    def warmed(self, seconds: float) -> float:
        """Return what a call that takes `seconds` in a cold burst may take in a warm one, going by the reference."""
        if not self.warm_reference or not self.cold_reference:
            return seconds
        warm, cold = (statistics.median(_samples(bursts)) for bursts in (self.warm_reference, self.cold_reference))
        return max(seconds, seconds * warm / cold, seconds + warm - cold)


def length(mean: int, longest: int, rng: random.Random) -> int:
    """Return the length of a burst that nobody can predict, in calls: about `mean`, and clearly different from others."""
    return max(1, min(longest, round(mean * rng.uniform(0.5, 1.5))))


def fit(bursts: Sequence[Burst]) -> Line:
    """Fit burst time over length by least squares; without different lengths, the plain mean and no idea of its error."""
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
    """Draw the line through the quickest of the short bursts and the quickest of the long ones; `fit` where lengths vary.

    What makes others slower is taken to be exponential: the least of n such delays has 1/n of their scale for its
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

    Fixed costs cancel in the slope, but only up to the `overhead` that a runner's burst may have, in seconds: whoever
    makes short bursts wait, so that they look as long as the long ones, pays for the wait in each call of the longest
    burst. So does whom chance has made wait: however noisy a slope is, the calls of the quickest long burst have not
    taken more time than that burst, nor much less. Bursts that are all of one length, since no more calls can be
    queued or each takes long, are held against as long ones of nothing, which come from a process like theirs.
    """
    if len({burst.calls for burst in (*bursts, *empty)}) == 1:
        return _above(bursts, empty, overhead)
    ours, nothing = quickest(bursts), quickest(empty)
    error = math.hypot(ours.error, nothing.error)
    longest = max(burst.calls for burst in bursts)
    waited = max(0.0, ours.intercept - nothing.intercept - overhead) / longest
    return Clock(max(0.0, ours.slope - max(0.0, nothing.slope)) + waited, error, error)


def _above(bursts: Sequence[Burst], empty: Sequence[Burst], overhead: float) -> Clock:
    """Return by how much the quickest of `bursts` is above the quickest of `empty`, all of one length, for each call."""
    calls = bursts[0].calls
    ours, nothing = (sorted(_evened(kind)) for kind in (bursts, empty))
    error, beneath = math.hypot(_delay(ours), _delay(nothing)), _delay(nothing)
    fixed, missed = (share * overhead for share in (_SHARE_OF_OVERHEAD, _SHARE_MISSED))
    return Clock(max(0.0, ours[0] - nothing[0]) / calls, (error + fixed) / calls, (beneath + missed) / calls)


def _delay(walls: Sequence[float]) -> float:
    """Return the standard error of the least of some sorted wall times, whose delays are taken to be exponential."""
    delay = statistics.median(walls) - walls[0]
    return delay / max(0.5, len(walls) * math.log(2) - 1) if len(walls) > 1 else 0.0


def cold_clock(evidence: Evidence) -> Clock:
    """Return what the judge's clock says of a cold call: by the burst that leaves least for it.

    What delays a burst is never negative, and a burst in which work was hidden takes its time all the same.
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
    """Return what the judge's clock says of a warm call."""
    return by_judge(evidence.warm, evidence.warm_empty, _CHANGES)


def sharp(evidence: Evidence) -> bool:
    """Say whether the judge's clock is quiet enough to tell a lie of a tenth of the claim, or of a few microseconds."""
    return not _uncertain(evidence, warm_clock(evidence))


def settled(evidence: Evidence) -> bool:
    """Say whether more warm bursts would change nothing: the clock bears out what is claimed, or is sharp enough to.

    Where it contradicts that, more may clear somebody whom chance has delayed, and do not help whoever has lied.
    """
    clock = warm_clock(evidence)
    return not _beyond(evidence, clock) and (sharp(evidence) or _borne_out(evidence, clock))


def _beyond(evidence: Evidence, clock: Clock) -> bool:
    """Say whether warm bursts took longer by the judge's clock than what is claimed for their calls."""
    return clock.seconds > _most_credible(evidence) + _STANDARD_ERRORS * clock.error


def _borne_out(evidence: Evidence, clock: Clock) -> bool:
    """Say whether the clock can be believed to bear out what is claimed: by nothing that only delays would explain.

    Of one that is not sharp, by what it may be wrong beyond what lies can be told by as well.
    """
    uncertain = _uncertain(evidence, clock)
    room = -uncertain if uncertain else _STANDARD_ERRORS * clock.beneath
    return clock.seconds <= _most_credible(evidence) + room


def _most_credible(evidence: Evidence) -> float:
    return _WARM_FACTOR * _claimed_mean(_samples(evidence.warm)) + _WARM_SLACK


def nothing_is_noisier(evidence: Evidence) -> bool:
    """Say whether more warm bursts of nothing would sharpen the clock more than more of the candidate's."""
    nothing, ours = evidence.warm_empty, evidence.warm
    if len({burst.calls for burst in (*nothing, *ours)}) == 1:
        return _delay(sorted(_evened(nothing))) > _delay(sorted(_evened(ours)))
    return quickest(nothing).error > quickest(ours).error


def _uncertain(evidence: Evidence, clock: Clock) -> float:
    """Return by how many seconds a call the clock may be wrong beyond what lies can be told by."""
    tellable = (_WARM_FACTOR - 1) * max(clock.seconds, _claimed_mean(_samples(evidence.warm)))
    return max(0.0, _STANDARD_ERRORS * clock.beneath - max(_WARM_SLACK, tellable))


def conclude(evidence: Evidence) -> Timing:
    """Decide what the bursts of a candidate say."""
    samples = _samples(evidence.cold)
    cold = cold_clock(evidence)
    clock = warm_clock(evidence)
    doubt = _doubt(evidence, samples, cold, clock)
    judge_seconds = max(SHORTEST, clock.seconds)
    if doubt is None and _borne_out(evidence, clock):
        return Timing(samples, pb.TimingStats.CLOCK_DEVICE_EVENTS, judge_seconds)
    if doubt is None:
        # Too noisy to tell: what the clock may say beyond the device times of the very same bursts is added to each
        # call, and no call takes clearly less than that. An uncertain time must not be a good one.
        most = clock.seconds + _uncertain(evidence, clock)
        hidden = max(0.0, most - _claimed_mean(_samples(evidence.warm)))
        least = most / _COLD_FACTOR
        return Timing([max(sample + hidden, least) for sample in samples], pb.TimingStats.CLOCK_JUDGE, judge_seconds)
    # Whatever is slower is believed, and so is everything that was hidden.
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
        f"{_claimed(_samples(evidence.cold)) * 1e6:.1f} cold, {_claimed_mean(_samples(evidence.warm)) * 1e6:.1f} warm"
    )
    return f"{fitted} claimed={claims} longest={max(burst.calls for burst in evidence.warm)} pairs={len(evidence.warm)}"


def launching(bursts: Sequence[Burst]) -> float:
    """Return what the host needs to launch a call, in seconds; 0 where calls were not queued ahead."""
    if not bursts or not all(burst.launch_seconds for burst in bursts):
        return 0.0
    return statistics.median(burst.launch_seconds for burst in bursts)


def _samples(bursts: Sequence[Burst]) -> list[float]:
    return [sample for burst in bursts for sample in burst.device_seconds]


def _doubt(evidence: Evidence, samples: Sequence[float], cold: Clock, clock: Clock) -> tuple[str, str] | None:
    claimed = _claimed(samples)
    # Nothing at all, timed by the judge on the same device, is the least that a call can take.
    least = _LEAST * statistics.median(_samples(evidence.cold_empty))
    if claimed <= least:
        return "T28", f"device times say {claimed * 1e6:.1f} us a call, less than a call that does nothing"
    if _beyond(evidence, clock):
        return "T01", _disagreement(_claimed_mean(_samples(evidence.warm)), clock.seconds)
    noise = _WARM_SLACK + _STANDARD_ERRORS * clock.error
    if clock.seconds > _COLD_TO_WARM * evidence.warmed(claimed) + noise:
        said = f"device times say {claimed * 1e6:.1f} us for a call that finds a cold cache"
        return "T16", f"{said}, the judge's clock {clock.seconds * 1e6:.1f} us for one that finds a warm one"
    if cold.seconds > _COLD_FACTOR * claimed + _COLD_SLACK + _STANDARD_ERRORS * cold.error:
        return "T01", _disagreement(claimed, cold.seconds)
    mean = statistics.fmean(samples)
    if len(samples) >= 10 and mean > _UNEVEN * claimed + _COLD_SLACK:
        return "T27", f"most calls take {claimed * 1e6:.1f} us or less, and the mean is {mean * 1e6:.1f} us"
    return None


def _claimed(samples: Sequence[float]) -> float:
    """Return what is claimed for a typical call: the median, or less where a few calls are to bear the others' time."""
    typical = sorted(samples)[: max(1, math.ceil(0.95 * len(samples)))]
    return min(statistics.median(samples), statistics.fmean(typical))


def _claimed_mean(samples: Sequence[float]) -> float:
    """Return the mean of what is claimed, less where a few calls are to bear the others' time: a slope is made of means."""
    return statistics.fmean(sorted(samples)[: max(1, math.ceil(0.95 * len(samples)))])


def _disagreement(device: float, judge: float) -> str:
    return (
        f"device times say {device * 1e6:.1f} us a call, the judge's clock {judge * 1e6:.1f} us; the slower one counts"
    )


def conclude_trusted(bursts: Sequence[Burst]) -> Timing:
    """The same for the reference, whose device times are believed: no candidate comes near its process."""
    samples = [max(SHORTEST, sample) for sample in _samples(bursts)]
    return Timing(samples, pb.TimingStats.CLOCK_DEVICE_EVENTS, max(SHORTEST, statistics.fmean(samples)))

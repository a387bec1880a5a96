"""From rounds to a ratio: how much faster a candidate is than its reference, and how sure that is. Pure arithmetic.

In each round both sides are timed one after the other, so that what slows a host or a device down for a while slows
both of them down: the ratio is the trimmed mean of the rounds' ratios. Two things break the pairs. Where memory lies
(`Device.displace`) makes rounds of one side quicker or slower than those of the other: then the quickest rounds of each
side are held against each other, and both have been seen where their memory lies well, and not one of them by luck. And
what a host does beside delays single calls by half and more, and never makes one quicker: then the quicker half of each
side's calls is what counts, without the very quickest; and of short calls, where whole visits are slow and there are few
of them, fewer calls do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: Where a round of device times is this much slower than the quickest, memory lay badly in it; and rounds are quick up
#: to these factors, by device time and as called.
_BADLY_PLACED = 1.04
_PLACED, _PLACED_AS_CALLED = 1.015, 1.03
#: By how much the quick rounds of one side may be off, as a factor: with several of them, and with one.
_OFF, _OFF_ALONE = 1.01, 1.03
#: What a single round says nothing about: its own error, as a factor.
_ALONE = 1.1
#: Rounds after which a side has been quick, if its memory can lie well: it did in three of ten at the least.
_ENOUGH_PLACES = 12
#: As how many rounds it counts what rounds are expected to vary by: timing stops as soon as they agree, and of any three
#: or four that agree by chance some always come along; and what those of end-to-end times are expected to vary by, as a
#: standard deviation, and what more by the share of a call that is work of the host (visits of networks of many kernels
#: vary by 6 to 14 %).
_EXPECTED_ROUNDS = 3
_EXPECTED_SPREAD, _HOST_SPREAD = 0.01, 0.05
#: Share of the rounds at each end that a trimmed mean leaves out, once there are enough of them. Of fewer none counts as
#: further than this factor from their median: a host that stood still for one of them tells nothing of the others.
_TRIMMED, _ENOUGH_TO_TRIM = 0.2, 5
_FURTHEST = 1.5
#: Pairs whose interval is no wider than this have not been broken.
_CLOSE = 0.015
#: Share of each side's rounds that must have been quick for memory to be what the others differ by, and not the host;
#: where device times say so, and where there are none.
_PLACED_SHARE = {True: 0.1, False: 0.25}
#: Share of a side's rounds that must have been calm for the others not to count.
_CALM_SHARE = 0.25
#: Which of each side's calls count where the host is what they differ by, as shares from the quickest on; without the
#: quickest of all: no host makes calls quicker, but a candidate that leaves its work out now and then would be (T27).
_UNDELAYED = (0.1, 0.5)
#: The same for short calls, of which there are two dozen, and so few are compared that one of ten could be left out; and
#: for calls of nothing, which nobody gains by.
_UNDELAYED_SHORT, _UNDISTURBED = (0.25, 0.4), (0.1, 0.3)
#: As how many rounds it counts what visits of short calls are expected to vary by.
_SHORT_ROUNDS = 1
#: Rounds from which on their quicker half tells how sure it is.
_ENOUGH_FOR_HALVES = 3
#: Rounds in each order from which on the order is taken out of what rounds vary by.
_ENOUGH_OF_AN_ORDER = 3
#: Student's t of a two-sided 95 % interval for one and two degrees of freedom; the normal distribution's quantile.
_STUDENT = {1: 12.71, 2: 4.30}
_NORMAL = 1.96
#: Share by which two timings of one kernel may differ though no round shows it, and seconds on each side, and seconds
#: for each kernel of the reference in processes of the same pace, and of different ones (seen on H200s;
#: `devices/pace.py`).
_DEAD_BAND = 0.004
_DEAD_SECONDS = 0.2e-6
_KERNEL_SECONDS = {True: 0.05e-6, False: 0.2e-6}
#: The same for a call that is nothing but work of the host, by kind of device: twin processes differ by so much, as a
#: share. On the CPU device that work is all there is, and where each process's memory lies decides (0.93 to 1.07 seen).
_HOST_BAND = {"cuda": 0.015, "cpu": 0.04}


@dataclass(frozen=True, slots=True)
class Ratio:
    """Reference over candidate, and the 95 % interval by what rounds differ in."""

    value: float
    low: float
    high: float
    #: The rounds of reference and of candidate that it is made of.
    reference_rounds: Sequence[int]
    rounds: Sequence[int]

    @property
    def width(self) -> float:
        """Width of the interval, relative to the value."""
        return (self.high - self.low) / self.value

    @property
    def is_paired(self) -> bool:
        """Whether it is made of all rounds, each of which has a ratio of its own."""
        return self.rounds == self.reference_rounds

    def scaled(self, factor: float) -> Ratio:
        """Return the ratio for a candidate whose calls are found to take `factor` times as long."""
        return Ratio(self.value / factor, self.low / factor, self.high / factor, self.reference_rounds, self.rounds)


def of_rounds(
    reference: Sequence[float], candidate: Sequence[float], *, displaced: bool = False, expected: float = 0.0
) -> Ratio:
    """Return the ratio of both sides' device times of a call, in seconds, one for each round of both.

    `displaced`: their memory was somewhere else in each round. `expected`: what rounds' ratios would vary by if single
    calls were all that varies, as a standard deviation (`expected_spread`).
    """
    if displaced and any(max(side) > _BADLY_PLACED * min(side) for side in (reference, candidate)):
        return _of_quick(reference, candidate, [_quick(side, _PLACED) for side in (reference, candidate)])
    return _of_pairs(reference, candidate, expected)


def expected_spread(*sides: Sequence[Sequence[float]]) -> float:
    """Return what ratios of rounds would vary by if the calls of a round, in seconds, were all that varies."""
    return math.hypot(*(statistics.median(map(_error_of_mean, side)) for side in sides))


def _error_of_mean(calls: Sequence[float]) -> float:
    if len(calls) < 2:
        return 0.0
    return statistics.stdev([math.log(call) for call in calls]) / math.sqrt(len(calls))


def of_delayed_rounds(
    reference: Sequence[Sequence[float]],
    candidate: Sequence[Sequence[float]],
    *,
    displaced: bool = False,
    memory_matters: bool | None = None,
    calm: Sequence[Sequence[bool]] = (),
    host: float = 0.0,
) -> Ratio:
    """Return the same from what each call of each round took, where the host delays single ones, by much and at random.

    `memory_matters`: whether device times of the same rounds depend on where memory lies, where there are any. `calm`
    says of the rounds of reference and candidate whether the host's processor was as quick as ever at their end. `host`
    is the share of a call that is work of the host, where that decides.
    """
    ours, theirs = ([statistics.median(calls) for calls in side] for side in (reference, candidate))
    is_close = _of_pairs(ours, theirs).width <= _CLOSE
    paired = _of_pairs(ours, theirs, _EXPECTED_SPREAD + _HOST_SPREAD * host)
    if is_close and not memory_matters:
        return paired
    quick = [_quick(side, _PLACED_AS_CALLED) for side in (ours, theirs)]
    enough = _PLACED_SHARE[bool(memory_matters)] * len(ours)
    if displaced and memory_matters is not False and enough <= min(map(len, quick)) < len(ours):
        return _of_quick(ours, theirs, quick)
    if is_close or len(ours) < _ENOUGH_FOR_HALVES:
        return paired
    kept = [_calm(side) for side in calm] if calm else [paired.reference_rounds, paired.rounds]
    sides = [[side[at] for at in rounds] for side, rounds in zip((reference, candidate), kept, strict=True)]
    our_mean, their_mean = (_quick_mean([call for calls in side for call in calls], _UNDELAYED) for side in sides)
    value = our_mean / their_mean
    found = [_error_of_undelayed([statistics.median(calls) for calls in side]) for side in sides]
    half = math.exp(_student(min(freedom for _, freedom in found)) * math.hypot(*(error for error, _ in found)))
    return Ratio(value, value / half, value * half, *kept)


def of_short_calls(reference: Sequence[Sequence[float]], candidate: Sequence[Sequence[float]], *, host: float) -> Ratio:
    """Return the same for short calls, of which `host` is the share that is work of the host.

    On a host that others use as well a processor is half as quick for some visits, and there are a few visits only: what
    counts is taken from the calls of all of them.
    """
    ours, theirs = (
        _quick_mean([call for calls in side for call in calls], _UNDELAYED_SHORT) for side in (reference, candidate)
    )
    value = ours / theirs
    square, count = (_EXPECTED_SPREAD + _HOST_SPREAD * host) ** 2, len(candidate)
    visits = [[math.log(_quick_mean(calls, _UNDELAYED_SHORT)) for calls in side] for side in (reference, candidate)]
    squares = (count - 1) * sum(map(statistics.variance, visits)) if count > 1 else 0.0
    freedom = count - 1 + _SHORT_ROUNDS
    error = math.sqrt((squares + _SHORT_ROUNDS * 2 * square) / freedom / count)
    half = math.exp(_student(freedom) * error)
    rounds = list(range(count))
    return Ratio(value, value / half, value * half, rounds, rounds)


def undisturbed(values: Sequence[float]) -> float:
    """Return the mean of the quickest of some times of which nobody's verdict depends: what no host has delayed."""
    return _quick_mean(values, _UNDISTURBED)


def _calm(rounds: Sequence[bool]) -> list[int]:
    """Return the calm ones of some rounds, or all where they are too few."""
    calm = [at for at, is_calm in enumerate(rounds) if is_calm]
    return calm if len(calm) >= max(_ENOUGH_TO_TRIM, _CALM_SHARE * len(rounds)) else list(range(len(rounds)))


def _of_quick(reference: Sequence[float], candidate: Sequence[float], quick: Sequence[Sequence[int]]) -> Ratio:
    """Hold the quick rounds of each side against each other.

    Where one side was quick and slow by turns, and the other one never was anything else in a few rounds, that one may
    have been slow in all of them: the interval says so.
    """
    ours, theirs = ([side[at] for at in rounds] for side, rounds in zip((reference, candidate), quick, strict=True))
    value = statistics.median(ours) / statistics.median(theirs)
    off = math.prod(_OFF if len(rounds) > 1 else _OFF_ALONE for rounds in quick)
    our_step, their_step = (_step(side, rounds) for side, rounds in zip((reference, candidate), quick, strict=True))
    few = len(reference) < _ENOUGH_PLACES
    low = value / off / (their_step if few and our_step == 1 else 1)
    high = value * off * (our_step if few and their_step == 1 else 1)
    return Ratio(value, low, high, *quick)


def _step(seconds: Sequence[float], quick: Sequence[int]) -> float:
    """Return how much slower than in its quick rounds a side is in the others, as a factor; 1 where it is in none."""
    slow = [second for at, second in enumerate(seconds) if at not in quick]
    step = statistics.median(slow) / statistics.median([seconds[at] for at in quick]) if len(slow) > 1 else 1.0
    return step if step > _BADLY_PLACED else 1.0


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean without the fifth at each end."""
    ordered, cut = sorted(values), int(_TRIMMED * len(values))
    return statistics.fmean(ordered[cut : len(ordered) - cut])


def widened(
    ratio: Ratio,
    reference: float,
    candidate: float,
    *,
    kernels: int = 0,
    same_pace: bool = True,
    host: float = 0.0,
    kind: str = "cuda",
) -> tuple[float, float]:
    """Return the interval with what no round shows, since two processes differ for as long as they live.

    `reference` and `candidate` are the medians of both sides, in seconds; `kernels` are those of the reference, where
    device times are compared, and `host` is the share of a call that is work of the host, where end-to-end times are, of
    a device of `kind`.
    """
    factor = 1 + unseen(reference, candidate, kernels=kernels, same_pace=same_pace) + host * _HOST_BAND[kind]
    return ratio.low / factor, ratio.high * factor


def unseen(reference: float, candidate: float, *, kernels: int = 0, same_pace: bool = True) -> float:
    """Return by how much two processes may differ in a ratio of device times though no round shows it, as a share."""
    share = _DEAD_BAND + _DEAD_SECONDS / candidate
    return share + (_DEAD_SECONDS + kernels * _KERNEL_SECONDS[same_pace]) / reference


def _quick(seconds: Sequence[float], factor: float) -> list[int]:
    least = min(seconds)
    return [at for at, second in enumerate(seconds) if second <= factor * least]


def _of_pairs(reference: Sequence[float], candidate: Sequence[float], expected: float = 0.0) -> Ratio:
    """Return the trimmed mean of the rounds' ratios, by their logarithms, and its interval.

    `expected` is the standard deviation that a few more rounds are taken to have shown; 0 for none.

    Who comes first in a round was the last to be timed in the one before, and finds caches and host as it left them.
    The order changes from round to round, so that this cancels; once there are enough rounds it is taken out of what
    they vary by as well.
    """
    values = [math.log(ours / theirs) for ours, theirs in zip(reference, candidate, strict=True)]
    orders = [values[0::2], values[1::2]]
    if len(orders[1]) < _ENOUGH_OF_AN_ORDER:
        orders = [values]
    found = [_trimmed(order) for order in orders]
    middle = statistics.fmean(mean for mean, _, _ in found)
    error, freedom = math.hypot(*(error for _, error, _ in found)) / len(found), sum(freedom for _, _, freedom in found)
    if expected:
        square = freedom * error**2 + _EXPECTED_ROUNDS * expected**2 / len(values)
        freedom += _EXPECTED_ROUNDS
        error = math.sqrt(square / freedom)
    half = math.log(_ALONE) if len(values) == 1 else _student(freedom) * error
    rounds = list(range(len(values)))
    return Ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half), rounds, rounds)


def _trimmed(values: Sequence[float]) -> tuple[float, float, int]:
    """Return a trimmed mean, its standard error, and the degrees of freedom that has.

    Source: Tukey and McLaughlin, "Less vulnerable confidence and significance procedures for location based on a single
    sample", Sankhya A 25(3), 1963: Student's t with the winsorised standard deviation.
    """
    count, ordered = len(values), sorted(values)
    if count == 1:
        return values[0], 0.0, 0
    if count < _ENOUGH_TO_TRIM:
        middle, most = statistics.median(values), math.log(_FURTHEST)
        near = [max(middle - most, min(middle + most, value)) for value in values]
        return statistics.fmean(near), statistics.stdev(values) / math.sqrt(count), count - 1
    cut = int(_TRIMMED * count)
    kept = ordered[cut : count - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    error = statistics.stdev(winsorised) / ((1 - 2 * cut / count) * math.sqrt(count))
    return statistics.fmean(kept), error, len(kept) - 1


def _quick_mean(values: Sequence[float], shares: tuple[float, float]) -> float:
    """Return the mean of those between two shares of all, from the quickest on."""
    begin, end = int(shares[0] * len(values) + 0.5), math.ceil(shares[1] * len(values))
    return statistics.fmean(sorted(values)[begin : max(end, begin + 1)])


def _error_of_undelayed(values: Sequence[float]) -> tuple[float, int]:
    """Return the standard error of the logarithm of the quicker half's mean, and the degrees of freedom that has.

    As in `_trimmed`, but trimmed at one end only: the slower half counts as the slowest that is kept.
    """
    count, ordered = len(values), sorted(math.log(value) for value in values)
    kept = ordered[: math.ceil(_UNDELAYED[1] * count)]
    winsorised = kept + [kept[-1]] * (count - len(kept))
    return statistics.stdev(winsorised) / (len(kept) / count * math.sqrt(count)), len(kept) - 1


def _student(freedom: int) -> float:
    """Return Student's t of a two-sided 95 % interval, by its expansion (Abramowitz and Stegun, 26.7.5)."""
    if freedom in _STUDENT:
        return _STUDENT[freedom]
    z: float = _NORMAL
    terms: tuple[float, ...] = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / float(freedom**power) for power, term in enumerate(terms, 1))

"""From rounds to a ratio: how much faster a candidate is than its reference, and how certain that is.

In each round both sides are timed one after the other. So whatever slows the host or the device down for a while slows
both sides down, and the ratio is the trimmed mean of the rounds' ratios. Two things break the pairs. First, the place
of memory (`Device.displace`) makes rounds of one side quicker or slower than those of the other. Then only the quickest
rounds of each side are compared, so both sides count with well-placed memory, and luck favours neither. Second, other
work on the host delays single calls by half and more, and never makes one quicker. Then the quicker half of each side's
calls counts, without the very quickest. For short calls whole visits are slow, and there are few visits, so a smaller
share of the calls counts. This module is pure arithmetic.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: If a round's device time exceeds the quickest round's by the first factor, memory was badly placed in it. Rounds are
#: quick up to the other factors: by device time, and as called.
_BADLY_PLACED = 1.04
_PLACED, _PLACED_AS_CALLED = 1.015, 1.03
#: Factor by which the quick rounds of one side may be off: with several of them, and with one.
_OFF, _OFF_ALONE = 1.01, 1.03
#: Error of a single round, as a factor: one round says nothing about its own error.
_ALONE = 1.1
#: After this many rounds a side has been quick if its memory can be well placed: at least three in ten rounds were.
_ENOUGH_PLACES = 12
#: The expected spread of rounds counts as this many additional rounds. It is needed because timing stops as soon as
#: rounds agree, and sooner or later three or four agree by chance. The expected spread of end-to-end times is a
#: standard deviation; the second number is added in proportion to the host's share of a call (visits of networks with
#: many kernels vary by 6 to 14 %).
_EXPECTED_ROUNDS = 3
_EXPECTED_SPREAD, _HOST_SPREAD = 0.01, 0.05
#: Share of the rounds at each end that a trimmed mean leaves out, once there are enough rounds. With fewer rounds, none
#: counts as further from the median than the factor below: a host that stopped during one round says nothing about the
#: others.
_TRIMMED, _ENOUGH_TO_TRIM = 0.2, 5
_FURTHEST = 1.5
#: If the interval of the pairs is no wider than this, nothing has broken the pairs.
_CLOSE = 0.015
#: Share of each side's rounds that must have been quick before the difference of the others is attributed to memory and
#: not to the host: if device times say that memory matters (True), and if there are none (False).
_PLACED_SHARE = {True: 0.1, False: 0.25}
#: Share of a side's rounds that must have been calm before the others are ignored.
_CALM_SHARE = 0.25
#: The calls of each side that count if the host causes the differences, as shares from the quickest on. The quickest
#: calls are left out: no host makes calls quicker, but a candidate that skips its work now and then would be (T27).
_UNDELAYED = (0.1, 0.5)
#: The same for short calls (there are two dozen, and so few are compared that one in ten could be left out), and for
#: empty calls, from which nobody gains.
_UNDELAYED_SHORT, _UNDISTURBED = (0.25, 0.4), (0.1, 0.3)
#: The expected spread of visits of short calls counts as this many additional rounds.
_SHORT_ROUNDS = 1
#: From this many rounds on, the spread of their quicker half gives the interval.
_ENOUGH_FOR_HALVES = 3
#: From this many rounds in each order on, the effect of the order is removed from the spread of rounds.
_ENOUGH_OF_AN_ORDER = 3
#: Student's t for a two-sided 95 % interval with one and two degrees of freedom; the normal distribution's quantile.
_STUDENT = {1: 12.71, 2: 4.30}
_NORMAL = 1.96
#: By how much two timings of one kernel may differ although no round shows it: as a share, as seconds on each side, and
#: as seconds per kernel of the reference, in processes of the same pace (True) and of different paces (False). Seen on
#: H200s; see `devices/pace.py`.
_DEAD_BAND = 0.004
_DEAD_SECONDS = 0.2e-6
_KERNEL_SECONDS = {True: 0.05e-6, False: 0.2e-6}
#: The same as a share, for a call that is only work of the host, by kind of device: so much do twin processes differ.
#: On the CPU device there is only such work, and the place of each process's memory decides (0.93 to 1.07 seen).
_HOST_BAND = {"cuda": 0.015, "cpu": 0.04}


@dataclass(frozen=True, slots=True)
class Ratio:
    """The reference's time divided by the candidate's, and its 95 % interval from the spread of rounds."""

    value: float
    low: float
    high: float
    #: The rounds of reference and candidate that were used.
    reference_rounds: Sequence[int]
    rounds: Sequence[int]

    @property
    def width(self) -> float:
        """Width of the interval, relative to the value."""
        return (self.high - self.low) / self.value

    @property
    def is_paired(self) -> bool:
        """True if all rounds were used, so that each has a ratio of its own."""
        return self.rounds == self.reference_rounds

    def scaled(self, factor: float) -> Ratio:
        """Return the ratio for a candidate whose calls are found to take `factor` times as long."""
        return Ratio(self.value / factor, self.low / factor, self.high / factor, self.reference_rounds, self.rounds)


def of_rounds(
    reference: Sequence[float], candidate: Sequence[float], *, displaced: bool = False, expected: float = 0.0
) -> Ratio:
    """Return the ratio of device times.

    Args:
        reference: Seconds per call of the reference, for each round.
        candidate: Seconds per call of the candidate, for each round.
        displaced: Whether memory was at another place in each round.
        expected: The standard deviation that rounds' ratios would have if only single calls varied (`expected_spread`).
    """
    if displaced and any(max(side) > _BADLY_PLACED * min(side) for side in (reference, candidate)):
        return _of_quick(reference, candidate, [_quick(side, _PLACED) for side in (reference, candidate)])
    return _of_pairs(reference, candidate, expected)


def expected_spread(*sides: Sequence[Sequence[float]]) -> float:
    """Return the spread of rounds' ratios if only the calls of a round varied; `sides` are in seconds."""
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
    """Return the ratio of end-to-end times, which the host delays at random, single calls by much.

    Args:
        reference: Seconds of each call of the reference, for each round.
        candidate: Seconds of each call of the candidate, for each round.
        displaced: Whether memory was at another place in each round.
        memory_matters: Whether device times of the same rounds depend on the place of memory; None if there are none.
        calm: For reference and candidate, whether the host's processor was as quick as usual at the end of each round.
        host: The share of a call that is work of the host, if that share decides the time.
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
    """Return the ratio of end-to-end times of short calls; `host` is the share of a call that is work of the host.

    On a shared host a processor is half as quick during some visits, and there are only a few visits. So the ratio is
    taken from the calls of all visits together.
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
    """Return the mean of the quickest times, which no host has delayed. No verdict depends on these times."""
    return _quick_mean(values, _UNDISTURBED)


def _calm(rounds: Sequence[bool]) -> list[int]:
    """Return the indices of the calm rounds, or of all rounds if too few are calm."""
    calm = [at for at, is_calm in enumerate(rounds) if is_calm]
    return calm if len(calm) >= max(_ENOUGH_TO_TRIM, _CALM_SHARE * len(rounds)) else list(range(len(rounds)))


def _of_quick(reference: Sequence[float], candidate: Sequence[float], quick: Sequence[Sequence[int]]) -> Ratio:
    """Compare the quick rounds of each side.

    If one side was quick in some rounds and slow in others, and the other side showed only one speed in few rounds, the
    other side may have been slow in all of them. The interval covers that.
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
    """Return the factor by which a side is slower in its other rounds than in its quick ones; 1 if it is not."""
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
    """Widen the interval by what no round shows, because two processes differ for as long as they live.

    Args:
        ratio: The ratio.
        reference: The reference's median, in seconds.
        candidate: The candidate's median, in seconds.
        kernels: The number of the reference's kernels, if device times are compared.
        same_pace: Whether both processes have the same pace.
        host: The share of a call that is work of the host, if end-to-end times are compared.
        kind: The kind of device.
    """
    factor = 1 + unseen(reference, candidate, kernels=kernels, same_pace=same_pace) + host * _HOST_BAND[kind]
    return ratio.low / factor, ratio.high * factor


def unseen(reference: float, candidate: float, *, kernels: int = 0, same_pace: bool = True) -> float:
    """Return the share by which two processes may differ in a ratio of device times although no round shows it."""
    share = _DEAD_BAND + _DEAD_SECONDS / candidate
    return share + (_DEAD_SECONDS + kernels * _KERNEL_SECONDS[same_pace]) / reference


def _quick(seconds: Sequence[float], factor: float) -> list[int]:
    least = min(seconds)
    return [at for at, second in enumerate(seconds) if second <= factor * least]


def _of_pairs(reference: Sequence[float], candidate: Sequence[float], expected: float = 0.0) -> Ratio:
    """Return the trimmed mean of the rounds' ratios, by their logarithms, and its interval.

    `expected` is a standard deviation. It counts as if a few more rounds had shown it; 0 for none. The side that comes
    first in a round was the last one in the round before, and finds caches and host as it left them. The order changes
    from round to round, so this cancels. Once there are enough rounds, it is also removed from their spread.
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
    """Return a trimmed mean, its standard error, and the error's degrees of freedom.

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
    """Return the mean of the values between two shares of all, counted from the quickest on."""
    begin, end = int(shares[0] * len(values) + 0.5), math.ceil(shares[1] * len(values))
    return statistics.fmean(sorted(values)[begin : max(end, begin + 1)])


def _error_of_undelayed(values: Sequence[float]) -> tuple[float, int]:
    """Return the standard error of the logarithm of the quicker half's mean, and its degrees of freedom.

    As in `_trimmed`, but only one end is trimmed: each value of the slower half counts as the slowest value that is
    kept.
    """
    count, ordered = len(values), sorted(math.log(value) for value in values)
    kept = ordered[: math.ceil(_UNDELAYED[1] * count)]
    winsorised = kept + [kept[-1]] * (count - len(kept))
    return statistics.stdev(winsorised) / (len(kept) / count * math.sqrt(count)), len(kept) - 1


def _student(freedom: int) -> float:
    """Return Student's t for a two-sided 95 % interval, by its expansion (Abramowitz and Stegun, 26.7.5)."""
    if freedom in _STUDENT:
        return _STUDENT[freedom]
    z: float = _NORMAL
    terms: tuple[float, ...] = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / float(freedom**power) for power, term in enumerate(terms, 1))

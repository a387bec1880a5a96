"""Metrics of evaluations: fast@p, best by turn, improvement, quartiles, pass@k and tables by turn. Plain Python, no torch.

A turn is given as a speedup and whether it was correct. `None` for both is a turn without a verdict: the generation ran
out of context, or the evaluation was lost to an infrastructure failure. A coverage of `None` was not measured; no figure
includes it.

A win is counted in two ways, which every report shows side by side: by the measured speedup (`is_win`, `fast_at_p`), and
by the lower end of its 95 % interval (`is_sure_win`, `sure_fast_at_p`). docs/training.md says which one to publish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from .errors import ShapeError, TrainingError

#: Speedups that the Dr. Kernel paper and KernelGYM report.
THRESHOLDS: Final = (1.0, 1.2, 1.5, 2.0, 3.0)


def is_win(speedup: float | None, p: float) -> bool:
    """Return True if a correct answer with this measured speedup is at least p times as fast as its reference.

    Source: KernelGYM (speedup >= p; KernelBench requires speedup > p).

    Args:
        speedup: reference time / candidate time; None if it was not measured, which is a win only for p <= 0.
        p: threshold, inclusive.
    """
    return (speedup or 0.0) >= p


def is_sure_win(low: float | None, p: float) -> bool:
    """Return True if the whole 95 % interval of a correct answer's speedup is above p.

    Unchanged PyTorch compared with itself measures 1.00 plus or minus noise. By `is_win` with p = 1 it wins half of the
    time, by this function almost never.

    Args:
        low: lower end of the interval, as a ratio of times; None if there is no interval, which is no sure win.
        p: threshold, exclusive, as in KernelBench.
    """
    return low is not None and low > p


def fast_at_p(speedups: Sequence[float | None], correct: Sequence[bool | None], p: float) -> float:
    """Compute the share of **all** samples that are correct and at least p times as fast as the reference.

    A sample without a verdict is in the denominator, so that a policy gains nothing by answers that cannot be judged. (The
    caller decides whether an evaluation lost to an infrastructure failure is a sample.) With p = 0, it is the share of
    correct samples.

    Source: KernelBench; Dr. Kernel's Fast@p.

    Args:
        speedups: reference time / candidate time, for each sample.
        correct: whether each sample passed; `speedups` of samples that did not pass are not read.
        p: threshold, inclusive.

    Raises:
        ShapeError: `speedups` and `correct` differ in length.
        TrainingError: there are no samples, or p or a correct sample's speedup is NaN.
    """
    return sum(_fast(_some(speedups), correct, p)) / len(speedups)


def sure_fast_at_p(lows: Sequence[float | None], correct: Sequence[bool | None], p: float) -> float:
    """Compute the share of **all** samples that are correct and whose whole 95 % interval of the speedup is above p.

    It is never more than `fast_at_p` of the same samples, if each interval contains its speedup.

    Source: KernelBench's fast_p (speedup > p), with the lower end of the interval in place of the speedup.

    Args:
        lows: lower end of the interval of each sample's speedup, as a ratio of times. None if there is no interval; the
            sample is then no win and stays in the denominator.
        correct: whether each sample passed, None without a verdict; `lows` of samples that did not pass are not read.
        p: threshold, exclusive.

    Raises:
        ShapeError: `lows` and `correct` differ in length.
        TrainingError: there are no samples, or p or a correct sample's lower end is NaN.
    """
    return sum(_passed(_some(lows), correct, p, is_sure_win)) / len(lows)


def fast_at_p_kernelgym(speedups: Sequence[float | None], correct: Sequence[bool | None], p: float) -> float:
    """Compute KernelGYM's `fast@p_in_all`, which leaves samples without a verdict (None) out of the denominator.

    Failed generations then do not count as failures. Use it only to compare with figures computed in this way.

    Source: KernelGYM, kernel_multi_turn_metrics.py.

    Args, Raises: as `fast_at_p`.

    Returns:
        The share; 0 if no sample has a verdict.
    """
    fast, judged = sum(_fast(_some(speedups), correct, p)), sum(verdict is not None for verdict in correct)
    return fast / judged if judged else 0.0


def fast_at_p_correct(speedups: Sequence[float | None], correct: Sequence[bool | None], p: float) -> float:
    """Compute KernelGYM's `fast@p`: the share of the **correct** samples that are fast.

    It does not depend on how many samples are correct.

    Source: KernelGYM, kernel_multi_turn_metrics.py.

    Args, Raises: as `fast_at_p`.

    Returns:
        The share; 0 if no sample is correct.
    """
    fast, passed = sum(_fast(_some(speedups), correct, p)), sum(map(bool, correct))
    return fast / passed if passed else 0.0


def best_by_turn(speedups: Sequence[float | None], correct: Sequence[bool | None]) -> list[float]:
    """Return, for each turn of one episode, the best correct speedup up to it; 0 while there is none.

    The choice uses the evaluator's own measurement, so noise in the times makes it look better. Do not compare it with
    figures of single answers.
    """
    return [0.0 if best is None else speedups[best] or 0.0 for best in _best_so_far(speedups, correct)]


@dataclass(frozen=True, slots=True)
class Quartiles:
    """Distribution of the values of at least one sample."""

    count: int
    """Number of samples with a value."""
    mean: float
    minimum: float
    lower: float
    """First quartile: a quarter of the values are at most this."""
    median: float
    upper: float
    """Third quartile."""
    maximum: float


def quartiles(values: Sequence[float | None]) -> Quartiles | None:
    """Return mean and quartiles of the values that are not None; None (rather than 0) if there are none.

    Quartiles are interpolated linearly between the two nearest values in order, at position (n - 1) * q.

    Source: KernelGYM, kernel_multi_turn_metrics.py, reports such statistics of speedup and coverage. Leaving absent values
    out and reporting their `count` is ours.

    Args:
        values: one for each sample; None where it was not measured.

    Raises:
        TrainingError: a value is NaN or infinite.
    """
    known = sorted(value for value in values if value is not None)
    if not all(map(math.isfinite, known)):
        raise TrainingError("a value is NaN or infinite; give None for what was not measured")
    if not known:
        return None

    def at(share: float) -> float:
        place = (len(known) - 1) * share
        below = math.floor(place)
        above = min(below + 1, len(known) - 1)
        return known[below] + (known[above] - known[below]) * (place - below)

    mean = min(max(math.fsum(known) / len(known), known[0]), known[-1])  # rounding must not put it outside
    return Quartiles(len(known), mean, known[0], at(0.25), at(0.5), at(0.75), known[-1])


def correct_quartiles(values: Sequence[float | None], correct: Sequence[bool | None]) -> Quartiles | None:
    """Return `quartiles` of the correct samples: of their speedups, or of their coverages.

    Args:
        values: speedup (reference time / candidate time) or coverage (0..1) of each sample, None where not measured. Values
            of samples that are not correct are not read.
        correct: whether each sample passed, None without a verdict.

    Raises:
        ShapeError: `values` and `correct` differ in length.
        TrainingError: a correct sample's value is NaN or infinite.
    """
    if len(values) != len(correct):
        raise ShapeError("correct", (len(correct),), f"({len(values)},), as values")
    return quartiles([value for value, verdict in zip(values, correct, strict=True) if verdict])


@dataclass(frozen=True, slots=True)
class Improvement:
    """Gain of one more turn. All shares are of all episodes, including those that ended before this turn."""

    turn: int
    """Number of the later turn, counted from 1; so 2 or more."""
    improved: float
    """Share of episodes whose best answer up to this turn is faster than the best before it, or is their first."""
    sure_improved: float
    """Share of episodes that improved for sure: by their first correct answer, or by an answer whose 95 % interval is above
    that of the best answer before. Measuring the same kernel again counts as improved half of the time, and almost never as
    improved for sure."""
    first: float
    """Share of episodes whose first correct, measured answer came in this turn."""
    mean_gain: float
    """Mean over all episodes of (best speedup after - best before); an episode without an answer has a speedup of 0."""


def improvement_by_turn(
    speedups: Sequence[Sequence[float | None]],
    correct: Sequence[Sequence[bool | None]],
    lows: Sequence[Sequence[float | None]] | None = None,
    highs: Sequence[Sequence[float | None]] | None = None,
) -> list[Improvement]:
    """Compute what each turn after the first added to the best answer of each episode.

    Source: KernelGYM, kernel_multi_turn_metrics.py, reports an improvement over turns; these definitions, by turn and by
    interval, are ours.

    Args:
        speedups: one sequence for each episode, one value for each turn: reference time / candidate time, None where not
            measured.
        correct: in the same form, None without a verdict. Speedups of turns that are not correct are not read.
        lows, highs: in the same form, the ends of the 95 % interval of each speedup. Without both, only first answers are
            sure.

    Returns:
        One `Improvement` for each turn after the first, up to the longest episode.

    Raises:
        ShapeError: the arguments differ in episodes or in turns.
        TrainingError: a correct turn's speedup is NaN.
    """
    absent = [[None] * len(episode) for episode in speedups]
    lows, highs = absent if lows is None else lows, absent if highs is None else highs
    _same_shape(speedups, correct=correct, lows=lows, highs=highs)
    best = [_best_so_far(*episode) for episode in zip(speedups, correct, strict=True)]
    found = []
    for turn in range(1, max(map(len, speedups), default=0)):
        improved = sure = first = 0
        gains = []
        for episode, kept in enumerate(best):
            if turn >= len(kept) or kept[turn] == kept[turn - 1]:
                continue
            now, before = kept[turn], kept[turn - 1]
            assert now is not None
            improved += 1
            first += before is None
            gains.append(
                (speedups[episode][now] or 0.0) - (0.0 if before is None else speedups[episode][before] or 0.0)
            )
            low, high = lows[episode][now], None if before is None else highs[episode][before]
            sure += before is None or (low is not None and high is not None and low > high)
        count = len(speedups)
        found.append(Improvement(turn + 1, improved / count, sure / count, first / count, math.fsum(gains) / count))
    return found


def pass_at_k(n: int, c: int, k: int) -> float:
    """Estimate without bias the probability that at least one of k samples passes, from n samples of which c passed.

    It is 1 - C(n - c, k) / C(n, k), computed as a product of factors within 0..1, so that no n gives large numbers.

    Source: Chen et al. 2021 (arXiv 2107.03374).

    Raises:
        TrainingError: unless 0 <= c <= n and 1 <= k <= n; fewer than k samples give no estimate for k.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise TrainingError(f"pass@k needs 0 <= c <= n and 1 <= k <= n; got n={n}, c={c}, k={k}")
    if n - c < k:
        return 1.0
    return 1.0 - math.prod((n - c - i) / (n - i) for i in range(k))


@dataclass(frozen=True, slots=True)
class TurnRow:
    """Figures of one turn over all episodes. Every share is of all episodes, including those that ended before it."""

    turn: int
    """Number of the turn, counted from 1."""
    episodes: int
    judged: int
    """Number of episodes with a verdict in this turn."""
    correct: float
    """Share of correct answers in this turn."""
    mean_speedup: float
    """Mean speedup of the correct answers of this turn; 0 if there are none."""
    fast: dict[float, float]
    """`fast_at_p` of this turn, by threshold."""
    sure_fast: dict[float, float]
    """`sure_fast_at_p` of this turn, by threshold."""
    fast_kernelgym: dict[float, float]
    """`fast_at_p_kernelgym` of this turn, by threshold: KernelGYM's `fast@p_in_all`."""
    fast_correct: dict[float, float]
    """`fast_at_p_correct` of this turn, by threshold: KernelGYM's `fast@p`."""
    best_fast: dict[float, float]
    """`fast_at_p` of the best answer up to this turn, by threshold."""
    best_sure_fast: dict[float, float]
    """`sure_fast_at_p` of the same answers. A later answer with a higher speedup replaces an earlier one even if its
    interval is wider, so this share can fall from turn to turn."""
    speedup_quartiles: Quartiles | None
    """Of the speedups of this turn's correct answers that were measured; None if there are none."""
    coverage_quartiles: Quartiles | None
    """Of the coverages of this turn's correct answers that were profiled; None if there are none."""
    improvement: Improvement | None
    """Gain of this turn over the best answers before; None for the first turn."""


def turn_table(
    speedups: Sequence[Sequence[float | None]],
    correct: Sequence[Sequence[bool | None]],
    thresholds: Sequence[float] = THRESHOLDS,
    lows: Sequence[Sequence[float | None]] | None = None,
    highs: Sequence[Sequence[float | None]] | None = None,
    coverages: Sequence[Sequence[float | None]] | None = None,
) -> list[TurnRow]:
    """Return one row for each turn, from episodes of any length.

    Args:
        speedups: one sequence for each episode, one value for each turn.
        correct: in the same form.
        thresholds: the values of p for fast@p.
        lows: in the same form, the lower end of the 95 % interval of each speedup. Without it no win is sure.
        highs: in the same form, the upper end. Without it only first correct answers are sure improvements.
        coverages: in the same form, the share of device time in the candidate's own kernels, within 0..1; None where not
            profiled.

    Raises:
        ShapeError: the arguments differ in episodes or in turns.
        TrainingError: a correct turn's speedup, lower end or coverage is NaN.
    """
    absent = [[None] * len(episode) for episode in speedups]
    lows, highs = absent if lows is None else lows, absent if highs is None else highs
    coverages = absent if coverages is None else coverages
    _same_shape(speedups, correct=correct, lows=lows, highs=highs, coverages=coverages)
    better = [None, *improvement_by_turn(speedups, correct, lows, highs)]
    best = [_best_so_far(*episode) for episode in zip(speedups, correct, strict=True)]
    rows = []
    for turn in range(max(map(len, speedups), default=0)):
        times = [episode[turn] if turn < len(episode) else None for episode in speedups]
        verdicts = [episode[turn] if turn < len(episode) else None for episode in correct]
        ends = [episode[turn] if turn < len(episode) else None for episode in lows]
        shares = [episode[turn] if turn < len(episode) else None for episode in coverages]
        kept = [episode[min(turn, len(episode) - 1)] if episode else None for episode in best]
        found = [at is not None for at in kept]
        kept_times = [None if at is None else episode[at] for at, episode in zip(kept, speedups, strict=True)]
        kept_ends = [None if at is None else episode[at] for at, episode in zip(kept, lows, strict=True)]
        passed = [time for time, verdict in zip(times, verdicts, strict=True) if verdict and time is not None]
        rows.append(
            TurnRow(
                turn=turn + 1,
                episodes=len(times),
                judged=sum(verdict is not None for verdict in verdicts),
                correct=sum(map(bool, verdicts)) / len(verdicts),
                mean_speedup=math.fsum(passed) / len(passed) if passed else 0.0,
                fast={p: fast_at_p(times, verdicts, p) for p in thresholds},
                sure_fast={p: sure_fast_at_p(ends, verdicts, p) for p in thresholds},
                fast_kernelgym={p: fast_at_p_kernelgym(times, verdicts, p) for p in thresholds},
                fast_correct={p: fast_at_p_correct(times, verdicts, p) for p in thresholds},
                best_fast={p: fast_at_p(kept_times, found, p) for p in thresholds},
                best_sure_fast={p: sure_fast_at_p(kept_ends, found, p) for p in thresholds},
                speedup_quartiles=correct_quartiles([time or None for time in times], verdicts),  # 0: not measured
                coverage_quartiles=correct_quartiles(shares, verdicts),
                improvement=better[turn],
            )
        )
    return rows


def _same_shape(speedups: Sequence[Sequence[object]], **others: Sequence[Sequence[object]]) -> None:
    """Raise ShapeError unless all have as many episodes as `speedups`, with as many turns each."""
    for name, given in others.items():
        if len(given) != len(speedups):
            raise ShapeError(name, (len(given),), f"({len(speedups)},), as speedups")
        for episode, (turns, wanted) in enumerate(zip(given, speedups, strict=True)):
            if len(turns) != len(wanted):
                raise ShapeError(f"{name}[{episode}]", (len(turns),), f"({len(wanted)},), as speedups")


def _best_so_far(speedups: Sequence[float | None], correct: Sequence[bool | None]) -> list[int | None]:
    """Return, for each turn of an episode, the index of the fastest correct turn so far (the first of equals), or None."""
    best, found = None, []
    top = 0.0
    for index, (speedup, fast) in enumerate(zip(speedups, _fast(speedups, correct, -math.inf), strict=True)):
        if fast and speedup is not None and speedup > top:
            best, top = index, speedup
        found.append(best)
    return found


def _fast(speedups: Sequence[float | None], correct: Sequence[bool | None], p: float) -> list[bool]:
    """Return which samples are correct and win by their speedup."""
    return _passed(speedups, correct, p, is_win)


def _passed(
    values: Sequence[float | None],
    correct: Sequence[bool | None],
    p: float,
    wins: Callable[[float | None, float], bool],
) -> list[bool]:
    """Return which samples are correct and win by `wins`. Values of samples that are not correct are not read."""
    if len(values) != len(correct):
        raise ShapeError("correct", (len(correct),), f"({len(values)},), as speedups")
    pairs = list(zip(values, correct, strict=True))
    if math.isnan(p) or any(verdict and value is not None and math.isnan(value) for value, verdict in pairs):
        raise TrainingError("a value of a correct answer, or p, is NaN; give None for an answer that was not measured")
    return [bool(verdict) and wins(value, p) for value, verdict in pairs]


def _some(samples: Sequence[float | None]) -> Sequence[float | None]:
    if not samples:
        raise TrainingError("there are no samples, so there is no share")
    return samples

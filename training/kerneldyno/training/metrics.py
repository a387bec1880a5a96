"""Metrics of evaluations: fast@p, best by turn, pass@k and tables by turn. Plain Python, no torch.

A turn is a speedup and whether it was correct. `None` for both is a turn that has no verdict: a generation that ran
out of context, or an evaluation lost to infrastructure.

A win counts in two ways, which every report shows beside each other: by the measured speedup (`is_win`, `fast_at_p`), and
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

    Source: KernelGYM asks for speedup >= p; KernelBench asks for speedup > p.

    Args:
        speedup: reference time / candidate time; None if it was not measured, which is a win for p <= 0 only.
        p: threshold, inclusive.
    """
    return (speedup or 0.0) >= p


def is_sure_win(low: float | None, p: float) -> bool:
    """Return True if the whole 95 % interval of a correct answer's speedup is above p.

    Unchanged PyTorch against itself measures 1.00 plus or minus noise. It wins half of the time by `is_win` with p = 1,
    and almost never by this one.

    Args:
        low: lower end of the interval, as a ratio of times; None if there is no interval, and then no win is sure.
        p: threshold, exclusive, as KernelBench has it.
    """
    return low is not None and low > p


def fast_at_p(speedups: Sequence[float | None], correct: Sequence[bool | None], p: float) -> float:
    """The share of **all** samples that are correct and at least p times as fast as the reference.

    A sample without a verdict is in the denominator: a policy gains nothing by answers that cannot be judged. (The
    caller decides whether an evaluation that infrastructure lost is a sample at all.) With p = 0, the share of
    correct samples.

    Source: KernelBench; Dr. Kernel's Fast@p.

    Args:
        speedups: reference time / candidate time, for each sample.
        correct: whether each sample passed; `speedups` of those that did not is not looked at.
        p: threshold, inclusive.

    Raises:
        ShapeError: not one verdict for each speedup.
        TrainingError: no samples, or p or a correct sample's speedup is NaN.
    """
    return sum(_fast(_some(speedups), correct, p)) / len(speedups)


def sure_fast_at_p(lows: Sequence[float | None], correct: Sequence[bool | None], p: float) -> float:
    """The share of **all** samples that are correct and whose whole 95 % interval of the speedup is above p.

    Never more than `fast_at_p` of the same samples, if each interval holds its speedup.

    Source: KernelBench's fast_p (speedup > p), with the lower end of the interval in place of the speedup.

    Args:
        lows: lower end of the interval of each sample's speedup, as a ratio of times. None if there is no interval; the
            sample then counts as no win and stays in the denominator.
        correct: whether each sample passed, None without a verdict; `lows` of those that did not is not looked at.
        p: threshold, exclusive.

    Raises:
        ShapeError: not one verdict for each lower end.
        TrainingError: no samples, or p or a correct sample's lower end is NaN.
    """
    return sum(_passed(_some(lows), correct, p, is_sure_win)) / len(lows)


def fast_at_p_kernelgym(speedups: Sequence[float | None], correct: Sequence[bool | None], p: float) -> float:
    """KernelGYM's `fast@p_in_all`: samples without a verdict (None) are dropped from the denominator.

    So failed generations do not count as failures. To compare with figures that were made so, and for nothing else.

    Source: KernelGYM, kernel_multi_turn_metrics.py. Args and raises as `fast_at_p`; 0 if no sample has a verdict.
    """
    fast, judged = sum(_fast(_some(speedups), correct, p)), sum(verdict is not None for verdict in correct)
    return fast / judged if judged else 0.0


def fast_at_p_correct(speedups: Sequence[float | None], correct: Sequence[bool | None], p: float) -> float:
    """KernelGYM's `fast@p`: the share of the **correct** samples that are fast. Says nothing about how many are
    correct.

    Source: KernelGYM, kernel_multi_turn_metrics.py. Args and raises as `fast_at_p`; 0 if no sample is correct.
    """
    fast, passed = sum(_fast(_some(speedups), correct, p)), sum(map(bool, correct))
    return fast / passed if passed else 0.0


def best_by_turn(speedups: Sequence[float | None], correct: Sequence[bool | None]) -> list[float]:
    """For each turn of one episode, the best correct speedup up to it; 0 while there is none.

    It chooses with the evaluator's own measurement, so it profits from noise in the times: not to be compared with
    the figures of single answers.
    """
    return [0.0 if best is None else speedups[best] or 0.0 for best in _best_so_far(speedups, correct)]


def pass_at_k(n: int, c: int, k: int) -> float:
    """The probability that at least one of k samples passes, from n samples of which c passed; unbiased.

    1 - C(n - c, k) / C(n, k), as a product of factors within 0..1: no large numbers for any n.

    Source: Chen et al. 2021 (arXiv 2107.03374).

    Raises:
        TrainingError: unless 0 <= c <= n and 1 <= k <= n; fewer samples than k say nothing about k.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise TrainingError(f"pass@k needs 0 <= c <= n and 1 <= k <= n; got n={n}, c={c}, k={k}")
    if n - c < k:
        return 1.0
    return 1.0 - math.prod((n - c - i) / (n - i) for i in range(k))


@dataclass(frozen=True, slots=True)
class TurnRow:
    """What a turn came to over all episodes; every share is of all episodes, those that ended before this turn
    included."""

    turn: int
    """Counted from 1."""
    episodes: int
    judged: int
    """Episodes with a verdict in this turn."""
    correct: float
    """Share of correct answers in this turn."""
    mean_speedup: float
    """Mean speedup of the correct answers of this turn; 0 without any."""
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
    """`sure_fast_at_p` of the same answers. A later answer that measures faster takes the place of an earlier one also if
    its interval is wider, so this share can fall from turn to turn."""


def turn_table(
    speedups: Sequence[Sequence[float | None]],
    correct: Sequence[Sequence[bool | None]],
    thresholds: Sequence[float] = THRESHOLDS,
    lows: Sequence[Sequence[float | None]] | None = None,
) -> list[TurnRow]:
    """One row for each turn, from episodes of any length.

    Args:
        speedups: of each episode, of each of its turns.
        correct: likewise.
        thresholds: for fast@p.
        lows: likewise, the lower end of the 95 % interval of each speedup. Without it no win is sure.

    Raises:
        ShapeError: the arguments differ in episodes or in turns.
        TrainingError: a correct turn's speedup or lower end is NaN.
    """
    if lows is None:
        lows = [[None] * len(episode) for episode in speedups]
    for name, given in (("correct", correct), ("lows", lows)):
        if len(given) != len(speedups):
            raise ShapeError(name, (len(given),), f"({len(speedups)},), as speedups")
    for episode, ends in zip(speedups, lows, strict=True):
        if len(episode) != len(ends):
            raise ShapeError("lows", (len(ends),), f"({len(episode)},), as speedups")
    best = [_best_so_far(*episode) for episode in zip(speedups, correct, strict=True)]
    rows = []
    for turn in range(max(map(len, speedups), default=0)):
        times = [episode[turn] if turn < len(episode) else None for episode in speedups]
        verdicts = [episode[turn] if turn < len(episode) else None for episode in correct]
        ends = [episode[turn] if turn < len(episode) else None for episode in lows]
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
            )
        )
    return rows


def _best_so_far(speedups: Sequence[float | None], correct: Sequence[bool | None]) -> list[int | None]:
    """For each turn of one episode, the index of the fastest correct turn up to it (the first of equals); None before."""
    best, found = None, []
    top = 0.0
    for index, (speedup, fast) in enumerate(zip(speedups, _fast(speedups, correct, -math.inf), strict=True)):
        if fast and speedup is not None and speedup > top:
            best, top = index, speedup
        found.append(best)
    return found


def _fast(speedups: Sequence[float | None], correct: Sequence[bool | None], p: float) -> list[bool]:
    """Which samples are correct and win by their speedup."""
    return _passed(speedups, correct, p, is_win)


def _passed(
    values: Sequence[float | None],
    correct: Sequence[bool | None],
    p: float,
    wins: Callable[[float | None, float], bool],
) -> list[bool]:
    """Which samples are correct and win by `wins`. Values of samples that are not correct are not looked at."""
    if len(values) != len(correct):
        raise ShapeError("correct", (len(correct),), f"({len(values)},), as speedups")
    pairs = list(zip(values, correct, strict=True))
    if math.isnan(p) or any(verdict and value is not None and math.isnan(value) for value, verdict in pairs):
        raise TrainingError("NaN is no speedup: a correct answer that was not measured has None")
    return [bool(verdict) and wins(value, p) for value, verdict in pairs]


def _some(samples: Sequence[float | None]) -> Sequence[float | None]:
    if not samples:
        raise TrainingError("no samples: a share of nothing is not 0")
    return samples

"""Metrics of evaluations: fast@p, best by turn, pass@k and tables by turn. Plain Python, no torch.

A turn is a speedup and whether it was correct. `None` for both is a turn that has no verdict: a generation that ran
out of context, or an evaluation lost to infrastructure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .errors import ShapeError, TrainingError

#: Speedups that the Dr. Kernel paper and KernelGYM report.
THRESHOLDS: Final = (1.0, 1.2, 1.5, 2.0, 3.0)


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
    best, found = 0.0, []
    for speedup, fast in zip(speedups, _fast(speedups, correct, -math.inf), strict=True):
        best = max(best, speedup) if fast and speedup is not None else best
        found.append(best)
    return found


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
    best_fast: dict[float, float]
    """`fast_at_p` of the best answer up to this turn, by threshold."""


def turn_table(
    speedups: Sequence[Sequence[float | None]],
    correct: Sequence[Sequence[bool | None]],
    thresholds: Sequence[float] = THRESHOLDS,
) -> list[TurnRow]:
    """One row for each turn, from episodes of any length.

    Args:
        speedups: of each episode, of each of its turns.
        correct: likewise.
        thresholds: for fast@p.
    """
    if len(speedups) != len(correct):
        raise ShapeError("correct", (len(correct),), f"({len(speedups)},), as speedups")
    best = [best_by_turn(*episode) for episode in zip(speedups, correct, strict=True)]
    rows = []
    for turn in range(max(map(len, speedups), default=0)):
        times = [episode[turn] if turn < len(episode) else None for episode in speedups]
        verdicts = [episode[turn] if turn < len(episode) else None for episode in correct]
        kept = [episode[min(turn, len(episode) - 1)] if episode else 0.0 for episode in best]
        passed = [time for time, verdict in zip(times, verdicts, strict=True) if verdict and time is not None]
        rows.append(
            TurnRow(
                turn=turn + 1,
                episodes=len(times),
                judged=sum(verdict is not None for verdict in verdicts),
                correct=sum(map(bool, verdicts)) / len(verdicts),
                mean_speedup=math.fsum(passed) / len(passed) if passed else 0.0,
                fast={p: fast_at_p(times, verdicts, p) for p in thresholds},
                best_fast={p: fast_at_p(kept, [speedup > 0 for speedup in kept], p) for p in thresholds},
            )
        )
    return rows


def _fast(speedups: Sequence[float | None], correct: Sequence[bool | None], p: float) -> list[bool]:
    """Which samples are correct and at least p times as fast; correct without a time is so for p <= 0 only."""
    if len(speedups) != len(correct):
        raise ShapeError("correct", (len(correct),), f"({len(speedups)},), as speedups")
    pairs = list(zip(speedups, correct, strict=True))
    if math.isnan(p) or any(verdict and time is not None and math.isnan(time) for time, verdict in pairs):
        raise TrainingError("NaN is no speedup: a correct answer that was not measured has None")
    return [bool(verdict) and (time or 0.0) >= p for time, verdict in pairs]


def _some(samples: Sequence[float | None]) -> Sequence[float | None]:
    if not samples:
        raise TrainingError("no samples: a share of nothing is not 0")
    return samples

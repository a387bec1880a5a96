"""Count the wins in a suite of problems: fast@p by group, by the speedup and by its interval.

kerneldyno.training.metrics defines a win; this module counts, with the denominators of a suite.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kerneldyno.report.candidates import TOO_LARGE, Candidate
from kerneldyno.training import metrics

#: KernelBench's thresholds from 1 upwards.
THRESHOLDS = (1.0, 1.5, 2.0)


@dataclass(frozen=True, slots=True)
class Wins:
    """Problems whose candidate is correct and wins at `p`."""

    p: float
    #: By the speedup (`metrics.is_win`).
    plain: int
    #: By the lower end of its interval (`metrics.is_sure_win`).
    sure: int
    #: Most wins that could be sure with better times: the upper end of the interval is above p, or the speedup if there
    #: is no interval.
    possible: int


@dataclass(frozen=True, slots=True)
class FastRow:
    """One group of problems, or all of them."""

    group: str
    problems: int
    #: Problems without a candidate or without a result yet; they count as lost.
    missing: int
    #: Problems without a verdict, because infrastructure or their reference failed; no share includes them. Problems
    #: that are too large for the devices are not among them: they count as not won.
    unjudged: int
    right: int
    median_speedup: float | None
    wins: list[Wins]

    @property
    def denominator(self) -> int:
        """Return the number of problems that shares refer to."""
        return self.problems - self.unjudged


def fast_rows(
    names: Sequence[tuple[str, str]], found: Sequence[Candidate], thresholds: Sequence[float] = THRESHOLDS
) -> list[FastRow]:
    """Count by group; if there are several groups, the last row is for all of them.

    Args:
        names: name and group of every problem of the suite.
        found: the candidates; each belongs to the problem that its `problem` names.
        thresholds: the values of p.
    """
    of = {candidate.problem: candidate for candidate in found}
    groups = list(dict.fromkeys(group for _, group in names))
    rows = [_row(group, [name for name, its in names if its == group], of, thresholds) for group in groups]
    return rows if len(groups) < 2 else [*rows, _row("all", [name for name, _ in names], of, thresholds)]


def _row(group: str, names: Sequence[str], of: dict[str, Candidate], thresholds: Sequence[float]) -> FastRow:
    candidates = [of[name] for name in names if name in of]
    right = [candidate for candidate in candidates if candidate.correct]
    speedups = [candidate.speedup for candidate in right if candidate.speedup is not None]
    return FastRow(
        group,
        len(names),
        len(names) - len(candidates),
        sum(not candidate.counts and candidate.outcome != TOO_LARGE for candidate in candidates),
        len(right),
        statistics.median(speedups) if speedups else None,
        [_wins(p, right) for p in thresholds],
    )


def _wins(p: float, right: Sequence[Candidate]) -> Wins:
    tops = [candidate.speedup if candidate.high is None else candidate.high for candidate in right]
    return Wins(
        p,
        sum(metrics.is_win(candidate.speedup, p) for candidate in right),
        sum(metrics.is_sure_win(candidate.low, p) for candidate in right),
        sum(top is not None and top > p for top in tops),
    )

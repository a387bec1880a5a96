"""Figures by group of problems (KernelBench's levels): how many candidates are correct, and fast_p of each group."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from kerneldyno.client.problem_names import group_of
from kerneldyno.report.candidates import Candidate
from kerneldyno.training import metrics


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of problems; shares (0 to 1) refer to its candidates with a verdict."""

    group: str
    problems: int
    #: Candidates with a verdict.
    candidates: int
    correct: float
    #: Median over the candidates that are correct and timed; None without any.
    median_speedup: float | None
    #: `metrics.fast_at_p` and `metrics.sure_fast_at_p` by p.
    fast: dict[float, float]
    sure_fast: dict[float, float]


def group_rows(found: Sequence[Candidate]) -> list[GroupRow]:
    """Count by group, in the order of the candidates; return nothing if there is only one group.

    A candidate belongs to the group that a label says, else to that of its problem's name.
    """
    by_group: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in found:
        if candidate.counts:
            by_group[group_of(candidate.problem) if candidate.group is None else candidate.group].append(candidate)
    return [_row(group, alike) for group, alike in by_group.items()] if len(by_group) > 1 else []


def _row(group: str, alike: Sequence[Candidate]) -> GroupRow:
    correct = [candidate.correct for candidate in alike]
    speedups = [candidate.speedup for candidate in alike]
    timed = [speedup for speedup in speedups if speedup is not None]
    return GroupRow(
        group,
        len({candidate.problem for candidate in alike}),
        len(alike),
        sum(correct) / len(alike),
        statistics.median(timed) if timed else None,
        {p: metrics.fast_at_p(speedups, correct, p) for p in metrics.THRESHOLDS},
        {p: metrics.sure_fast_at_p([candidate.low for candidate in alike], correct, p) for p in metrics.THRESHOLDS},
    )

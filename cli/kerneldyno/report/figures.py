"""Compute the figures of a report: shares with their denominators, fast@p, times by stage, findings, environments."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kerneldyno.report.candidates import BLAMELESS, TOO_LARGE, Candidate, CandidateFinding
from kerneldyno.report.elapsed import summed, wall_seconds
from kerneldyno.report.groups import GroupRow, group_rows
from kerneldyno.rewards.trajectories import TurnRecord, trajectories
from kerneldyno.rollout.report import report
from kerneldyno.training import metrics

#: Points on a curve of fast@p.
_POINTS = 49
#: The axis of fast@p always includes 1/4 to 4, and never exceeds the second range.
_NARROWEST, _WIDEST = (0.25, 4.0), (1e-6, 1e6)


@dataclass(frozen=True, slots=True)
class Curve:
    """fast@p: shares (0 to 1) at each p of the figures' grid, and at metrics.THRESHOLDS."""

    name: str
    shares: list[float]
    at_thresholds: list[float]
    #: `metrics.sure_fast_at_p` at metrics.THRESHOLDS.
    sure_at_thresholds: list[float]
    #: The same shares with the lower ends (sure wins) and the upper ends of the speedups' 95 % intervals in place of
    #: the speedups; empty without intervals.
    low: list[float]
    high: list[float]
    #: Whether it shows the best of several answers.
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class KernelGymRow:
    """A turn by KernelGYM's definitions: shares (0 to 1) by p."""

    turn: int
    #: `fast@p_in_all`: share of the answers with a verdict.
    in_all: dict[float, float]
    #: `fast@p`: share of the correct answers.
    of_correct: dict[float, float]


@dataclass(frozen=True, slots=True)
class StageTimes:
    """How long a stage took, in seconds, over the candidates that went through it."""

    name: str
    count: int
    total: float
    median: float
    p90: float
    longest: float


@dataclass(frozen=True, slots=True)
class FindingCount:
    """How many candidates have a finding, its worst severity, and the evidence of one of them."""

    id: str
    severity: str
    candidates: int
    example: str


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a report."""

    candidates: int
    #: The denominator: candidates with a verdict.
    judged: int
    problems: int
    #: Outcomes of all candidates, the most frequent first.
    outcomes: list[tuple[str, int]]
    #: Infrastructure failures and broken references by cause; no denominator includes them.
    lost: list[tuple[str, int]]
    malformed: int
    correct: int
    timed: int
    #: Number of timed candidates whose speedup has no interval; none of them is a sure win.
    without_interval: int
    interpreted: int
    median_speedup: float | None
    #: Which times the counted speedups are by, the most frequent first: values of `speedups.WORDS`.
    speedups_by: list[tuple[str, int]]
    grid: list[float]
    curves: list[Curve]
    #: Denominator of the curves, in words.
    denominator: str
    #: One row per turn; empty without turns.
    kernelgym: list[KernelGymRow]
    #: Figures by group of problems; empty if there is only one group.
    by_group: list[GroupRow]
    stages: list[StageTimes]
    #: Time from the first request to the last verdict; None if the results do not say.
    wall_seconds: float | None
    #: Sums over candidates, which run side by side: seconds of work, and seconds of waiting.
    work_seconds: float
    waiting_seconds: float
    findings: list[FindingCount]
    environments: list[tuple[str, int]]
    #: Number of environments with times.
    timed_environments: int
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON data, without the points of the curves."""
        data = asdict(self)
        thresholds = list(map(str, metrics.THRESHOLDS))
        data["fast"] = {curve.name: dict(zip(thresholds, curve.at_thresholds, strict=True)) for curve in self.curves}
        data["sure_fast"] = {
            curve.name: dict(zip(thresholds, curve.sure_at_thresholds, strict=True)) for curve in self.curves
        }
        return {key: value for key, value in data.items() if key not in ("grid", "curves")}


def figures(found: Sequence[Candidate], turns: Sequence[TurnRecord] = ()) -> Figures:
    """Count candidates; if `turns` are given, fast@p is that of each turn over all episodes."""
    judged = [candidate for candidate in found if candidate.counts]
    speedups = [candidate.speedup for candidate in judged if candidate.speedup is not None]
    grid = _grid(speedups)
    notes: list[str] = []
    kernelgym: list[KernelGymRow] = []
    curves, denominator = _by_turn(turns, grid, notes, kernelgym) if turns else _of_candidates(judged, grid)
    stages = _stages(found)
    work, waiting = summed((stage.name, stage.total) for stage in stages)
    return Figures(
        candidates=len(found),
        judged=len(judged),
        problems=len({candidate.problem for candidate in found}),
        outcomes=Counter(candidate.outcome for candidate in found).most_common(),
        lost=Counter(_cause(candidate) for candidate in found if candidate.outcome in BLAMELESS).most_common(),
        malformed=sum(candidate.malformed for candidate in found),
        correct=sum(candidate.correct for candidate in judged),
        timed=len(speedups),
        without_interval=sum(candidate.speedup is not None and candidate.low is None for candidate in judged),
        interpreted=sum(candidate.interpreted and candidate.speedup is not None for candidate in judged),
        median_speedup=statistics.median(speedups) if speedups else None,
        speedups_by=Counter(candidate.by for candidate in judged if candidate.speedup is not None).most_common(),
        grid=grid,
        curves=curves,
        denominator=denominator,
        kernelgym=kernelgym,
        by_group=group_rows(found),
        stages=stages,
        wall_seconds=wall_seconds(candidate.span for candidate in found),
        work_seconds=work,
        waiting_seconds=waiting,
        findings=_findings(found),
        environments=Counter(candidate.environment for candidate in found if candidate.environment).most_common(),
        timed_environments=len({candidate.environment for candidate in judged if candidate.speedup is not None}),
        notes=notes,
    )


def _grid(speedups: Sequence[float]) -> list[float]:
    """Return thresholds, evenly spread on a logarithmic axis that includes every speedup, with 1 among them."""
    low = math.log10(max(min([*(0.9 * speedup for speedup in speedups), _NARROWEST[0]]), _WIDEST[0]))
    high = math.log10(min(max([*(1.1 * speedup for speedup in speedups), _NARROWEST[1]]), _WIDEST[1]))
    points = {10 ** (low + (high - low) * index / (_POINTS - 1)) for index in range(_POINTS)}
    return sorted(points | {1.0})


def _of_candidates(judged: Sequence[Candidate], grid: Sequence[float]) -> tuple[list[Curve], str]:
    if not judged:
        return [], ""
    curves = [_curve("all candidates", judged, grid)]
    by_problem: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in judged:
        by_problem[candidate.problem].append(candidate)
    if 1 < len(by_problem) < len(judged):
        best = [max(alike, key=lambda one: (one.correct, one.speedup or 0.0)) for alike in by_problem.values()]
        curves.append(_curve("best of each problem", best, grid, is_best=True))
    names = f"{len(judged)} candidates with a verdict"
    return curves, names + (f", or {len(by_problem)} problems" if len(curves) > 1 else "")


def _curve(name: str, of: Sequence[Candidate], grid: Sequence[float], *, is_best: bool = False) -> Curve:
    correct = [candidate.correct for candidate in of]

    def shares(speedups: Sequence[float | None], thresholds: Sequence[float]) -> list[float]:
        return [metrics.fast_at_p(speedups, correct, p) for p in thresholds]

    def sure_shares(thresholds: Sequence[float]) -> list[float]:
        return [metrics.sure_fast_at_p([candidate.low for candidate in of], correct, p) for p in thresholds]

    speedups = [candidate.speedup for candidate in of]
    timed = [candidate for candidate in of if candidate.speedup is not None]
    banded = bool(timed) and all(candidate.low is not None and candidate.high is not None for candidate in timed)
    return Curve(
        name,
        shares(speedups, grid),
        shares(speedups, metrics.THRESHOLDS),
        sure_shares(metrics.THRESHOLDS),
        sure_shares(grid) if banded else [],
        shares([candidate.high for candidate in of], grid) if banded else [],
        is_best,
    )


def _by_turn(
    turns: Sequence[TurnRecord], grid: Sequence[float], notes: list[str], kernelgym: list[KernelGymRow]
) -> tuple[list[Curve], str]:
    """Count as `kerneldyno trajectories` does, over all samples of finished episodes; extend `notes` and `kernelgym`."""
    try:
        found = report(trajectories(turns), [*grid, *metrics.THRESHOLDS])
    except (TypeError, ValueError) as error:  # `extra` belongs to the caller and may hold anything
        notes.append(f"no figures by turn: {error}")
        return [], ""
    if found.unfinished:
        notes.append(f"{found.unfinished} unfinished episodes are not in fast@p")
    if found.failed_generations:
        notes.append(f"{found.failed_generations} episodes ended with a failed generation, which counts as a failure")

    def curve(name: str, fast: dict[float, float], sure: dict[float, float], *, is_best: bool = False) -> Curve:
        plain, surely = ([shares[p] for p in metrics.THRESHOLDS] for shares in (fast, sure))
        return Curve(name, [fast[p] for p in grid], plain, surely, [], [], is_best)

    def at_thresholds(shares: dict[float, float]) -> dict[float, float]:
        return {p: shares[p] for p in metrics.THRESHOLDS}

    kernelgym += [
        KernelGymRow(row.turn, at_thresholds(row.fast_kernelgym), at_thresholds(row.fast_correct))
        for row in found.turns
    ]
    curves = [curve(f"turn {row.turn}", row.fast, row.sure_fast) for row in found.turns]
    if len(found.turns) > 1:
        last = found.turns[-1]
        curves.append(curve(f"best of {last.turn} turns", last.best_fast, last.best_sure_fast, is_best=True))
    return curves, f"{found.episodes} finished episodes of {found.problems} problems"


def _stages(found: Sequence[Candidate]) -> list[StageTimes]:
    """Return times in order of first appearance; a run that answered several requests counts once."""
    times: dict[str, list[float]] = {}
    for candidate in found:
        for name, seconds in () if candidate.shared else candidate.stages:
            times.setdefault(name, []).append(seconds)
    return [
        StageTimes(
            name,
            len(spent),
            math.fsum(spent),
            statistics.median(spent),
            sorted(spent)[math.ceil(0.9 * len(spent)) - 1],
            max(spent),
        )
        for name, spent in times.items()
    ]


def _findings(found: Sequence[Candidate]) -> list[FindingCount]:
    """Return findings, the worst first, then the most frequent."""
    seen: dict[str, list[CandidateFinding]] = defaultdict(list)
    for candidate in found:
        for finding in {one.id: one for one in candidate.findings}.values():
            seen[finding.id].append(finding)
    worst = ("reject", "warning", "info")
    counts = [
        FindingCount(id, min((one.severity for one in alike), key=worst.index), len(alike), alike[0].evidence)
        for id, alike in seen.items()
    ]
    return sorted(counts, key=lambda count: (worst.index(count.severity), -count.candidates, count.id))


def _cause(candidate: Candidate) -> str:
    """Return why there is no verdict, in a few words that many candidates may share."""
    if candidate.outcome == "REFERENCE_ERROR":
        return "the reference failed"
    if candidate.outcome == TOO_LARGE:
        return "the problem is too large for the devices"
    return candidate.cause or "infrastructure failed"

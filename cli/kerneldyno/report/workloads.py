"""The section on problems with several workloads: how each candidate's speedup changes from workload to workload.

If there is no reference to compare with, a table has the candidates' times instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element

from kerneldyno.report import charts
from kerneldyno.report.candidates import Candidate, TimedWorkload
from kerneldyno.report.markup import Child, node
from kerneldyno.report.sections import number, section, swatch, table
from kerneldyno.report.units import seconds
from kerneldyno.report.wording import times

#: Most problems that have a chart.
_PROBLEMS = 20


def workloads(found: Iterable[Candidate]) -> Element | None:
    """Return a table for each problem that has workloads, and a chart of speedups; None if there is no such problem."""
    by_problem: dict[str, list[Candidate]] = {}
    for one in found:
        if one.counts and one.workloads:
            by_problem.setdefault(one.problem, []).append(one)
    if not by_problem:
        return None
    parts: list[Child] = []
    for problem, candidates in list(by_problem.items())[:_PROBLEMS]:
        parts += _problem(problem, candidates)
    if len(by_problem) > _PROBLEMS:
        parts.append(node("p", f"{len(by_problem) - _PROBLEMS} more problems have workloads.", class_="note"))
    interpreted = any(one.interpreted for candidates in by_problem.values() for one in candidates)
    return section("workloads", "Workloads", *parts, meaningless=interpreted)


def _problem(problem: str, candidates: Sequence[Candidate]) -> list[Child]:
    # Right on all workloads first, then by the geometric mean, and without speedups by the sum of the times.
    ranked = sorted(candidates, key=lambda one: (one.correct, one.speedup or 0.0, -_seconds(one)), reverse=True)
    shown = ranked[: charts.CURVE_STYLES]
    names = list(dict.fromkeys(each.name for one in shown for each in one.workloads))
    numbers = {name: place for place, name in enumerate(names, start=1)}
    lines = [
        (
            one.id,
            [
                (numbers[each.name], each.speedup, each.low, each.high, each.name)
                for each in one.workloads
                if each.speedup is not None
            ],
        )
        for one in shown
    ]
    compared = any(line for _, line in lines)
    heads = ("workload", "", "reference" if compared else "", *(one.id for one in shown))
    rows = []
    for name in names:
        at = [next((each for each in one.workloads if each.name == name), None) for one in shown]
        reference = next((each.reference_seconds for each in at if each is not None and each.reference_seconds), None)
        cells = [number("" if each is None else _cell(each)) for each in at]
        rows.append(
            [node("td", str(numbers[name])), node("td", name), number(seconds(reference) if reference else ""), *cells]
        )
    what = "Each line is a candidate: the speedup that counts, with its 95 % interval"
    if not compared:
        what = "The time of a call by candidate; there is no reference to compare with"
    told = f"{what}; {len(shown)} of {len(candidates)}."
    legend = [
        node("span", swatch(index), one.id, "" if one.correct else f" ({one.outcome})", " ")
        for index, one in enumerate(shown)
    ]
    return [
        node("h3", problem or "(no name)"),
        *([charts.over_workloads(lines), node("p", *legend, class_="note")] if compared else []),
        node("details", node("summary", f"{len(names)} workloads"), table(heads, rows)),
        node("p", told, class_="note"),
    ]


def _cell(each: TimedWorkload) -> str:
    """Return the speedup of a workload; its time if there is none."""
    if each.speedup is not None:
        return times(each.speedup)
    return seconds(each.candidate_seconds) if each.candidate_seconds is not None else ""


def _seconds(one: Candidate) -> float:
    """Return the sum of the times of a candidate's workloads, in seconds."""
    return sum(each.candidate_seconds or 0.0 for each in one.workloads)

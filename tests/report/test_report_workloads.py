"""Tests of the section on problems with several workloads: a chart and a table for each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.report.report_candidates import HOSTILE
from tests.report.test_report_inputs import lines, page, result


def workload(name: str, speedup: float, outcome: str = "CORRECT") -> dict[str, Any]:
    made: dict[str, Any] = {"workload": {"name": name}, "outcome": outcome}
    if speedup:
        made |= {"speedup": speedup, "speedup_interval": {"low": 0.9 * speedup, "high": 1.1 * speedup}}
        made |= {"candidate_timing": {"median_seconds": 1e-5}, "reference_timing": {"median_seconds": speedup * 1e-5}}
    return made


def candidate(id: str, *speedups: float, outcome: str = "CORRECT", problem: str = "norm") -> dict[str, Any]:
    rows = [workload(f"M={1 << index}", speedup) for index, speedup in enumerate(speedups)]
    if outcome != "CORRECT":
        rows.append(workload(f"M={1 << len(rows)}", 0.0, outcome))
    speedup = speedups[0] if outcome == "CORRECT" else 0.0
    return result(id, outcome, speedup, labels={"problem": problem}, workloads=rows)


def without_reference(id: str, *times: float) -> dict[str, Any]:
    rows = [
        {"workload": {"name": f"M={1 << at}"}, "outcome": "CORRECT", "candidate_timing": {"median_seconds": time}}
        for at, time in enumerate(times)
    ]
    return result(id, "CORRECT", 0.0, labels={"problem": "norm"}, workloads=rows)


def drawn(text: str) -> list[list[tuple[float, float]]]:
    """Return the points of each curve of the section, in the chart's units."""
    section = text[text.index('id="workloads"') :].split("</section>")[0]
    return [
        [tuple(map(float, point.split(","))) for point in found.split()]  # type: ignore[misc]
        for found in re.findall(r'<polyline[^>]*points="([^"]*)"', section)
    ]


def test_each_candidate_is_a_line_over_the_workloads(tmp_path: Path) -> None:
    rows = [
        candidate("even", 2.0, 2.0, 2.0),
        candidate("first", 4.0, 0.5, 0.25),
        candidate("w", 1.5, outcome="INCORRECT"),
    ]
    text = page(tmp_path, lines(*rows)).page
    first, even, wrong = drawn(text)
    assert [x for x, _ in even] == [x for x, _ in first]
    assert len({y for _, y in even}) == 1
    heights = [y for _, y in first]
    assert heights == sorted(heights), "it falls: a larger y is lower"
    assert heights[0] < even[0][1] < heights[1]
    assert len(wrong) == 1
    assert "w (INCORRECT)" in text
    assert "3 workloads" in text


def test_only_problems_with_workloads_are_there(tmp_path: Path) -> None:
    assert 'id="workloads"' not in page(tmp_path, lines(result("a", speedup=2.0))).page
    assert 'id="workloads"' not in page(tmp_path, lines(candidate("a", outcome="INCORRECT"))).page
    text = page(tmp_path, lines(*(candidate(f"p{i}/a", 1.0, 2.0, problem=f"p{i}") for i in range(23)))).page
    assert len(drawn(text)) == 20
    assert "3 more problems have workloads" in text


def test_many_candidates_and_hostile_names(tmp_path: Path) -> None:
    rows = [candidate(f"c{i}", 1.0 + i, 2.0) for i in range(9)]
    rows[8]["workloads"][0]["workload"]["name"] = HOSTILE
    text = page(tmp_path, lines(*rows)).page
    assert len(drawn(text)) == 6
    assert "6 of 9" in text
    assert "<img src=x" not in text
    assert text.count("<script") == page(tmp_path, lines(candidate("a", 1.0, 2.0))).page.count("<script")


def test_workloads_of_one_name_are_points_of_their_own(tmp_path: Path) -> None:
    one = candidate("a", 1.0, 2.0, 4.0)
    for row in one["workloads"]:
        row["workload"]["name"] = "M=1"
    text = page(tmp_path, lines(one)).page
    (line,) = drawn(text)
    assert len({x for x, _ in line}) == 3
    assert "M=1 (3)" in text


def test_times_without_a_reference_are_a_table(tmp_path: Path) -> None:
    text = page(tmp_path, lines(without_reference("slow", 4e-6, 9e-6), without_reference("quick", 2e-6, 3e-6))).page
    assert drawn(text) == []
    section = text[text.index('id="workloads"') :].split("</section>")[0]
    assert section.index("quick") < section.index("slow")
    for words in ("2 workloads", "M=1", "2 us", "9 us", "there is no reference to compare with"):
        assert words in section
    assert "0x" not in section

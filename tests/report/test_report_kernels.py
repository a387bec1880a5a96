"""Tests of the section on kernels: a table of the slowest ones, a roofline, and errors of memory."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from kerneldyno.rpc.jsonio import result_to_json
from kerneldyno.v1.evaluation_pb2 import CounterProfile, EvalResult, KernelCounters
from tests.evaluator import recorded_inspections as recorded
from tests.report.report_candidates import HOSTILE
from tests.report.test_report_inputs import candidates, lines, page, result


def counted(id: str, profile: CounterProfile, **changes: Any) -> dict[str, Any]:
    made = result_to_json(EvalResult(counters=profile))["counters"]
    return result(id, speedup=2.0, counters=made, **changes)


def bound_by_arithmetic() -> CounterProfile:
    """Return the counters of a kernel at half of a roof of 60 TFLOP/s, made up."""
    kernel = KernelCounters(
        name="fma",
        duration_seconds=1e-3,
        dram_throughput=0.1,
        sm_throughput=0.55,
        roof_share=0.5,
        arithmetic_intensity=75.0,
        flops_per_second=3e13,
        dram_bytes=400_000_000,
    )
    return CounterProfile(kernels=[kernel])


def section(folder: Path, *rows: dict[str, Any]) -> str:
    text = page(folder, lines(*rows)).page
    assert 'id="kernels"' in text
    return text[text.index('id="kernels"') :].split("</section>")[0]


def cells(html: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", html.split("<tbody>")[1], re.DOTALL)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in rows]


def test_the_slowest_kernel_of_each_candidate_has_a_row(tmp_path: Path) -> None:
    html = section(tmp_path, counted("p/a", recorded.counters()), counted("p/b", recorded.counters("softmax", "mm")))
    assert cells(html) == [
        ["p/a", "add", "44.5 us", "85%", "6%", "85% m", "81% of 100%", "none", ""],
        ["p/b", "mm", "28.7 us", "12%", "68%", "68% c", "24% of 25%", "registers, shared memory", ""],
    ]


def test_kernels_are_points_under_the_roofs(tmp_path: Path) -> None:
    html = section(tmp_path, counted("p/a", recorded.counters("add", "softmax")), counted("p/b", bound_by_arithmetic()))
    points = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"[^>]*><title>([^<]*)</title>', html)
    assert [name.split(",")[0] for _, _, name in points] == ["p/a: add", "p/a: softmax", "p/b: fma"]
    across, down = [float(x) for x, _, _ in points], [float(y) for _, y, _ in points]
    assert across == sorted(across)
    assert down == sorted(down, reverse=True)
    memory, compute = re.findall(r'<polyline points="([^"]*)"', html)
    level = {point.split(",")[1] for point in compute.split()}
    assert len(level) == 1, "arithmetic has the same roof everywhere"
    assert memory.split()[-1] == compute.split()[0], "the roofs meet in the ridge"
    assert all(y > float(next(iter(level))) for y in down), "nothing is above the roof"
    assert "the highest is drawn" in html


def test_without_a_kernel_bound_by_arithmetic_there_is_one_roof(tmp_path: Path) -> None:
    html = section(tmp_path, counted("p/a", recorded.counters("add")))
    assert len(re.findall("<polyline", html)) == 1
    assert "which is not known here" in html


def test_errors_of_memory_have_a_row_without_counters(tmp_path: Path) -> None:
    refused = recorded.refused(recorded.sanitizer("memcheck"))
    refused.id = "p/a"
    html = section(tmp_path, result_to_json(refused), result("p/b", speedup=2.0))
    assert cells(html) == [["p/a", "no counters", "", "", "", "", "", "", "M01"]]
    assert "<svg" not in html


def test_without_either_there_is_no_section(tmp_path: Path) -> None:
    unavailable = counted("p/b", CounterProfile(unavailable="ncu is not installed"))
    assert 'id="kernels"' not in page(tmp_path, lines(result("p/a", speedup=2.0), unavailable)).page


def test_many_candidates_of_two_devices(tmp_path: Path) -> None:
    rows = [counted(f"p/{number}", recorded.counters("add", "softmax")) for number in range(130)]
    rows[0]["environment"]["device_model"] = "another GPU"
    html = section(tmp_path, *rows)
    assert len(cells(html)) == 100
    assert "30 more candidates have counters" in html
    assert html.count("<circle") == 120
    assert "120 of 260 kernels." in html
    assert "They are those of a GPU; kernels elsewhere are drawn too." in html


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0, 1e300, 1e-300, 0.0])
def test_numbers_that_make_no_sense(tmp_path: Path, odd: float) -> None:
    row = counted("p/a", recorded.counters("add"))
    for name, value in row["counters"]["kernels"][0].items():
        if isinstance(value, float):
            row["counters"]["kernels"][0][name] = odd
    html = section(tmp_path, row, counted("p/b", recorded.counters("softmax")))
    assert "nan" not in html
    assert html.count("<circle") == 1


def test_hostile_names_are_text(tmp_path: Path) -> None:
    profile = recorded.counters("add", "softmax")
    for kernel in profile.kernels:
        kernel.name = kernel.occupancy_limiter = HOSTILE
    row = counted(f"p/{HOSTILE}", profile)
    html = section(tmp_path, row)
    assert "<img src=x" not in html
    assert "<script" not in html
    (candidate,) = candidates(lines(row))
    assert all(len(kernel.name) <= 100 and len(kernel.limiter) <= 100 for kernel in candidate.kernels)


def test_the_facts_of_a_candidate_have_its_counters(tmp_path: Path) -> None:
    (candidate,) = candidates(lines(counted("p/a", recorded.counters())))
    assert [value.split(":")[0] for name, value in candidate.facts if name == "counters"] == ["add", "softmax", "mm"]

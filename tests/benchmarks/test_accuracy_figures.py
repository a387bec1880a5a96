"""The figures that benchmarks/accuracy.py computes from known times."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import kernels
from benchmarks.accuracy import repeatability, spin_errors, summary_of_twins

pytestmark = pytest.mark.pure


def row(seconds: float, speedup: float = 1.0, width: float = 0.01) -> dict[str, Any]:
    return {"seconds": seconds, "speedup": speedup, "low": speedup - width, "high": speedup + width}


def test_twins_are_counted_by_duration_and_interval() -> None:
    rows = [row(100e-6), row(100e-6, 1.02), row(10e-6, 1.02, 0.05), row(10e-6, 0.9), row(1e-6, 2.0)]
    assert summary_of_twins(rows) == {
        "count": 5,
        "from_50us": 2,
        "within_1_percent": 1,
        "from_5us": 4,
        "within_3_percent": 3,
        "wins": 2,
        "losses": 1,
        "wins_beyond_1_percent": 1,
    }


def test_a_spin_s_fixed_cost_is_taken_off() -> None:
    fixed = 4e-6
    rows = {spin.name: [row(spin.seconds * 1.01 + fixed)] for spin in kernels.spins("cuda")}
    errors = spin_errors(rows, "cuda")
    assert len(errors) == 12
    for error in errors:
        assert error["error"] == pytest.approx(error["set"] * 0.01, abs=1e-12)
        assert abs(error["error"]) < error["allowed"]
    rows["spin-10000us"] = [row(10.3e-3)]
    assert abs(spin_errors(rows, "cuda")[-1]["error"]) > spin_errors(rows, "cuda")[-1]["allowed"]
    del rows["spin-0us"]
    assert spin_errors(rows, "cuda") == []


def test_an_interval_that_misses_the_others_is_not_counted() -> None:
    seen = repeatability([row(1e-3), row(1.1e-3), row(1e-3), row(1e-3, 1.2)])
    assert seen["covered"] == 3
    assert seen["spread"] == pytest.approx(0.1)

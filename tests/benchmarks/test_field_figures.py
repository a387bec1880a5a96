"""What benchmarks/field.py reports for known results, and real problems against themselves on the CPU device."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.field import OWN, row, shortfalls
from kerneldyno.client import EvalResult
from kerneldyno.v1.evaluation_pb2 import Interval, TimingEffort, TimingStats

ROOT = Path(__file__).resolve().parents[2]


def seen(
    speedup: float = 1.0, end_to_end: float = 1.0, *, width: float = 0.005, seconds: float = 1e-3, lease: float = 0.5
) -> dict[str, Any]:
    sides = {
        f"{side}_{kind}": TimingStats(median_seconds=seconds, regime=TimingStats.REGIME_QUEUED_AHEAD)
        for side in ("candidate", "reference")
        for kind in ("timing", "end_to_end")
    }
    result = EvalResult(
        outcome=EvalResult.CORRECT,
        speedup=speedup,
        speedup_interval=Interval(low=speedup - width, high=speedup + width),
        end_to_end_speedup=end_to_end,
        end_to_end_speedup_interval=Interval(low=end_to_end - width, high=end_to_end + width),
        timing_effort=TimingEffort(lease_seconds=lease, rounds=3, candidate_calls=10, reference_calls=12),
        **sides,
    )
    return row("level9/1_Nothing#0", result)


def of(outcome: EvalResult.Outcome.ValueType) -> dict[str, Any]:
    return row("level9/1_Nothing#0", EvalResult(outcome=outcome, message="it says why"))


def short(*rows: dict[str, Any]) -> list[str]:
    return shortfalls(list(rows), 0.01, 0.03)


def test_a_row_has_both_ratios_and_what_they_cost() -> None:
    made = seen(1.002, 0.998, lease=0.4)
    assert made["device"] == {"ratio": 1.002, "low": pytest.approx(0.997), "high": pytest.approx(1.007)}
    assert made["end to end"]["ratio"] == 0.998
    assert (made["regime"], made["lease_seconds"], made["calls"]) == ("REGIME_QUEUED_AHEAD", 0.4, 22)


def test_nothing_is_said_of_ratios_that_are_near_one() -> None:
    assert short(*[seen(1.003, 0.997)] * 50) == []


@pytest.mark.parametrize(("which", "name"), [(0, "device"), (1, "end to end")])
def test_both_ratios_are_held_against_the_bounds(which: int, name: str) -> None:
    right = [seen()] * 60

    def wrong(ratio: float, width: float) -> dict[str, Any]:
        return seen(*[ratio if at == which else 1.0 for at in range(2)], width=width)

    assert short(*right, wrong(1.02, 0.03)) == []
    assert short(*right, wrong(0.98, 0.03), wrong(1.02, 0.03)) == [f"{name}: 60 of 62 ratios within 1 +- 0.01"]
    (far,) = short(*right, wrong(1.04, 0.05))
    assert far.startswith(f"{name}: level9/1_Nothing#0: 0.0400 away from 1")
    (uncovered,) = short(*right, *[wrong(1.009, 0.005)] * 4)
    assert uncovered == f"{name}: 60 of 64 intervals cover 1"


def test_a_device_may_not_be_held_for_long() -> None:
    assert short(seen(lease=1.99)) == []
    (held,) = short(seen(lease=2.1))
    assert "held the device for 2.10 s, 22 calls" in held
    assert short(seen(lease=4.9, seconds=0.2), seen(lease=11.0, seconds=1.0)) == []
    assert len(short(seen(lease=5.1, seconds=0.2), seen(lease=13.0, seconds=1.0))) == 2


def test_a_candidate_that_is_its_reference_is_correct_or_it_was_not_judged() -> None:
    assert short(seen(), of(EvalResult.REFERENCE_ERROR), of(EvalResult.INFRASTRUCTURE_ERROR)) == []
    assert short(seen(), of(EvalResult.PROBLEM_TOO_LARGE)) == []
    assert short(seen(), of(EvalResult.INCORRECT)) == ["level9/1_Nothing#0: INCORRECT: it says why"]
    assert short(of(EvalResult.REFERENCE_ERROR)) == ["nothing was timed"]


@pytest.mark.alone
@pytest.mark.long
def test_problems_of_our_own_against_themselves(tmp_path: Path) -> None:
    """All of them, on the CPU device. It checks ratios, not times: a busy machine lengthens both times alike."""
    output = tmp_path / "field.json"
    command = [sys.executable, "-m", "benchmarks.field", "--devices", "cpu", "--lanes", "1", "--json", str(output)]
    done = subprocess.run(
        [*command, "--typical", "0.15", "--most", "0.4"],
        cwd=ROOT, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    rows = json.loads(output.read_text())["rows"]
    assert {each["problem"] for each in rows} == {f"{path.stem}#0" for path in OWN.glob("*.py")}
    assert [each for each in rows if each["outcome"] != "CORRECT"] == []
    regimes = {each["problem"]: each["regime"] for each in rows}
    assert set(regimes.values()) == {"REGIME_AS_CALLED"}  # work cannot be queued ahead on a CPU
    for name in ("device", "end to end"):
        ratios = [each[name] for each in rows]
        assert statistics.median(abs(found["ratio"] - 1) for found in ratios) <= 0.1, done.stdout
        assert sum(found["low"] <= 1 <= found["high"] for found in ratios) >= 0.8 * len(rows), done.stdout

"""Tests that docs/rewards.md agrees with the code: programs run, the table has the presets, samples are real."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kerneldyno.rewards.feedback import feedback
from kerneldyno.rewards.presets import MAX_FEEDBACK_CHARS, MAX_TIERS, PRESETS
from kerneldyno.rewards.trajectories import TurnRecord
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.reward_service_pb2 import RewardSpec
from tests.evaluator import recorded_inspections as recorded
from tests.rewards.reward_results import ROOFLINE, both_times, result

pytestmark = pytest.mark.pure

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text()


def blocks(language: str) -> list[str]:
    return [
        code
        for found, code in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        if found == language
    ]


def rows(title: str) -> dict[str, list[str]]:
    """Return the table under a heading: the first cell of each row without backticks, and the other cells."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return {cells[0].strip("`"): cells[1:] for cells in lines[2:]}


def test_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks("python")), {})
    assert {path.name for path in tmp_path.iterdir()} == {"run.jsonl", "run.parquet"}


def test_the_table_is_the_presets() -> None:
    table = rows("Presets")
    for index, preset in enumerate(PRESETS.values()):
        for name in RewardSpec.DESCRIPTOR.fields_by_name:
            if name in table and name not in ("coverage_basis", "tiers"):
                assert float(table[name][index]) == getattr(preset, name), name
        basis = RewardSpec.CoverageBasis.Name(preset.coverage_basis)
        assert basis == f"COVERAGE_BASIS_{table['coverage_basis'][index]}"
    fields: set[str] = {field.name for field in RewardSpec.DESCRIPTOR.fields}
    assert fields - {"preset", "tiers", "speedup_basis", "speedup_kind", "workload_basis"} <= set(table)
    assert "`speedup_kind`" in PAGE


def test_the_samples_are_real() -> None:
    correct, limits, memory, compile_error = (sample.strip() for sample in blocks("text")[1:5])
    assert feedback(both_times(roofline=ROOFLINE), limit=2000) == correct
    assert feedback(result("COMPILE_ERROR"), limit=256).startswith(compile_error + "\n")
    counted = EvalResult(outcome=EvalResult.CORRECT, counters=recorded.counters("softmax"))
    assert set(limits.splitlines()) < set(feedback(counted, limit=2000).splitlines())
    assert feedback(recorded.refused(recorded.sanitizer("memcheck")), limit=2000) == memory


def test_the_numbers_are_the_codes() -> None:
    assert f"`feedback_chars` is 0 to {MAX_FEEDBACK_CHARS}" in PAGE
    assert f"tiers are at most {MAX_TIERS}" in PAGE


def test_the_table_of_the_format_has_every_field() -> None:
    named: set[Any] = set(re.findall(r"`(\w+)`", PAGE.split("\n## Trajectories\n")[1]))
    assert set(TurnRecord.__dataclass_fields__) | {"version"} <= named

"""benchmarks/floor.py on the CPU device: the ratio of two halves of one process's times, and a missing file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.alone

ROOT = Path(__file__).resolve().parents[2]


def floor(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.floor", "--device", "cpu", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_floor_prints_a_plausible_ratio_for_each_repetition() -> None:
    done = floor("benchmarks/field_problems/op_softmax.py", "--seconds", "0.5", "--repeat", "2")
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"\| op_softmax \| ([\d.]+) \[([\d.]+), ([\d.]+)\] \| ([\d.]+) \| (\d+) \|", done.stdout)
    assert len(rows) == 2
    for value, low, high, milliseconds, rounds in rows:
        assert float(low) <= float(value) <= float(high)
        assert 0.1 < float(value) < 10  # on a busy machine other processes take turns with it
        assert float(milliseconds) > 0.05
        assert int(rounds) >= 3
    assert re.search(r"^\d of 2 within 1 \+- 0.01; median [\d.]+ off, worst [\d.]+$", done.stdout, re.MULTILINE)


def test_a_file_that_is_not_there_is_said() -> None:
    done = floor("nowhere.py")
    assert done.returncode == 2
    assert "nowhere.py: no such file" in done.stderr
    assert "Traceback" not in done.stderr

"""The baseline's workers and one short run of benchmarks/throughput.py, as real processes on the CPU device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import batches
from benchmarks.persistent import Pool, Task

pytestmark = pytest.mark.alone

ROOT = Path(__file__).resolve().parents[2]


def test_a_persistent_worker_judges_and_is_replaced_when_it_dies() -> None:
    made = {row.name: row for row in batches.mixed(0, tiny=True) if row.problem == "relu"}
    names = ["relu/14-illegal_access", "relu/00-right", "relu/09-wrong", "relu/15-decoy"]
    with Pool(1, ["cpu:0"], calls=2) as pool:
        answers, _ = pool.judge([Task(name, made[name].reference, made[name].source) for name in names], 120)
        assert {name: answers[name]["correct"] for name in names} == {
            "relu/14-illegal_access": False,
            "relu/00-right": True,
            "relu/09-wrong": False,
            "relu/15-decoy": True,  # the baseline's mistake: it accepts decoys
        }
        assert "died" in answers["relu/14-illegal_access"]["message"]
        assert pool.restarts == 1


@pytest.mark.long
def test_throughput_runs_and_every_verdict_is_right(tmp_path: Path) -> None:
    output = tmp_path / "run.json"
    command = [sys.executable, "-m", "benchmarks.throughput", "--devices", "cpu", "--lanes", "1", "--seconds", "0.2"]
    done = subprocess.run(
        [*command, "--per-problem", "1", "--no-baseline", "--json", str(output), "--plot", str(tmp_path / "run.png")],
        cwd=ROOT, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    run = json.loads(output.read_text())["service"][0]
    assert run["candidates"] == sum(run["outcomes"].values()) > 0
    assert (run["wrong"], run["left_over"]) == ([], 0)
    assert run["cpu_seconds"]["runners"] > run["cpu_seconds"]["zygote"] >= 0
    assert (tmp_path / "run.png").stat().st_size > 10_000

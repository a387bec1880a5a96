"""`kerneldyno suite` with services of its own: real processes, real verdicts, and a second run that judges nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HEAD = "import torch\n\n\nclass {name}(torch.nn.Module):\n    def forward(self, x):\n        return {body}\n"
INPUTS = "\n\ndef get_inputs():\n    return [torch.randn(64, 256)]\n\n\ndef get_init_inputs():\n    return []\n"
BODIES = {"1_relu": "x.relu()", "2_softmax": "x.softmax(-1)", "3_mean": "x.mean(1)"}


def suite(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "kerneldyno.cli", "suite", *map(str, arguments), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_a_folder_of_problems_is_judged_once(tmp_path: Path) -> None:
    problems, mine, out = tmp_path / "level1", tmp_path / "mine", tmp_path / "run"
    problems.mkdir()
    mine.mkdir()
    for name, body in BODIES.items():
        (problems / f"{name}.py").write_text(HEAD.format(name="Model", body=body) + INPUTS)
    (mine / "1_relu.py").write_text(HEAD.format(name="ModelNew", body="x.clamp(min=0)"))
    (mine / "level_1_problem_2_sample_0_kernel.py").write_text(HEAD.format(name="ModelNew", body="x.softmax(0)"))
    command = [problems, "--candidates", mine, "--backend", "torch", "--trials", 1, "--perf-trials", 20, "-o", out]
    found = suite(*command, "--local", "--devices", "cpu")
    (row,) = found["groups"]
    assert (row["problems"], row["missing"], row["unjudged"], row["right"]) == (3, 1, 0, 1)
    assert dict(map(tuple, found["outcomes"])) == {"CORRECT": 1, "INCORRECT": 1}
    before = (out / "results.jsonl").read_text()
    assert suite("--saved", out)["groups"] == found["groups"]
    assert suite(*command, "--local", "--devices", "cpu")["groups"] == found["groups"]
    assert (out / "results.jsonl").read_text() == before

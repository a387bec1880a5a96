"""Tests of `kerneldyno vet` as a person or a script uses it: a process, its two output streams, its exit status."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from kerneldyno.rpc import installing
from tests.client.command import Ran, finished, run

PROBLEMS = Path(__file__).parents[2] / "corpus" / "problems"
PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return RETURNED

def get_inputs():
    return [torch.rand(16, 96)]
"""


@pytest.fixture
def constant(tmp_path: Path) -> Path:
    return problem(tmp_path, "torch.full_like(x, 3.0)")


def problem(folder: Path, returned: str) -> Path:
    path = folder / "problem.py"
    path.write_text(PROBLEM.replace("RETURNED", returned))
    return path


async def vet(*arguments: object) -> Ran:
    return await run("vet", "--device", "cpu", *arguments)


async def test_a_problem_that_stress_makes_strong_is_no_failure(tmp_path: Path) -> None:
    ran = await vet(problem(tmp_path, "torch.relu(x)"))
    assert ran.status == 0, ran.err
    assert "problem.py: STRONG ONLY WITH STRESS" in ran.out
    assert "a copy of the input" in ran.out
    (line,) = [line for line in ran.out.splitlines() if "mutants are told apart by every rule" in line]
    told, of, named = int(line.split()[0]), int(line.split()[2]), line.partition("; not by every one: ")[2].split(", ")
    assert len(named) == of - told > 0
    assert "a copy of the input" in named
    assert ran.out.endswith("0 strong; 1 strong only with stress; 0 weak; 0 random; 0 broken\n")


async def test_a_weak_problem_and_a_broken_one_are_failures(constant: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import torch\n\nclass Model(torch.nn.Module):\n    forward = torch.relu\n")
    ran = await vet(constant, broken, "--json")
    assert (ran.status, ran.err) == (1, "")
    weak, failed = ran.json["problems"]
    assert weak["verdict"] == "weak"
    assert "another draw's answer" in weak["weak"]["with_stress"]
    assert failed["verdict"] == "broken"
    assert failed["error"]["message"] == "reference_code defines no get_inputs"
    assert "define class Model" in failed["advice"]


async def test_a_rule_is_passed_on(tmp_path: Path) -> None:
    ran = await vet(
        problem(tmp_path, "torch.softmax(x, -1)"), "--preset", "allclose", "--rtol", 0, "--atol", 2, "--json"
    )
    assert ran.status == 1
    assert "zeros" in ran.json["problems"][0]["weak"]["with_stress"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py"], "cannot read nowhere.py"),
        ([PROBLEMS / "weak_relu.py", "--atol", 1], "need --preset allclose"),
        ([PROBLEMS / "weak_relu.py", "--preset", "strict"], "strict"),
        ([PROBLEMS / "weak_relu.py", "--device", "tpu"], "unknown device"),
        ([], "PROBLEM.py"),
    ],
)
async def test_usage(arguments: list[object], message: str) -> None:
    ran = await vet(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err


async def test_a_name_that_looks_like_an_option_is_a_file(tmp_path: Path) -> None:
    ran = await vet("--", "--json")
    assert ran.status == 2
    assert "cannot read --json" in ran.err


async def test_a_reference_that_ends_the_process_is_named(tmp_path: Path) -> None:
    path = tmp_path / "deadly.py"
    path.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    ran = await vet(path)
    assert ran.status == 3
    assert "ended the process that ran it by signal 9" in ran.err


async def test_without_torch_it_says_what_to_install(constant: Path) -> None:
    hidden = "import sys; sys.modules['torch'] = None; import importlib.util as u; f = u.find_spec\n"
    hidden += "u.find_spec = lambda name, *more: None if name == 'torch' else f(name, *more)\n"
    hidden += f"sys.argv = ['kerneldyno', 'vet', {str(constant)!r}]\n"
    hidden += "from kerneldyno.cli import main\nmain()\n"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", hidden), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    ran = await finished(process)
    assert (ran.status, ran.out) == (3, "")
    assert installing.command("evaluator") in ran.err

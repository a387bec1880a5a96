"""Programs as editors and models write them, which Python runs: with byte order mark, Windows line ends, form feeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kerneldyno.cli import app
from kerneldyno.client import Client, EvalResult, LocalServices, turn
from kerneldyno.rpc.jsonio import request_from_json

MARK = "\ufeff"
REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(32, 128)]


def get_init_inputs():
    return []
"""
#: A candidate that is right only if the mark within its string is still there.
CANDIDATE = f"""\
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        mark = "{MARK}"
        return x.clamp(min=0) if [ord(one) for one in mark] == [0xFEFF] else x
"""
QUICK = {"backend": "torch", "run_performance": False, "num_correct_trials": 1, "stress_inputs": False}


@pytest.fixture
def address(cpu_services: LocalServices) -> str:
    return cpu_services.address


def windows(source: str) -> str:
    return MARK + source.replace("\n", "\r\n")


def form_feeds(source: str) -> str:
    return "\f\n" + source.replace("\n\nclass", "\n\f\nclass")


SOURCES = {
    "a mark before the candidate": (REFERENCE, MARK + CANDIDATE),
    "a mark before the reference": (MARK + REFERENCE, CANDIDATE),
    "Windows": (windows(REFERENCE), windows(CANDIDATE)),
    "form feeds": (form_feeds(REFERENCE), MARK + form_feeds(CANDIDATE)),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_program_that_python_runs_is_judged(address: str, name: str) -> None:
    reference, candidate = SOURCES[name]
    with Client(address) as client:
        asked = request_from_json({"reference_code": reference, "kernel_code": candidate, **QUICK})
        result = client.evaluate_once(asked)
    assert result.outcome == EvalResult.CORRECT, result.message


def test_it_is_the_same_work_with_a_mark_and_without(address: str) -> None:
    with Client(address) as client:
        marked, plain = (
            client.evaluate_once(request_from_json({"reference_code": REFERENCE, "kernel_code": code, **QUICK}))
            for code in (MARK + CANDIDATE, CANDIDATE)
        )
    assert marked.digest == plain.digest


FENCED = f"```python\n{CANDIDATE}```\n"
RESPONSES = {
    "a block that begins with a mark": f"Here it is.\n```python\n{MARK}{CANDIDATE}```\n",
    "a block whose first line defines it": f"```python\n{MARK}class ModelNew:\n    pass\n\n{CANDIDATE}```\n",
    "an answer that begins with a mark": MARK + FENCED,
    "a mark after the reasoning": f"<think>no</think>{MARK}{FENCED}",
    "a mark before the reasoning": f"{MARK}<think>```python\nclass ModelNew: ...\n```</think>\n{FENCED}",
    "a bare program": MARK + CANDIDATE,
    "Windows": windows(FENCED),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_a_models_answer_is_judged(address: str, name: str) -> None:
    asked = turn("relu", 0, 0, reference_code=MARK + REFERENCE, response_text=RESPONSES[name], **QUICK)
    with Client(address) as client:
        (answer,) = client.rewards([asked], "kevin")
    assert answer.result.outcome == EvalResult.CORRECT, answer.result.message
    assert answer.HasField("reward")
    assert not answer.extraction.kernel_code.startswith(MARK)


def test_files_with_marks(address: str, tmp_path: Path) -> None:
    """`evaluate` only reads the files; `suite` also looks for `Model` and `get_inputs` in them."""
    folder, candidates = tmp_path / "problems", tmp_path / "mine"
    for path, code in ((folder, REFERENCE), (candidates, CANDIDATE)):
        path.mkdir()
        (path / "relu.py").write_bytes(windows(code).encode())
    options = ["--backend", "torch", "--trials", "1", "--perf-trials", "3", "--address", address, "--json"]
    ran = CliRunner().invoke(app, ["evaluate", str(folder / "relu.py"), str(candidates / "relu.py"), *options])
    assert json.loads(ran.stdout)["outcome"] == "CORRECT", ran.output
    asked = ["suite", str(folder), "--candidates", str(candidates), "-o", str(tmp_path / "run")]
    ran = CliRunner().invoke(app, [*asked, *options])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["correct"] == 1


def test_a_traceback_shows_the_line_that_raised_also_after_form_feeds(address: str) -> None:
    broken = "\f# one\fstill one\n" + REFERENCE.replace("return torch.relu(x)", "return torch.no_such_function(x)")
    with Client(address) as client:
        asked = request_from_json({"reference_code": broken, "kernel_code": CANDIDATE, **QUICK})
        result = client.evaluate_once(asked)
    assert result.outcome == EvalResult.REFERENCE_ERROR
    assert "return torch.no_such_function(x)" in result.reference_error.traceback

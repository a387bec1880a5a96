"""Checks of the examples that need no service: they are what they claim to be.

The table of expected outcomes agrees with the files. Candidates that should be right equal their references in plain
Python with Triton's interpreter, and wrong ones differ. Candidates that crash, hang or spy are never run here.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kerneldyno.client import read_candidate
from kerneldyno.evaluator.backends import backends
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.rpc.validation import effective, validate
from kerneldyno.v1 import evaluation_pb2 as pb
from tests import sampling

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROBLEMS = EXAMPLES / "problems"
SHAPES = EXAMPLES / "shapes"
EXPECTED: dict[str, dict[str, Any]] = json.loads((PROBLEMS / "expected.json").read_text())
SHAPE_NAMES = sorted(path.name.removesuffix("__triton.py") for path in SHAPES.glob("*__triton.py"))
#: Outcomes of candidates that run to their end and raise nothing, if they are not dangerous.
RUNS_THROUGH = {"CORRECT", "INCORRECT", "REJECTED"}
#: What check.py says of a candidate, by its first expected outcome.
CHECK_SAYS = {"CORRECT": "same", "REJECTED": "same", "INCORRECT": "differs"}


def outcomes(row: dict[str, Any]) -> list[str]:
    """Return the expected outcomes of a candidate, the likeliest first."""
    expected = row["outcome"]
    return expected if isinstance(expected, list) else [expected]


def source(name: str) -> Path:
    """Return the file of a candidate, or the folder of one that has several files."""
    folder = PROBLEMS / name
    return folder if folder.is_dir() else PROBLEMS / f"{name}.py"


def test_there_is_enough_to_show() -> None:
    on_any_device = [name for name, row in EXPECTED.items() if row.get("device") != "cuda"]
    assert len({name.partition("/")[0] for name in EXPECTED}) >= 10
    assert len(on_any_device) >= 48
    assert len(SHAPE_NAMES) >= 24


def test_the_table_lists_every_candidate_and_nothing_else() -> None:
    files = {f"{path.parent.name}/{path.stem}" for path in PROBLEMS.glob("*/*.py") if path.stem != "reference"}
    folders = {f"{path.parent.parent.name}/{path.parent.name}" for path in PROBLEMS.glob("*/*/candidate.py")}
    assert files | folders == set(EXPECTED)
    assert not files & folders
    assert {path.name for path in PROBLEMS.iterdir() if path.is_dir()} == {name.partition("/")[0] for name in EXPECTED}


def test_every_shape_has_a_reference_a_candidate_and_small_sizes() -> None:
    references = sorted(path.stem for path in SHAPES.glob("*.py") if not path.stem.endswith("__triton"))
    assert references == SHAPE_NAMES
    assert sorted(json.loads((SHAPES / "small.json").read_text())) == SHAPE_NAMES


@pytest.mark.parametrize("name", EXPECTED)
def test_each_row_makes_a_valid_request(name: str) -> None:
    row = EXPECTED[name]
    assert set(row) <= {"backend", "outcome", "findings", "timeouts", "device", "dangerous"}
    assert set(outcomes(row)) <= set(pb.EvalResult.Outcome.keys())
    assert row.get("device", "cuda") == "cuda"
    request = request_from_json(
        {
            **read_candidate(source(name)),
            "id": name,
            "reference_code": (PROBLEMS / name.partition("/")[0] / "reference.py").read_text(),
            "backend": row["backend"],
            "timeouts": row.get("timeouts"),
        }
    )
    assert validate(effective(request), backends=set(backends()), toolkits={"kernelbench"}) == []


@pytest.mark.parametrize("path", sorted(PROBLEMS.glob("*/reference.py")), ids=lambda path: path.parent.name)
def test_references_have_the_kernelbench_form(path: Path) -> None:
    names = {
        node.name for node in ast.parse(path.read_text()).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    assert {"Model", "get_inputs", "get_init_inputs"} <= names


@pytest.mark.parametrize("name", [name for name in EXPECTED if name != "relu/syntax_error"])
def test_each_candidate_says_in_one_line_what_it_is(name: str) -> None:
    tree = ast.parse(read_candidate(source(name))["kernel_code"])
    docstring = ast.get_docstring(tree)
    assert docstring is not None
    assert "\n" not in docstring
    defines = any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body)
    assert defines == (outcomes(EXPECTED[name]) != ["INVALID"])


def test_only_the_syntax_error_does_not_parse() -> None:
    with pytest.raises(SyntaxError):
        ast.parse((PROBLEMS / "relu/syntax_error.py").read_text())


@pytest.mark.long
def test_candidates_do_what_their_names_say() -> None:
    harmless = [name for name, row in EXPECTED.items() if not row.get("dangerous") and "device" not in row]
    checked = [*harmless, *(f"shapes/{name}" for name in SHAPE_NAMES)][:: sampling.count(1, 2)]
    found = _check(checked)
    surprises = {}
    for name, saying in found.items():
        expected = "CORRECT" if name.startswith("shapes/") else outcomes(EXPECTED[name])[0]
        if saying.partition(":")[0] != CHECK_SAYS.get(expected, "raised"):
            surprises[name] = f"expected {expected}: {saying}"
    assert surprises == {}
    assert set(found) == set(checked)


def test_whatever_could_harm_this_process_is_marked() -> None:
    for name, row in EXPECTED.items():
        if not set(outcomes(row)) & (RUNS_THROUGH | {"COMPILE_ERROR", "RUNTIME_ERROR", "INVALID"}):
            assert row.get("dangerous"), name
    refused = _check(["row_mean/fork_bomb", "matmul/memory_bomb", "relu/cuda_inline"])
    assert {saying.partition(":")[0] for saying in refused.values()} == {"refused"}


def _check(names: list[str]) -> dict[str, str]:
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / "check.py"), *names],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    said: dict[str, str] = json.loads(result.stdout)
    return said

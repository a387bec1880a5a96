"""Checks of the evaluator's source: how it uses the enums and messages of the contract.

No file writes the name of an enum's value as a string, and only two files turn messages into JSON or back.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerneldyno.evaluator.judge.problems import stress
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure

EVALUATOR = Path(__file__).parents[2] / "evaluator_server/kerneldyno/evaluator"
#: The files that turn messages into JSON and back: the two ends of the socket between server and judge.
EDGES = {"builder/service.py", "judge/frames.py", "server/builders.py", "server/cell.py"}


def names() -> Iterator[str]:
    """Yield the name of every value of every enum of evaluation.proto."""
    enums = list(pb.DESCRIPTOR.enum_types_by_name.values())
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        enums += message.enum_types
    for enum in enums:
        yield from (value.name for value in enum.values)


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Yield the path of each file, relative to the evaluator, and its syntax tree."""
    for path in sorted(EVALUATOR.rglob("*.py")):
        yield path.relative_to(EVALUATOR).as_posix(), ast.parse(path.read_text())


def test_no_value_of_an_enum_is_written_as_a_string() -> None:
    known = set(names())
    assert {"CORRECT", "SEVERITY_REJECT", "STAGE_TIMING"} <= known
    found = [
        f"{path}:{node.lineno}: {node.value}"
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in known
    ]
    assert found == []


def test_messages_become_json_at_the_edge_alone() -> None:
    found = {
        path
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and "json_format" in {node.module, *(alias.name for alias in node.names)}
    }
    assert found == EDGES


def test_one_file_of_the_judge_makes_results() -> None:
    found = {
        path
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pb.EvalResult"
    }
    assert found == {"judge/results/verdict.py", "server/failure_results.py"}


def test_every_kind_of_stress_has_its_own_name_in_the_contract() -> None:
    assert list(stress.CONTRACT) == [kind for kind, _ in stress.KINDS]
    for kind, value in stress.CONTRACT.items():
        assert pb.StressKind.Name(value) == f"STRESS_KIND_{kind.upper()}"
    assert len(stress.CONTRACT) == len(pb.StressKind.values()) - 1

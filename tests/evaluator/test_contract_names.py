"""Checks of the evaluator's source: how it uses the enums and messages of the contract.

No file writes the name of an enum's value as a string. No file turns a message into JSON or back; few pack messages.
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
#: The files that pack messages into frames: the two ends of the sockets between server and judge, and builder.
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


def importers(*names: str) -> set[str]:
    """Return the files that import one of these names, or from modules of such a name."""
    return {
        path
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and {*names} & {(node.module or "").rpartition(".")[2], *(alias.name for alias in node.names)}
    }


def test_messages_are_packed_at_the_edge_alone_and_are_never_json() -> None:
    assert importers("messages") == EDGES
    assert importers("json_format", "request_to_json", "result_to_json", "result_from_json") == set()
    assert importers("jsonio") == {"server/metrics.py", "server/tracing.py"}, "for names of stages"


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

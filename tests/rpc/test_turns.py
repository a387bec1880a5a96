"""Limits of a turn: its candidate is either a raw answer, or code and files."""

from __future__ import annotations

from typing import Any

import pytest

from kerneldyno.rpc.turns import check_turn
from kerneldyno.v1.evaluation_pb2 import CandidateFile, EvalRequest
from kerneldyno.v1.reward_service_pb2 import Turn

pytestmark = pytest.mark.pure

NATIVE = [CandidateFile(path="a.cu", content="x")]
HEADER = [CandidateFile(path="a.cuh", content="x")]


def turn(response: str = "", **fields: Any) -> Turn:
    return Turn(group="g", request=EvalRequest(reference_code="r", **fields), response_text=response)


@pytest.mark.parametrize(
    ("turn_", "field", "words"),
    [
        (turn(), "kernel_code", "missing"),
        (turn(kernel_files=HEADER), "kernel_code", "missing"),
        (turn("answer", kernel_code="k"), "turn", "only one of them"),
        (turn("answer", kernel_files=NATIVE), "turn", "kernel_files and response_text"),
    ],
)
def test_a_turn_without_one_candidate_is_refused(turn_: Turn, field: str, words: str) -> None:
    (found,) = check_turn(turn_)
    assert found.field == field
    assert words in found.description


@pytest.mark.parametrize(
    "turn_",
    [turn("answer"), turn(kernel_code="k"), turn(kernel_code="k", kernel_files=HEADER), turn(kernel_files=NATIVE)],
)
def test_one_candidate_passes(turn_: Turn) -> None:
    assert check_turn(turn_) == []

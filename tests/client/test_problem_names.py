"""Tests of the name that a problem gets when nobody has named it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneldyno.client.problem_names import (
    PROBLEM_LABEL,
    REFERENCE_LABEL,
    group_of,
    mark_reference,
    name_of_file,
    names_by_ids,
)
from kerneldyno.rpc.validation import MAX_LABELS
from kerneldyno.v1.evaluation_pb2 import EvalRequest

pytestmark = pytest.mark.pure

A, B, C = "a" * 16, "b" * 16, "c" * 16


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        ({A: ["softmax/a", "softmax/b"], B: ["relu/a"]}, {A: "softmax", B: "relu"}),
        (
            {A: ["level1/1_Matmul"], B: ["level1/19_ReLU"], C: ["level2/1_Conv"]},
            {A: "level1/1_Matmul", B: "level1/19_ReLU", C: "level2/1_Conv"},
        ),
        (
            {A: ["level1/1_Matmul/0", "level1/1_Matmul/1"], B: ["level1/19_ReLU/0", "level1/19_ReLU/1"]},
            {A: "level1/1_Matmul", B: "level1/19_ReLU"},
        ),
        (
            {A: ["level1/1_Matmul_s0", "level1/1_Matmul_s1"], B: ["level1/19_ReLU_s0", "level1/19_ReLU_s1"]},
            {A: "level1/1_Matmul", B: "level1/19_ReLU"},
        ),
        ({A: ["a-1", "a-2"], B: ["b-1"]}, {A: "a", B: "b-1"}),
        ({A: ["relu1", "relu2"], B: ["softmax1"]}, {A: "relu", B: "softmax1"}),
        ({A: ["x/1", "y/2"], B: ["3fa9", "3fbb"]}, {A: "reference aaaaaaaa", B: "reference bbbbbbbb"}),
        ({A: ["run-1", "run-2"], B: ["run-3", "run-4"]}, {A: "run aaaaaaaa", B: "run bbbbbbbb"}),
        ({A: ["", ""]}, {A: "reference aaaaaaaa"}),
        ({}, {}),
    ],
)
def test_names_by_ids(ids: dict[str, list[str]], names: dict[str, str]) -> None:
    assert names_by_ids(ids) == names


def test_names_by_files() -> None:
    assert name_of_file(Path("KernelBench/level1/19_ReLU.py")) == "19_ReLU"
    assert name_of_file(Path("examples/problems/relu/reference.py")) == "relu"
    assert name_of_file(Path("/proc/self/fd/bell\x07.py")) == ""
    assert name_of_file(Path("x" * 200 + ".py")) == ""


def test_groups() -> None:
    assert group_of("level1/19_ReLU") == "level1"
    assert group_of("level_1_problem_19") == group_of("level_1_problem_3_sample_0") == "level_1"
    assert group_of("relu") == ""


def test_a_reference_is_marked_where_no_label_names_the_problem() -> None:
    first, second, other = (EvalRequest(reference_code=code) for code in ("r = 1", "r = 1", "r = 2"))
    for request in (first, second, other):
        mark_reference(request)
    assert first.labels == second.labels != other.labels
    assert list(first.labels) == [REFERENCE_LABEL]
    named = EvalRequest(reference_code="r = 1", labels={PROBLEM_LABEL: "mine"})
    full = EvalRequest(reference_code="r = 1", labels={str(number): "" for number in range(MAX_LABELS)})
    without = EvalRequest(kernel_code="k = 1")
    for request in (named, full, without):
        mark_reference(request)
        assert REFERENCE_LABEL not in request.labels

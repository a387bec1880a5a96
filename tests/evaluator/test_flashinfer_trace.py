"""Definitions, workloads and solutions in the form of FlashInfer Trace: read from files, and judged."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from kerneldyno.cli.common import UsageError
from kerneldyno.cli.flashinfer_trace import is_definition, request_fields
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.rpc.validation import effective, validate
from tests.evaluator.judge_harness import Judge

DEFINITION: dict[str, Any] = {
    "name": "gathered_rms_norm_h48",
    "op_type": "norm",
    "axes": {
        "rows": {"type": "var"},
        "picked": {"type": "var"},
        "hidden": {"type": "const", "value": 48},
    },
    "inputs": {
        "x": {"shape": ["rows", "hidden"], "dtype": "float32"},
        "weight": {"shape": ["hidden"], "dtype": "float32"},
        "which": {"shape": ["picked"], "dtype": "int32"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "y": {"shape": ["picked", "hidden"], "dtype": "float32"},
        "rms": {"shape": ["picked"], "dtype": "float32"},
    },
    "reference": """import torch

def run(x, weight, which, eps):
    x = x[which.long()]
    rms = torch.sqrt(x.square().mean(-1) + eps)
    return {"y": x / rms[:, None] * weight, "rms": rms}
""",
}
KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def rms_norm(x_ptr, w_ptr, which_ptr, y_ptr, rms_ptr, hidden, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    x = tl.load(x_ptr + tl.load(which_ptr + row) * hidden + at, mask=inside, other=0.0)
    rms = tl.sqrt(tl.sum(x * x, axis=0) / hidden + eps)
    tl.store(y_ptr + row * hidden + at, x / rms * tl.load(w_ptr + at, mask=inside, other=0.0), mask=inside)
    tl.store(rms_ptr + row, rms)

def into(x, weight, which, eps, y, rms):
    rms_norm[(which.shape[0],)](x, weight, which, y, rms, x.shape[1], eps, BLOCK=64)

def run(x, weight, which, eps):
    y = torch.empty(which.shape[0], x.shape[1], device=x.device)
    rms = torch.empty(which.shape[0], device=x.device)
    into(x, weight, which, eps, y, rms)
    return {spoilt}
"""


def solution(entry: str = "run", spoilt: str = "y, rms", **spec: Any) -> dict[str, Any]:
    return {
        "name": "mine",
        "definition": DEFINITION["name"],
        "author": "tests",
        "spec": {"language": "triton", "target_hardware": ["cpu"], "entry_point": f"src/main.py::{entry}", **spec},
        "sources": [{"path": "src/main.py", "content": KERNEL.format(spoilt=spoilt)}],
    }


def line(rows: int, which: dict[str, Any], **changes: Any) -> dict[str, Any]:
    workload = {
        "uuid": f"rows-{rows}",
        "axes": {"rows": rows, "picked": 3},
        "inputs": {
            "x": {"type": "random"},
            "weight": {"type": "random"},
            "which": which,
            "eps": {"type": "scalar", "value": 1e-6},
        },
    }
    return {"definition": DEFINITION["name"], "workload": workload, "solution": None, "evaluation": None, **changes}


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Any]:
    """An input in a safetensors file: three row numbers."""
    data = struct.pack("<3i", 4, 0, 2)
    header = json.dumps({"which": {"dtype": "I32", "shape": [3], "data_offsets": [0, len(data)]}}).encode()
    (tmp_path / "which.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    return {"type": "safetensors", "path": "which.safetensors", "tensor_key": "which"}


def fields(
    folder: Path, solved: dict[str, Any], lines: list[dict[str, Any]] | None, defined: dict[str, Any] = DEFINITION
) -> dict[str, Any]:
    (folder / "definition.json").write_text(json.dumps(defined))
    (folder / "solution.json").write_text(json.dumps(solved))
    workloads = None
    if lines is not None:
        workloads = folder / "workloads.jsonl"
        workloads.write_text("".join(json.dumps(each) + "\n" for each in lines) + "\n")
    return request_fields(folder / "definition.json", folder / "solution.json", workloads)


def judged(judge: Judge, found: dict[str, Any]) -> dict[str, Any]:
    request = request_from_json({"id": "a", "run_performance": False, "num_correct_trials": 2, **found})
    assert validate(request) == []
    return judge.evaluate(json_format.MessageToDict(effective(request), preserving_proto_field_name=True))


@pytest.mark.parametrize(
    "solved",
    [
        solution(),
        solution(spoilt="[y, rms]"),
        solution(spoilt="dict(rms=rms, y=y)"),
        solution("into"),
        solution("into", destination_passing_style=True),
    ],
)
def test_a_solution_is_judged_on_the_workloads_of_a_file(
    judge: Judge, tmp_path: Path, stored: dict[str, Any], solved: dict[str, Any]
) -> None:
    result = judged(judge, fields(tmp_path, solved, [line(7, stored), line(64, stored)]))
    assert result["outcome"] == "CORRECT", result["message"]
    assert [each["workload"]["name"] for each in result["workloads"]] == ["rows=7, picked=3", "rows=64, picked=3"]


@pytest.mark.pure
@pytest.mark.parametrize(
    ("source", "into"),
    [
        ("def run(x, weight, which, eps): ...", False),
        ("def run(x, weight, /, which, *, eps): ...", True),
        ("def run(x, weight, which, eps=1e-6): ...", False),
        ("def run(x, weight, which, eps, block=64): ...", False),
        ("def run(x, weight, which, eps, y, rms): ...", True),
        ("def run(x, weight, which, eps, y=None, rms=None): ...", True),
        ("def run(*inputs): ...", True),
        ("def run(x, weight, which, eps, *more): ...", True),
        ("def run(x): ...\ndef run(x, weight, which, eps): ...", False),
        ("class Kernels:\n    def run(x, weight, which, eps): ...", True),
        ("from kernels import run", True),
        ("def run(x, weight, which, eps:", True),
    ],
)
def test_the_number_of_parameters_says_where_outputs_go(tmp_path: Path, source: str, into: bool) -> None:
    axes = {name: {"type": "const", "value": 48} for name in DEFINITION["axes"]}
    solved = {**solution(), "sources": [{"path": "src/main.py", "content": source}]}
    for stated, expected in ((None, into), (True, True), (False, False)):
        solved["spec"]["destination_passing_style"] = stated
        found = fields(tmp_path, solved, None, {**DEFINITION, "axes": axes})
        assert f"_INTO = {expected}" in found["kernel_code"]


def test_a_wrong_solution(judge: Judge, tmp_path: Path, stored: dict[str, Any]) -> None:
    result = judged(judge, fields(tmp_path, solution(spoilt="y, rms * 1.01"), [line(7, stored)]))
    assert result["outcome"] == "INCORRECT"
    assert result["incorrect"]["output"] == "output[1]"


@pytest.mark.pure
def test_what_a_request_gets(tmp_path: Path, stored: dict[str, Any]) -> None:
    lines = [line(7, stored), line(8, stored, definition="another")]
    found = fields(tmp_path, solution(), lines)
    assert found["workloads"] == [
        {
            "name": "rows=7, picked=3",
            "value": {
                "axes": {"rows": 7, "picked": 3},
                "inputs": {"which": {"values": [4, 0, 2]}, "eps": {"value": 1e-6}},
            },
        }
    ]
    assert found["backend"] == "triton"
    assert list(found["kernel_files"]) == ["src/main.py"]
    assert is_definition(Path("a.json"))
    assert not is_definition(Path("a.py"))
    assert not is_definition(None)


@pytest.mark.pure
def test_a_definition_without_variable_axes_has_one_workload(tmp_path: Path) -> None:
    axes = {name: {"type": "const", "value": 48} for name in DEFINITION["axes"]}
    found = fields(tmp_path, solution(), None, {**DEFINITION, "axes": axes})
    assert found["workloads"] == [{"name": DEFINITION["name"], "value": {"axes": {}, "inputs": {}}}]


@pytest.mark.pure
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"solved": solution(language="cuda")}, "cannot be called"),
        ({"solved": solution(entry_point="kernel.cu::run")}, "cannot be called"),
        ({"solved": {**solution(), "definition": "other"}}, "solves other"),
        ({"solved": {"definition": DEFINITION["name"]}}, "no `spec`"),
        ({"lines": None}, "--workloads"),
        ({"lines": [{"workload": {"uuid": "u", "axes": {"rows": 3}}}]}, "no size for picked"),
        ({"lines": [line(3, {"type": "custom"})]}, "is of type custom"),
        ({"lines": [line(3, {"type": "safetensors", "path": "none", "tensor_key": "a"})]}, "cannot be read"),
        ({"lines": [line(3, {"type": "safetensors", "path": "which.safetensors", "tensor_key": "a"})]}, "no tensor a"),
        ({"defined": {**DEFINITION, "outputs": {"y": {"shape": ["rows"], "dtype": "float3"}}}}, "float3"),
        ({"defined": {**DEFINITION, "outputs": {"y": {"shape": ["rose"], "dtype": "bool"}}}}, "rose"),
        ({"defined": {"name": DEFINITION["name"]}}, "no `outputs`"),
    ],
)
def test_what_cannot_be_read_is_said(
    tmp_path: Path, stored: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    arguments = {"solved": solution(), "lines": [line(3, stored)], **changes}
    with pytest.raises(UsageError, match=words):
        fields(tmp_path, **arguments)


def large(folder: Path, dtype: str, data: bytes, name: str = "large", size: int | None = None) -> dict[str, Any]:
    """Write a safetensors file with one tensor, and return the input that is stored there."""
    said = {"dtype": dtype, "shape": [1], "data_offsets": [0, len(data) if size is None else size]}
    header = json.dumps({"it": said}).encode()
    (folder / f"{name}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    return {"type": "safetensors", "path": f"{name}.safetensors", "tensor_key": "it"}


def picking(rows: int, picked: int, which: dict[str, Any], **inputs: dict[str, Any]) -> dict[str, Any]:
    """Return a workload that picks so many rows."""
    found = line(rows, which)
    found["workload"]["axes"]["picked"] = picked
    found["workload"]["inputs"] |= inputs
    return found


@pytest.mark.long
def test_stored_inputs_beyond_a_workloads_value_are_judged(judge: Judge, tmp_path: Path) -> None:
    """A kernel that reads other rows than the stored ones would be wrong."""
    rows = [(7919 * i) % 500 for i in range(600)]
    which = large(tmp_path, "I64", struct.pack("<600q", *rows))
    weight = large(tmp_path, "F16", struct.pack("<48e", *(i / 16 for i in range(48))), "weight")
    found = fields(tmp_path, solution(), [picking(500, 600, which, weight=weight), picking(501, 600, which)])
    assert found["reference_code"].count('("int64", """') == 1, "both workloads use one text"
    result = judged(judge, found)
    assert result["outcome"] == "CORRECT", result["message"]
    assert len(result["workloads"]) == 2
    namespace: dict[str, Any] = {}
    exec(found["reference_code"], namespace)
    x, scales, chosen, eps = namespace["get_inputs"](found["workloads"][0]["value"])
    assert (chosen.tolist(), eps) == (rows, 1e-6)
    assert scales.tolist() == [i / 16 for i in range(48)]
    assert (x.shape, str(chosen.dtype), str(scales.dtype)) == ((500, 48), "torch.int32", "torch.float32")
    chosen.zero_()
    assert namespace["get_inputs"](found["workloads"][0]["value"])[2].tolist() == rows, "each call makes its own"


@pytest.mark.pure
def test_short_inputs_stay_in_the_value_of_a_workload_with_a_long_one(tmp_path: Path, stored: dict[str, Any]) -> None:
    weight = large(tmp_path, "F32", struct.pack("<900f", *([1 / 3] * 900)))
    value = fields(tmp_path, solution(), [line(3, stored)])["workloads"][0]["value"]
    long = fields(tmp_path, solution(), [picking(3, 3, stored, weight=weight)])["workloads"][0]["value"]
    assert long["inputs"]["which"] == value["inputs"]["which"] == {"values": [4, 0, 2]}
    assert list(long["inputs"]["weight"]) == ["stored"]


@pytest.mark.pure
def test_what_is_too_large_for_a_request_says_what_to_do(tmp_path: Path) -> None:
    which = large(tmp_path, "U8", random.Random(0).randbytes(900_000))
    with pytest.raises(UsageError, match=r"at most 1048576 \(1 MiB\) fit into a request. Split the file"):
        fields(tmp_path, solution(), [line(3, which)])
    which = large(tmp_path, "I32", bytes(4 << 20))
    assert len(fields(tmp_path, solution(), [line(3, which)])["reference_code"]) < 20_000, "zeros are short"


@pytest.mark.pure
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "I32", "size": 65 << 20}, "at most 67108864 .64 MiB. are taken"),
        ({"dtype": "I32", "size": 6000}, "ends before it does"),
        ({"dtype": "I32", "size": -8}, "cannot be read as safetensors"),
        ({"dtype": "U64"}, "has dtype U64; known are I64"),
        ({"dtype": "I32", "size": "all"}, "cannot be read as safetensors"),
    ],
)
def test_a_stored_tensor_that_cannot_be_taken(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    which = large(tmp_path, data=bytes(5000), **changes)
    with pytest.raises(UsageError, match=words):
        fields(tmp_path, solution(), [line(3, which)])

"""Tests of problem sets in every form: KernelBench folders, our examples, JSONL and Parquet rows as verl has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kerneldyno.rollout.problems import Problem, ProblemError, digest, from_row, load
from kerneldyno.v1.evaluation_pb2 import CODE_LISTING_PTX, PROFILE_LEVEL_KERNELS, PROFILE_LEVEL_UNSPECIFIED

ROOT = Path(__file__).parents[2]
REFERENCE = "import torch\n\nclass Model(torch.nn.Module):\n    pass\n\ndef get_inputs():\n    return []\n"


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(REFERENCE + f"# {name}\n")
    return folder


def ids(path: Path, **options: Any) -> list[str]:
    return [problem.id for problem in load(path, **options)]


def test_our_examples() -> None:
    problems = load(ROOT / "examples" / "problems")
    assert {"relu", "softmax", "matmul"} <= {problem.id for problem in problems}
    assert len(problems) == len(list((ROOT / "examples" / "problems").glob("*/reference.py")))
    assert all("class Model" in problem.reference_code for problem in problems)


def test_a_folder_of_references_beside_candidates() -> None:
    found = ids(ROOT / "examples" / "shapes")
    assert "argmax" in found
    assert not any("triton" in name for name in found)


def test_kernelbench_levels_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write(tmp_path, "level1/10_b.py", "level1/9_a.py", "level2/1_c.py", "level10/1_d.py", ".hidden/x.py", "__init__.py")
    assert ids(tmp_path) == ["level1/9_a", "level1/10_b", "level2/1_c", "level10/1_d"]


def test_one_file_and_another_entry_point(tmp_path: Path) -> None:
    write(tmp_path, "one.py")
    (tmp_path / "net.py").write_text(REFERENCE.replace("Model(", "Net("))
    assert ids(tmp_path / "one.py") == ["one"]
    assert ids(tmp_path, entry_point="Net") == ["net"]
    assert load(tmp_path, entry_point="Net")[0].request().entry_point == "Net"


VERL_ROW = {
    "data_source": "kernelbench",
    "prompt": [{"role": "user", "content": "Do it."}],
    "ability": "kernel",
    "reward_model": {"style": "rule", "ground_truth": REFERENCE},
    "extra_info": {"index": 3, "uuid": "u-3", "entry_point": "Model", "level": 1},
}


def test_rows_of_verl_in_parquet_and_jsonl(tmp_path: Path) -> None:
    plain = {"id": "own", "reference_code": REFERENCE, "options": {"backend": "cuda", "num_perf_trials": 10}}
    pq.write_table(pa.Table.from_pylist([VERL_ROW]), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text(f"{json.dumps(VERL_ROW)}\n\n{json.dumps(plain)}\n")
    (parquet,), jsonl = load(tmp_path / "a.parquet"), load(tmp_path / "b.jsonl")
    assert parquet == jsonl[0]
    assert (parquet.id, parquet.prompt) == ("u-3", ({"role": "user", "content": "Do it."},))
    request = jsonl[1].request({"backend": "torch", "num_correct_trials": 2})
    assert (request.backend, request.num_perf_trials, request.num_correct_trials) == ("cuda", 10, 2)
    assert (request.kernel_code, request.id) == ("", "")


def test_options_in_columns_that_every_row_has(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "reference_code": REFERENCE, "options": {"backend": "cuda", "num_perf_trials": None}},
        {"id": "b", "reference_code": REFERENCE, "options": {"backend": None, "num_perf_trials": 5}},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert [dict(problem.options) for problem in load(tmp_path / "a.parquet")] == [
        {"backend": "cuda"},
        {"num_perf_trials": 5},
    ]


def test_a_reference_as_json_text_where_a_column_holds_only_text() -> None:
    row = {
        "id": "x",
        "reward_model": {"ground_truth": json.dumps({"reference_code": REFERENCE, "entry_point": "Model"})},
    }
    assert from_row(row, "here").reference_code == REFERENCE


def test_rows_without_id_are_named_by_their_reference() -> None:
    one, same, other = (from_row({"code": code}, "here") for code in (REFERENCE, REFERENCE, REFERENCE + "#"))
    assert one.id == same.id != other.id


def test_digest_sees_everything() -> None:
    base = Problem("a", REFERENCE)
    variants = [
        base,
        Problem("b", REFERENCE),
        Problem("a", REFERENCE + "#"),
        Problem("a", REFERENCE, "Net"),
        Problem("a", REFERENCE, options={"backend": "cuda"}),
        Problem("a", REFERENCE, prompt=({"role": "user", "content": "x"},)),
    ]
    assert len({digest([variant]) for variant in variants}) == len(variants)
    assert digest([base]) == digest([Problem("a", REFERENCE)])


BROKEN = [
    ("empty", {}, "has no"),
    ("nothing.py", {"nothing.txt": ""}, "No such file"),
    ("set.txt", {"set.txt": ""}, "is none of"),
    ("d", {"d/a.py": "def ("}, "not a Python program"),
    ("d", {"d/a.py": "x = 1"}, "has no"),
    ("a.jsonl", {"a.jsonl": ""}, "has no problems"),
    ("a.jsonl", {"a.jsonl": "{"}, "line 1: not a JSON object"),
    ("a.jsonl", {"a.jsonl": "[1]"}, "line 1: not a JSON object"),
    ("a.jsonl", {"a.jsonl": '{"id": "a"}'}, "row 1: no reference"),
    ("a.jsonl", {"a.jsonl": '{"id": "a", "ground_truth": "42"}'}, "not source code"),
    ("a.jsonl", {"a.jsonl": json.dumps({"id": "a\n", "code": REFERENCE})}, "not an id"),
    ("a.jsonl", {"a.jsonl": json.dumps({"id": "a", "code": REFERENCE, "prompt": ["x"]})}, "prompt must be"),
    ("a.jsonl", {"a.jsonl": "\n".join([json.dumps({"id": "a", "code": REFERENCE})] * 2)}, "two problems"),
    ("a.parquet", {"a.parquet": "not parquet"}, "not a Parquet"),
]


@pytest.mark.parametrize(("path", "files", "complaint"), BROKEN, ids=range(len(BROKEN)))
def test_sets_that_cannot_be_used(tmp_path: Path, path: str, files: dict[str, str], complaint: str) -> None:
    (tmp_path / "empty").mkdir()
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises((ProblemError, OSError), match=complaint):
        load(tmp_path / path)


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xff\xfe")
    with pytest.raises(ProblemError, match="UTF-8"):
        load(tmp_path)


def test_a_problem_that_decides_about_its_profile_overrides_the_options() -> None:
    options = {"profile_level": "kernels", "code_listing": "ptx"}
    request = Problem("a", REFERENCE, options={"enable_profiling": False}).request(options)
    assert (request.profile_level, request.enable_profiling) == (PROFILE_LEVEL_UNSPECIFIED, False)
    assert request.code_listing == CODE_LISTING_PTX
    assert Problem("a", REFERENCE).request(options).profile_level == PROFILE_LEVEL_KERNELS


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"colour": "red"}, "unknown field 'colour'"),
        ({"num_perf_trials": 0}, "num_perf_trials"),
        ({"kernel_code": "x"}, "kernel_code"),
        ({"id": "x"}, "id"),
        ({"backend": "a b"}, "backend"),
        ({"profile_level": "none", "enable_profiling": True}, "profile_level: is PROFILE_LEVEL_NONE"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ProblemError, match=complaint):
        Problem("a", REFERENCE).request(options)

"""Tests of the folders of a suite: which files are problems, their names, and the candidates of each problem."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kerneldyno.cli.suite_folders import Candidates, Entry, find_problems, renamed, request_of
from kerneldyno.rollout.problems import ProblemError
from kerneldyno.rpc.identity import digest
from kerneldyno.rpc.validation import effective, validate

pytestmark = pytest.mark.pure

PROBLEM = "class Model: ...\n\n\ndef get_inputs():\n    return []\n"


def folder(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROBLEM)
    return root


def names(entries: list[Entry]) -> list[str]:
    return [entry.name for entry in entries]


def test_problems_are_called_by_their_paths_and_come_in_order_of_their_numbers(tmp_path: Path) -> None:
    suite = folder(tmp_path, "level1/10_B.py", "level1/2_A.py", "level2/1_C.py")
    assert names(find_problems([suite])) == ["level1/2_A", "level1/10_B", "level2/1_C"]
    assert names(find_problems([suite / "level2", suite / "level1"])) == ["level2/1_C", "level1/2_A", "level1/10_B"]
    assert names(find_problems([suite / "level1"])) == ["2_A", "10_B"]
    assert names(find_problems([suite / "level1/2_A.py", suite / "level1/2_A.py"])) == ["level1/2_A"]


def test_the_longest_name_of_kernelbench_is_one(tmp_path: Path) -> None:
    name = "75_conv_transposed_2D_asymmetric_input_asymmetric_kernel_strided__grouped____padded____dilated__"
    (entry,) = find_problems([folder(tmp_path, f"level1/{name}.py")])
    request = request_of(entry, "k", {})
    assert request.id == request.labels["problem"] == f"level1/{name}"
    assert not list(validate(request, profiling=True))


def test_what_makes_no_suite_says_what_would(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="no such file or folder"):
        find_problems([tmp_path / "nowhere"])
    with pytest.raises(ProblemError, match="give files or folders"):
        find_problems([])
    with pytest.raises(ProblemError, match="no such folder of candidates"):
        Candidates(tmp_path / "nowhere")
    twins = [folder(tmp_path / place / "level1", "1_A.py") for place in ("one", "two")]
    with pytest.raises(ProblemError, match="two problems are called level1/1_A: give the folder that contains both"):
        find_problems(twins)


def test_a_candidate_has_the_problems_name_or_that_of_kernelbenchs_scripts(tmp_path: Path) -> None:
    problems = find_problems([folder(tmp_path / "suite", "level1/19_ReLU.py", "level1/20_X.py", "level2/19_Y.py")])
    given = folder(
        tmp_path / "runs",
        "level1/19_ReLU.py",
        "level_1_problem_20_sample_0_kernel.py",
        "level_1_problem_20_sample_1_kernel.py",
        "level_1_problem_19_sample_0_kernel.py",
    )
    first, second = Candidates(given), Candidates(given, sample=1)
    found = [first.of(problem) for problem in problems]
    assert found == [given / "level1/19_ReLU.py", given / "level_1_problem_20_sample_0_kernel.py", None]
    assert second.of(problems[1]) == given / "level_1_problem_20_sample_1_kernel.py"
    assert [path.name for path in first.unused(problems)] == [
        "level_1_problem_19_sample_0_kernel.py",
        "level_1_problem_20_sample_1_kernel.py",
    ]


def test_a_candidate_may_be_a_folder_or_a_native_source(tmp_path: Path) -> None:
    problems = find_problems([folder(tmp_path / "suite", *(f"level1/{name}.py" for name in "ABCD"))])
    given = folder(tmp_path / "runs", "level1/A/model.py", "level1/A/util.py", "level1/B/k.cu", "level1/C.cu")
    folder(given, "level1/D/sample_0.py", "level1/A.txt")
    candidates = Candidates(given)
    found = [candidates.of(problem) for problem in problems]
    assert found == [given / "level1/A", given / "level1/B", given / "level1/C.cu", None]
    assert candidates.unused(problems) == [given / "level1/D/sample_0.py"]
    request = request_of(problems[0], "k", {}, [{"path": "a.cu", "content": "x"}])
    assert [(file.path, file.content) for file in request.kernel_files] == [("a.cu", "x")]


def test_a_candidate_is_that_of_one_problem_and_lies_in_the_folder(tmp_path: Path) -> None:
    given = folder(tmp_path / "runs", "1_A.py", "level1/1_A.py")
    problems = find_problems([folder(tmp_path / "suite", "level1/1_A.py", "level2/1_A.py")])
    assert [Candidates(given).of(problem) for problem in problems] == [given / "level1/1_A.py", None]
    for name in ("../secret", str(tmp_path / "secret"), "level1/../../secret"):
        (tmp_path / "secret.py").write_text("password")
        rows = tmp_path / "rows.jsonl"
        rows.write_text(json.dumps({"id": name, "reference_code": PROBLEM}) + "\n")
        assert Candidates(given).of(*find_problems([rows])) is None


def test_a_level_given_alone_is_still_a_level(tmp_path: Path) -> None:
    problems = find_problems([folder(tmp_path / "suite/level3", "7_Net.py")])
    given = folder(tmp_path / "runs", "level_3_problem_7_sample_0_kernel.py")
    assert Candidates(given).of(problems[0]) == given / "level_3_problem_7_sample_0_kernel.py"


def test_a_reference_is_its_own_candidate_under_another_name(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(f"{PROBLEM}class Other(Model):\n    MyModel, Models = super(Model), 1\n")
    (entry,) = find_problems([path])
    source = entry.problem.reference_code
    assert renamed(entry.problem) == source.replace("class Model:", "class ModelNew:").replace("(Model)", "(ModelNew)")


def test_other_sources_and_other_settings_are_other_requests(tmp_path: Path) -> None:
    (entry,) = find_problems([folder(tmp_path, "a.py")])
    first = request_of(entry, "k", {"backend": "torch"})
    assert (first.id, first.labels["problem"], first.backend) == ("a", "a", "torch")
    assert first == request_of(entry, "k", {"backend": "torch"})
    others = [request_of(entry, "l", {"backend": "torch"}), request_of(entry, "k", {"backend": "cuda"})]
    (tmp_path / "a.py").write_text(PROBLEM + "# changed\n")
    others.append(request_of(find_problems([tmp_path])[0], "k", {"backend": "torch"}))
    assert len({digest(effective(each)) for each in [first, *others]}) == 4

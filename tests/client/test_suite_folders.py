"""A suite's folders: which files are problems, what they are called, and which candidate is whose."""

from __future__ import annotations

from pathlib import Path

import pytest
from kerneldyno.client.suite import DIGEST_LABEL, Candidates, Problem, SuiteError, find_problems, renamed, request_of
from kerneldyno.v1.evaluation_pb2 import EvalRequest


def folder(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("class Model: ...\n")
    return root


def names(problems: list[Problem]) -> list[str]:
    return [problem.name for problem in problems]


def test_problems_are_called_by_their_paths_and_come_in_order_of_their_numbers(tmp_path: Path) -> None:
    suite = folder(tmp_path, "level1/10_B.py", "level1/2_A.py", "level2/1_C.py", "level1/README.md")
    assert names(find_problems([suite])) == ["level1/2_A", "level1/10_B", "level2/1_C"]
    assert names(find_problems([suite / "level2", suite / "level1"])) == ["level1/2_A", "level1/10_B", "level2/1_C"]
    assert names(find_problems([suite / "level1"])) == ["2_A", "10_B"]
    assert names(find_problems([suite / "level1/2_A.py", suite / "level1/2_A.py"])) == ["2_A"]


def test_private_and_hidden_files_are_no_problems(tmp_path: Path) -> None:
    suite = folder(tmp_path, "a.py", "_helpers.py", "__pycache__/b.py", ".git/c.py")
    assert names(find_problems([suite])) == ["a"]


def test_what_makes_no_suite_says_what_would(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="no such file or folder"):
        find_problems([tmp_path / "nowhere"])
    with pytest.raises(SuiteError, match=r"no problems in .*\.py files in KernelBench's form"):
        find_problems([tmp_path])
    with pytest.raises(SuiteError, match="give files or folders"):
        find_problems([])
    with pytest.raises(SuiteError, match="no such folder of candidates"):
        Candidates(tmp_path / "nowhere")


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


def test_a_level_given_alone_is_still_a_level(tmp_path: Path) -> None:
    problems = find_problems([folder(tmp_path / "suite/level3", "7_Net.py")])
    given = folder(tmp_path / "runs", "level_3_problem_7_sample_0_kernel.py")
    assert Candidates(given).of(problems[0]) == given / "level_3_problem_7_sample_0_kernel.py"


def test_a_reference_is_its_own_candidate_under_another_name() -> None:
    source = "class Model(Module):\n    def __init__(self):\n        super(Model, self).__init__()\n        MyModel\n"
    assert renamed(source) == source.replace("class Model(", "class ModelNew(").replace("(Model,", "(ModelNew,")


def test_other_sources_and_other_settings_are_other_requests(tmp_path: Path) -> None:
    (problem,) = find_problems([folder(tmp_path, "a.py")])
    settings = EvalRequest(backend="torch")
    first = request_of(problem, "k", settings)
    assert (first.id, first.labels["problem"], first.backend) == ("a", "a", "torch")
    assert first == request_of(problem, "k", settings)
    others = [request_of(problem, "l", settings), request_of(problem, "k", EvalRequest(backend="cuda"))]
    problem.path.write_text("class Model: pass\n")
    others.append(request_of(problem, "k", settings))
    assert len({each.labels[DIGEST_LABEL] for each in [first, *others]}) == 4

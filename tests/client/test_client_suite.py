"""Tests of `kerneldyno suite` as a person uses it: a folder in, a table and a folder out, and the next run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.client.command import NOBODY, invoke, run
from tests.client.fake_fleet import FakeFleet

PROBLEM = "class Model: ...\n\n\ndef get_inputs():\n    return []\n"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    for name in ("level1/1_A", "level1/2_B", "level2/1_C"):
        path = tmp_path / "suite" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROBLEM)
    return tmp_path / "suite"


@pytest.fixture
def candidates(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("level_1_problem_1_sample_0_kernel.py", "level_2_problem_1_sample_0_kernel.py", "notes.py"):
        (folder / name).write_text("k")
    return folder


async def test_a_table_a_report_and_everything_in_one_folder(
    scheduler: FakeFleet, suite: Path, candidates: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    ran = await run("suite", suite, "--candidates", candidates, "-o", out, "--address", scheduler.address)
    assert ran.status == 0, ran.err
    assert "fast@1.5" in ran.out
    shown = [line.split() for line in ran.out.splitlines()]
    assert ["sure", "│", "│", "│", "│", "│", "0", "(2),", "0%", "│", "0", "(2),", "0%", "│", "0,", "0%"] in shown
    assert "2 of 2 right, timed candidates have no interval: no sure win" in ran.out
    assert "level2" in ran.out
    assert "1 problem (level1/2_B) without a candidate" in ran.err
    assert "1 file (notes.py) of" in ran.err
    assert {path.name for path in out.iterdir()} == {"results.jsonl", "requests.jsonl", "report.html", "suite.json"}
    assert sorted(scheduler.runs) == ["level1/1_A", "level2/1_C"]
    assert "level1/1_A" in (out / "report.html").read_text()


async def test_running_it_again_judges_what_is_new_or_changed_alone(
    scheduler: FakeFleet, suite: Path, candidates: Path, tmp_path: Path
) -> None:
    command = ["suite", suite, "--candidates", candidates, "-o", tmp_path / "run", "--address", scheduler.address]
    assert (await invoke(*command)).status == 0
    assert (await invoke(*command)).status == 0
    assert len(scheduler.runs) == 2
    (candidates / "level_1_problem_2_sample_0_kernel.py").write_text("new")
    (candidates / "level_2_problem_1_sample_0_kernel.py").write_text("other")
    ran = await invoke(*command, "--json")
    assert sorted(scheduler.runs[2:]) == ["level1/2_B", "level2/1_C"]
    row = ran.json["groups"][-1]
    assert (row["group"], row["problems"], row["missing"], row["right"], row["median_speedup"]) == ("all", 3, 0, 3, 2.0)
    # The fake scheduler gives no intervals: no win is sure, and every win below 2 is possible.
    assert [(wins["p"], wins["plain"], wins["sure"], wins["possible"]) for wins in row["wins"]] == [
        (1, 3, 0, 3),
        (1.5, 3, 0, 3),
        (2, 3, 0, 0),
    ]


async def test_a_candidate_that_is_gone_takes_its_verdict_along(
    scheduler: FakeFleet, suite: Path, candidates: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = ["suite", suite, "--candidates", candidates, "-o", out, "--address", scheduler.address]
    assert (await invoke(*command)).status == 0
    (candidates / "level_2_problem_1_sample_0_kernel.py").unlink()
    ran = await invoke(*command, "--json")
    row = ran.json["groups"][-1]
    assert (row["problems"], row["missing"], row["right"]) == (3, 2, 1)
    assert [json.loads(line)["id"] for line in (out / "results.jsonl").read_text().splitlines()] == ["level1/1_A"]


async def test_a_saved_run_is_shown_without_a_service(
    scheduler: FakeFleet, suite: Path, candidates: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = ["suite", suite, "--candidates", candidates, "-o", out, "--address", scheduler.address]
    assert (await invoke(*command)).status == 0
    for saved in (out, out / "results.jsonl"):
        ran = await invoke("suite", "--saved", saved, "--p", 0.5, "--p", 4, "--json", "--address", NOBODY)
        assert ran.status == 0, ran.err
        assert [wins["p"] for wins in ran.json["groups"][-1]["wins"]] == [0.5, 4]
        assert ran.json["groups"][-1]["problems"] == (3 if saved is out else 2)


async def test_each_problem_against_itself(scheduler: FakeFleet, suite: Path, tmp_path: Path) -> None:
    options = ["--perf-trials", 7, "--speedup-kind", "end-to-end", "--timeout", 9, "--address", scheduler.address]
    ran = await invoke("suite", suite, "--against-itself", "-o", tmp_path / "run", *options)
    assert ran.status == 0, ran.err
    sent = [one for message in scheduler.messages for one in message.requests]
    assert {one.kernel_code for one in sent} == {PROBLEM.replace("Model", "ModelNew")}
    assert {(one.backend, one.num_perf_trials, one.timeouts.load_timeout.seconds) for one in sent} == {("torch", 7, 9)}


async def test_a_problem_that_is_too_large_is_named_and_not_won(
    scheduler: FakeFleet, suite: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = ["suite", suite, "--against-itself", "-o", out, "--address", scheduler.address]
    assert (await invoke(*command, "--candidate-memory", "2GiB")).status == 0
    sent = [request for message in scheduler.messages for request in message.requests]
    assert {request.candidate_device_memory_bytes for request in sent} == {2 << 30}
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    lines[0]["outcome"] = "PROBLEM_TOO_LARGE"
    (out / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ran = await invoke("suite", "--saved", out)
    assert ran.status == 0
    assert f"1 problem ({lines[0]['id']}) too large for every device here (PROBLEM_TOO_LARGE)" in ran.err
    row = (await invoke("suite", "--saved", out, "--json")).json["groups"][-1]
    assert (row["problems"], row["unjudged"], row["right"]) == (3, 0, 2)


async def test_what_infrastructure_lost_is_tried_again(scheduler: FakeFleet, suite: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ["suite", suite, "--against-itself", "-o", out, "--address", scheduler.address]
    assert (await invoke(*command)).status == 0
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    lines[0]["outcome"] = "INFRASTRUCTURE_ERROR"
    (out / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ran = await invoke("suite", "--saved", out)
    assert ran.status == 1
    assert "without a verdict (INFRASTRUCTURE_ERROR): 1; judge the suite again" in ran.err
    assert "1 not right" in ran.out
    scheduler.forget()
    assert (await invoke(*command)).status == 0
    assert scheduler.runs[3:] == [lines[0]["id"]]


async def test_results_of_another_suite_are_neither_mixed_in_nor_lost(
    scheduler: FakeFleet, suite: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = ["--against-itself", "-o", out, "--address", scheduler.address]
    assert (await invoke("suite", suite, *command)).status == 0
    before = (out / "results.jsonl").read_bytes()
    ran = await invoke("suite", suite / "level1", *command)
    assert ran.status == 2
    assert "holds results of 3 problems" in ran.err
    assert "give another --output" in ran.err
    assert (out / "results.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --output RUN"),
        (["SUITE", "-o", "OUT"], "give either --candidates FOLDER or --against-itself"),
        (["SUITE", "-o", "OUT", "--against-itself", "--candidates", "SUITE"], "not both"),
        (["-o", "OUT", "--against-itself"], "give files or folders of problems"),
        (["nowhere", "-o", "OUT", "--against-itself"], "no such file or folder"),
        (["SUITE", "-o", "OUT", "--candidates", "nowhere"], "no such folder of candidates"),
        (
            ["SUITE", "-o", "OUT", "--candidates", "EMPTY"],
            "is the candidate of any problem: name them level1/1_A.py",
        ),
        (["SUITE", "-o", "OUT", "--against-itself", "--trials", "99999999999"], "num_correct_trials"),
        (["EMPTY", "-o", "OUT", "--against-itself"], "has no *.py file that defines class Model and get_inputs()"),
        (["SUITE", "--saved", "OUT"], "--saved shows an existing run"),
        (["--saved", "nowhere"], "No such file or directory"),
        (["--saved", "SUITE/level1/1_A.py"], "holds neither results nor trajectories"),
    ],
)
async def test_what_cannot_be_done_says_what_can(suite: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "empty").mkdir()
    places = {"SUITE": str(suite), "OUT": str(tmp_path / "run"), "EMPTY": str(tmp_path / "empty")}
    for name, place in places.items():
        arguments = [argument.replace(name, place) for argument in arguments]
    ran = await invoke("suite", *arguments, "--address", NOBODY)
    assert ran.status == 2
    assert said in " ".join(ran.err.split())
    assert not (tmp_path / "run").exists()


async def test_a_problem_that_is_no_text_is_named(suite: Path, tmp_path: Path) -> None:
    (suite / "level1/1_A.py").write_bytes(b"\xff\xfe")
    ran = await invoke("suite", suite, "--against-itself", "-o", tmp_path / "run", "--address", NOBODY)
    assert ran.status == 2
    assert "1_A.py is not UTF-8 text" in ran.err


async def test_a_file_with_several_candidates_of_a_problem_is_no_suite(scheduler: FakeFleet, tmp_path: Path) -> None:
    tasks, output = tmp_path / "tasks.jsonl", tmp_path / "results.jsonl"
    for ids, said in ((("relu/a", "relu/b"), "1 problem (relu)"), (("a", "b"), "1 problem (no name)")):
        tasks.write_text("".join(json.dumps({"id": id, "kernel_code": "k"}) + "\n" for id in ids))
        output.unlink(missing_ok=True)
        assert (await invoke("batch", tasks, "-o", output, "--address", scheduler.address)).status == 0
        ran = await invoke("suite", "--saved", output)
        assert ran.status == 2
        assert f"has several candidates of {said}" in ran.err

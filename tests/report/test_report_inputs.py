"""Tests of reports from files: good, odd and hostile files, and files that a report must refuse."""

from __future__ import annotations

import base64
import copy
import gzip
import io
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from kerneldyno.cli import app
from kerneldyno.report.candidates import Candidate
from kerneldyno.report.figures import figures
from kerneldyno.report.joining import join
from kerneldyno.report.reading import ReportInputError, read
from kerneldyno.report.shelf import MAX_TEXT_BYTES, Shelf
from kerneldyno.rewards.trajectories import TrajectoryWriter, TurnRecord
from kerneldyno.rpc.jsonio import result_to_json
from kerneldyno.v1.evaluation_pb2 import EvalResult, Interval, Stage
from tests import sampling
from tests.report.report_candidates import HOSTILE, ODD


def result(id: str = "p/a", outcome: str = "CORRECT", speedup: float = 0.0, **changes: Any) -> dict[str, Any]:
    """Return a result as it is in a file."""
    made = EvalResult(id=id, outcome=EvalResult.Outcome.Value(outcome), compiled=True, correct=outcome == "CORRECT")
    made.speedup = speedup
    made.environment.device, made.environment.device_model = "cuda:0", "a GPU"
    made.stages.add(stage=Stage.STAGE_TIMING).duration.FromMilliseconds(250)
    if speedup:
        made.speedup_interval.CopyFrom(Interval(low=0.9 * speedup, high=1.1 * speedup))
        made.candidate_timing.median_seconds, made.reference_timing.median_seconds = 1e-3, speedup * 1e-3
    return result_to_json(made) | changes


def turn(sample: int, number: int, outcome: str, speedup: float = 0.0, **changes: Any) -> TurnRecord:
    reward = changes.pop("reward", 1.0 if outcome == "CORRECT" else 0.0)
    return TurnRecord(
        group="p", sample=sample, turn_index=number, outcome=outcome, speedup=speedup, reward=reward, **changes
    )


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def candidates(data: bytes) -> list[Candidate]:
    shelf = Shelf(1 << 20)
    found = read(io.BufferedReader(io.BytesIO(data)), shelf).candidates
    join(found, None, shelf)
    return found


class Contents(HTMLParser):
    """The contents of a page: its elements, the attributes that could act, and the text of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page = page
        self.elements: list[str] = []
        self.acting: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.acting += [
            name for name, _ in attrs if name.startswith("on") or name in ("src", "style", "action", "srcset")
        ]
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.scripts and self.lasttag == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = attributes, text + data

    def data(self, prefix: str) -> list[Any]:
        """Return the blocks of data whose ids begin with `prefix`."""
        return [
            json.loads(gzip.decompress(base64.b64decode(text)))
            for attributes, text in self.scripts
            if (attributes.get("id") or "").startswith(prefix)
        ]


def run(folder: Path, data: bytes, *options: object) -> Result:
    (folder / "results.jsonl").write_bytes(data)
    arguments = ["report", str(folder / "results.jsonl"), "-o", str(folder / "report.html"), *map(str, options)]
    return CliRunner().invoke(app, arguments)


def page(folder: Path, data: bytes, *options: object) -> Contents:
    ran = run(folder, data, *options)
    assert ran.exit_code == 0, (ran.output, ran.exception)
    return Contents((folder / "report.html").read_text(encoding="utf-8"))


MANY = lines(*(result(f"p{number % 2}/{number}", speedup=0.5 * (1 + number)) for number in range(6)))


def test_fast_at_p_and_its_denominator() -> None:
    rows = [
        result("p/a", speedup=2.0),
        result("p/b", speedup=1.0),
        result("q/c", speedup=0.5),
        result("q/d", "INCORRECT"),
    ]
    lost = [result("q/e", "INFRASTRUCTURE_ERROR"), result("q/f", "REFERENCE_ERROR"), result("q/g", "PROBLEM_TOO_LARGE")]
    line = result("", "INVALID", labels={"kerneldyno.line": "7"})
    found = figures(candidates(lines(*rows, *lost, line)))
    assert (found.candidates, found.judged, found.correct, found.timed, found.malformed) == (8, 4, 3, 3, 1)
    every, best = found.curves
    assert every.at_thresholds == [0.5, 0.25, 0.25, 0.25, 0.0], "at least 1x, 1.2x, 1.5x, 2x, 3x, of four"
    assert best.at_thresholds == [0.5, 0.5, 0.5, 0.5, 0.0], "of two problems"
    assert every.sure_at_thresholds == [0.25, 0.25, 0.25, 0.0, 0.0], "the lower ends are 1.8, 0.9 and 0.45"
    assert best.sure_at_thresholds == [0.5, 0.5, 0.5, 0.0, 0.0]
    assert found.without_interval == 0
    assert (every.shares[0], best.shares[0]) == (0.75, 1.0), "on the left are all that are right"
    at_one = found.grid.index(1.0)
    assert (every.low[at_one], every.shares[at_one], every.high[at_one]) == (0.25, 0.5, 0.5)
    large = "the problem is too large for the devices"
    assert dict(found.lost) == {"the reference failed": 1, "infrastructure failed": 1, large: 1}
    assert found.median_speedup == 1.0


def both(id: str, device: float, end_to_end: float, kind: str = "", **changes: Any) -> dict[str, Any]:
    """Return a result with both speedups. `kind` is "DEVICE", "END_TO_END", or empty as with older evaluators."""
    ended: dict[str, Any] = {"end_to_end_speedup": end_to_end, "speedup_kind": f"SPEEDUP_KIND_{kind}" if kind else None}
    if end_to_end:
        ended |= {"end_to_end_speedup_interval": {"low": 0.5 * end_to_end, "high": 2 * end_to_end}}
        ended |= {"candidate_end_to_end": {"median_seconds": 5e-3}}
        ended |= {"reference_end_to_end": {"median_seconds": end_to_end * 5e-3}}
    return result(id, speedup=device) | ended | changes


def test_the_speedup_that_counts_ranks_and_the_other_one_is_told() -> None:
    found = candidates(
        lines(
            both("p/a", 2.0, 8.0, "END_TO_END"),
            both("p/b", 4.0, 1.0, "END_TO_END"),
            both("q/c", 1.5, 9.0, "DEVICE"),
            both("q/d", 3.0, 0.0),
            both("q/e", 3.0, 0.0, "END_TO_END"),
        )
    )
    seen = [(one.speedup, one.by, one.other, one.low, one.candidate_seconds, one.reference_seconds) for one in found]
    assert seen == [
        (8.0, "end to end", 2.0, 4.0, 5e-3, 40e-3),
        (1.0, "end to end", 4.0, 0.5, 5e-3, 5e-3),
        (1.5, "by device time", 9.0, pytest.approx(1.35), 1e-3, 1.5e-3),
        (3.0, "by device time", None, pytest.approx(2.7), 1e-3, 3e-3),
        (None, "", 3.0, None, None, None),
    ]
    counted = figures(found)
    assert (counted.timed, counted.median_speedup) == (4, 2.25)
    assert counted.speedups_by == [("end to end", 2), ("by device time", 2)]
    (every, best) = counted.curves
    assert every.at_thresholds == [0.8, 0.6, 0.6, 0.4, 0.4], (
        "what was not measured is not fast, whatever the other time"
    )
    assert best.at_thresholds == [1.0, 1.0, 1.0, 1.0, 1.0], "8x and 3x"
    assert counted.to_json()["speedups_by"] == [("end to end", 2), ("by device time", 2)]


def test_a_page_says_by_which_time_its_speedups_are(tmp_path: Path) -> None:
    mixed = page(tmp_path, lines(both("p/a", 2.0, 8.0, "END_TO_END"), both("p/b", 4.0, 1.0, "DEVICE")))
    (index,) = mixed.data("index")
    assert (index["speedup"], index["other"]) == ([8.0, 4.0], [2.0, 1.0])
    assert index["by"] == ["end to end", "by device time"]
    assert "not by the same time for all candidates: end to end for 1, by device time for 1." in mixed.page
    assert "each by the time that counts for it" in mixed.page
    ended = page(tmp_path, lines(both("p/a", 2.0, 8.0, "END_TO_END")))
    assert "1 right, timed candidates, end to end; below" in ended.page
    assert "not by the same time" not in ended.page
    facts = dict(ended.data("details")[0][0]["facts"])
    assert facts["speedup"].startswith("8.000 end to end (95 % between 4.000 and 16.00)")
    assert facts["other speedup"].startswith("2.000 by device time")


def test_turns_are_by_the_time_that_was_paid(tmp_path: Path) -> None:
    again = both("again", 9.0, 1.5, "END_TO_END")
    with TrajectoryWriter(tmp_path / "results.jsonl") as writer:
        made = {"speedup_kind": "end_to_end", "result": both("t0", 2.0, 3.0, "END_TO_END")}
        writer.write(turn(0, 0, "CORRECT", 3.0, **made))
        writer.write(turn(1, 0, "CORRECT", 3.0, remeasured=again, **made))
        writer.write(turn(2, 0, "CORRECT", 2.5))
    (index,) = page(tmp_path, (tmp_path / "results.jsonl").read_bytes()).data("index")
    assert index["speedup"] == [3.0, 1.5, 2.5]
    assert index["by"] == ["end to end", "end to end", "by device time"]
    assert index["other"] == [2.0, 2.0, None]


def test_stages_are_counted_once() -> None:
    found = figures(candidates(lines(result("p/a"), result("p/b", cached=True), result("p/c", merged=True))))
    assert [(stage.name, stage.count, stage.total) for stage in found.stages] == [("timing", 1, 0.25)]


def spent(id: str, begun: str, ended: str, queued: float, timing: float, **changes: Any) -> dict[str, Any]:
    """Return a result that was accepted at `begun`, final at `ended`, and spent these seconds queued and in timing."""
    stages = [
        {"stage": "STAGE_QUEUED", "duration": f"{queued}s"},
        {"stage": "STAGE_AWAITING_LEASE", "duration": "10s"},
        {"stage": "STAGE_TIMING", "duration": f"{timing}s"},
    ]
    times = {"accept_time": f"2026-05-04T{begun}Z", "finish_time": f"2026-05-04T{ended}Z"}
    return result(id, stages=stages) | times | changes


def test_work_waits_and_the_time_on_a_clock_are_apart(tmp_path: Path) -> None:
    rows = [
        spent("p/a", "10:00:00", "10:02:00.5", 90, 20),
        spent("p/b", "09:59:59.123456789", "10:01:00", 1800, 30),
        spent("p/c", "10:00:01", "10:02:01.123456", 1800, 40, cached=True),
    ]
    found = figures(candidates(lines(*rows)))
    assert (found.work_seconds, found.waiting_seconds) == (50, 1910), "of another's run nothing is counted again"
    assert found.wall_seconds == pytest.approx(122, abs=1e-5)
    told = page(tmp_path, lines(*rows)).page
    assert "2 min from the first request to the last verdict" in told
    assert "50 s of work" in told
    assert "32 min of waiting" in told
    assert "33 min" not in told, "the sum of both is no time of anything"


def test_without_points_of_time_no_time_on_a_clock_is_told(tmp_path: Path) -> None:
    odd = [spent("p/a", "25:00", "10:00:00", 1, 2), spent("p/b", "", "", 1, 2, accept_time=7, finish_time=None)]
    found = figures(candidates(lines(*odd, result("p/c"))))
    assert found.wall_seconds is None
    assert "from the first request" not in page(tmp_path, lines(*odd)).page


def test_turns_have_the_times_of_their_results(tmp_path: Path) -> None:
    with TrajectoryWriter(tmp_path / "results.jsonl") as writer:
        writer.write(turn(0, 0, "CORRECT", 2.0, result=spent("p/a", "10:00:00", "10:00:30", 5, 20)))
        writer.write(turn(1, 0, "INCORRECT", result=spent("p/b", "10:00:10", "10:01:00", 5, 20)))
    ran = run(tmp_path, (tmp_path / "results.jsonl").read_bytes(), "--json")
    assert json.loads(ran.stdout)["wall_seconds"] == 60


def test_findings_are_counted_by_candidate() -> None:
    noticed = [{"id": "S19", "severity": "SEVERITY_REJECT", "evidence": "decoy"}, {"id": "D06", "evidence": "weak"}]
    rows = lines(result("p/a", "REJECTED", findings=noticed * 2), result("p/b", findings=noticed[1:]))
    found = figures(candidates(rows)).findings
    assert [(one.id, one.severity, one.candidates) for one in found] == [("S19", "reject", 1), ("D06", "info", 2)]


def test_turns(tmp_path: Path) -> None:
    with TrajectoryWriter(tmp_path / "results.jsonl") as writer:
        writer.write(turn(0, 0, "", reward=None, response="recorded before its reward"))
        writer.write(turn(0, 0, "INCORRECT", kernel_code="a = '\ud800'\n"))
        writer.write(
            turn(0, 1, "CORRECT", 3.0, kernel_code="a = 2\n", remeasured={"outcome": "CORRECT", "speedup": 1.5})
        )
        writer.write(turn(1, 0, "CORRECT", 2.0, remeasured={"outcome": "INCORRECT", "speedup": 0.0}))
        writer.write(turn(1, 1, "GENERATION_FAILED", reward=None, extra={"ended": "context_full", "error": "too long"}))
        writer.write(turn(2, 0, "", reward=None, response="pending"))
    found = page(tmp_path, (tmp_path / "results.jsonl").read_bytes())
    assert "1 of 1 timed candidates have no interval of their speedup" in found.page
    (index,) = found.data("index")
    assert [index["outcomes"][one][0] for one in index["outcome"]] == [
        "INCORRECT",
        "CORRECT",
        "INCORRECT",
        "GENERATION_FAILED",
    ]
    assert index["speedup"] == [None, 1.5, None, None], (
        "measured twice: the smaller counts, and so does the second verdict"
    )
    assert index["previous"] == [-1, 0, -1, 2]
    assert [one["source"] for one in found.data("details")[0]] == [
        ["a = '\u27e8U+D800\u27e9'\n", 0],
        ["a = 2\n", 0],
        None,
        None,
    ]
    ran = run(tmp_path, (tmp_path / "results.jsonl").read_bytes(), "--json")
    figures_shown = json.loads(ran.stdout)
    assert figures_shown["fast"]["turn 2"]["1.5"] == 0.5
    assert figures_shown["sure_fast"]["turn 2"]["1.5"] == 0.0, "no interval is recorded"
    assert [(row["turn"], row["in_all"]["1.5"], row["of_correct"]["1.5"]) for row in figures_shown["kernelgym"]] == [
        (1, 0.0, 0.0),
        (2, 1.0, 1.0),
    ]
    assert "By KernelGYM's definitions" in found.page
    assert "1 unfinished episodes" in ran.stderr
    assert "1 without a verdict yet" in ran.stderr


def test_a_reference_against_itself_is_no_sure_win(tmp_path: Path) -> None:
    same = result("p/a", speedup=1.003) | {"speedup_interval": {"low": 0.98, "high": 1.03}}
    found = page(tmp_path, lines(same))
    text = " ".join(re.sub(r"<[^>]+>", " ", found.page).split())
    assert re.search(r"fast@1 100.0 % all candidates fast@1/sure 0.0 % all candidates, whole interval", text), text[
        :500
    ]
    assert "all candidates 100.0 0.0 0.0 0.0 0.0 sure 0.0 0.0 0.0 0.0 0.0" in text
    assert "have no interval" not in text


def test_turns_have_sure_wins_by_turn(tmp_path: Path) -> None:
    with TrajectoryWriter(tmp_path / "results.jsonl") as writer:
        writer.write(turn(0, 0, "CORRECT", 1.003, speedup_low=0.98, speedup_high=1.03))
        writer.write(turn(0, 1, "CORRECT", 1.3, speedup_low=1.25, speedup_high=1.35))
    ran = run(tmp_path, (tmp_path / "results.jsonl").read_bytes(), "--json")
    said = json.loads(ran.stdout)
    assert {name: shares["1.0"] for name, shares in said["fast"].items()} == {
        "turn 1": 1.0,
        "turn 2": 1.0,
        "best of 2 turns": 1.0,
    }
    assert {name: (shares["1.0"], shares["1.5"]) for name, shares in said["sure_fast"].items()} == {
        "turn 1": (0.0, 0.0),
        "turn 2": (1.0, 0.0),
        "best of 2 turns": (1.0, 0.0),
    }
    assert said["without_interval"] == 0


def test_requests_give_sources_and_problems(tmp_path: Path) -> None:
    rows = [result("a-1"), result("a-2", "INCORRECT"), result("b-1"), result("x/1"), result("y/2"), result("alone")]
    asked = [
        {"id": "a-1", "reference_code": "A = 1", "kernel_code": "k1"},
        {"id": "a-2", "reference_code": "A = 1", "kernel_code": "k2"},
        {"id": "b-1", "reference_code": "B = 1", "kernel_code": "k3"},
        {"id": "x/1", "reference_code": "C = 1", "kernel_code": "k4"},
        {"id": "y/2", "reference_code": "C = 1", "kernel_code": "k5"},
        {"id": "never", "reference_code": "C = 1", "kernel_code": "k6"},
        {"id": "bad", "no_such_field": 1},
    ]
    (tmp_path / "requests.jsonl").write_bytes(gzip.compress(lines(*asked)))
    found = page(tmp_path, lines(*rows), "--requests", tmp_path / "requests.jsonl")
    (index,) = found.data("index")
    problems = [index["problems"][one] for one in index["problem"]]
    assert problems[0] == problems[1] != problems[2]
    assert problems[3] == problems[4], "one reference is one problem"
    assert problems[:3] == ["a", "a", "b-1"], "what ids have in common names a problem"
    assert re.fullmatch(r"reference [0-9a-f]{8}", problems[3]), "these have nothing in common"
    assert [one["source"] and one["source"][0] for one in found.data("details")[0]] == [
        "k1",
        "k2",
        "k3",
        "k4",
        "k5",
        None,
    ]
    assert [one and one[0] for one in found.data("references")[0]] == ["A = 1", "B = 1", "C = 1", None]
    told = run(tmp_path, lines(*rows), "--requests", tmp_path / "requests.jsonl").stderr
    assert "1 of 6 candidates have no request" in told
    assert "1 requests have no result" in told
    assert "1 lines of the file of requests are no requests" in told


def test_a_candidate_of_several_files_is_shown_whole(tmp_path: Path) -> None:
    files = {"b.cu": "int b;", "a.cuh": "int a;"}
    asked = {
        "id": "a",
        "reference_code": "A",
        "kernel_code": "k",
        "kernel_files": files,
        "build_flags": {"cuda": ["-g"]},
    }
    native = {"id": "b", "reference_code": "A", "kernel_files": {"b.cu": "int b;"}}
    (tmp_path / "requests.jsonl").write_bytes(lines(asked, native))
    built = {"name": "native", "headers": "HEADERS_LEAN", "cached": True, "seconds": 3.2}
    found = page(tmp_path, lines(result("a", builds=[built]), result("b")), "--requests", tmp_path / "requests.jsonl")
    one, other = found.data("details")[0]
    assert one["source"][0] == (
        "==== candidate.py ====\nk\n\n==== a.cuh ====\nint a;\n\n==== b.cu ====\nint b;\n\n"
        "==== build flags ====\ncuda: -g\n"
    )
    assert other["source"][0] == "==== b.cu ====\nint b;\n"
    assert ["build", "native: lean headers, cached, 3.2 s"] in one["facts"]


def test_a_turn_of_several_files_is_shown_whole(tmp_path: Path) -> None:
    with TrajectoryWriter(tmp_path / "results.jsonl") as writer:
        writer.write(turn(0, 0, "CORRECT", kernel_code="k", kernel_files={"a.cu": "int a;", "b.cu": 5}))
    found = page(tmp_path, (tmp_path / "results.jsonl").read_bytes())
    (one,) = found.data("details")[0]
    assert one["source"][0] == "==== candidate.py ====\nk\n\n==== a.cu ====\nint a;\n\n==== b.cu ====\n5\n"


def test_problems_are_named_by_label_or_id(tmp_path: Path) -> None:
    rows = lines(result("p/a"), result("x", labels={"problem": "q"}), result("y", labels={"task": "r"}), result("z"))

    def named(*options: str) -> dict[str, str]:
        (index,) = page(tmp_path, rows, *options).data("index")
        return {name: index["problems"][problem] for name, problem in zip(index["name"], index["problem"], strict=True)}

    assert named() == {"a": "p", "x": "q", "y": "", "z": ""}
    assert named("--problem-label", "task") == {"a": "p", "x": "", "y": "r", "z": ""}


def test_results_of_a_batch_need_no_requests_to_have_problems(tmp_path: Path) -> None:
    marks = [{"kerneldyno.reference": key * 16} for key in "aabc"]
    ids = ("level1/19_ReLU_s0", "level1/19_ReLU_s1", "level1/1_Matmul", "level2/1_Conv")
    rows = [result(id, labels=labels) for id, labels in zip(ids, marks, strict=True)]
    (index,) = page(tmp_path, lines(*rows)).data("index")
    assert index["problems"] == ["level1/19_ReLU", "level1/1_Matmul", "level2/1_Conv"]


def test_figures_by_group(tmp_path: Path) -> None:
    rows = lines(
        result("level1/1_A", speedup=2.0, labels={"problem": "level1/1_A"}),
        result("level1/3_B", "INCORRECT", labels={"problem": "level1/3_B"}),
        result("level1/3_B/again", "INFRASTRUCTURE_ERROR", labels={"problem": "level1/3_B"}),
        result("level2/1_C", speedup=1.1, labels={"problem": "level2/1_C", "tier": "hard"}),
    )
    found = page(tmp_path, rows)
    text = re.sub(r"<[^>]+>", " ", found.page[found.page.index('id="groups"') :].split("</section>")[0])
    assert re.search(r"level1\s+2\s+2\s+50.0\s+50.0 .*level2\s+1\s+1\s+100.0\s+100.0\s+0.0", text, re.DOTALL), text
    assert "fast_p" in text
    said = json.loads(run(tmp_path, rows, "--json").stdout)["by_group"]
    assert [(row["group"], row["problems"], row["candidates"], row["correct"]) for row in said] == [
        ("level1", 2, 2, 0.5),
        ("level2", 1, 1, 1.0),
    ]
    assert (said[0]["fast"]["2.0"], said[0]["sure_fast"]["2.0"], said[0]["sure_fast"]["1.5"]) == (0.5, 0.0, 0.5)
    tiers = json.loads(run(tmp_path, rows, "--json", "--group-label", "tier").stdout)["by_group"]
    assert [row["group"] for row in tiers] == ["", "hard"]
    one = page(tmp_path, lines(result("level1/1_A", speedup=2.0)))
    assert 'id="groups"' not in one.page, "one group is all there is"
    assert "fast_p" in one.page


def test_turns_by_labels_of_results(tmp_path: Path) -> None:
    rows = [result(f"t{number}", labels={"group": "g", "sample": "0", "turn": str(number)}) for number in (2, 0, 1)]
    (index,) = page(tmp_path, lines(*rows)).data("index")
    assert index["name"] == ["sample 1, turn 1", "sample 1, turn 2", "sample 1, turn 3"]
    assert index["previous"] == [-1, 0, 1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b'{"id": "a", "outco', "cut off after 18 bytes"),
        (b"\x00\xff\x01 binary\n", "is not JSON"),
        (b"[1, 2]\n", "neither results nor trajectories: entry 1 is neither a result (id, outcome) nor a turn"),
        (lines({"id": "a", "reference_code": "x", "kernel_code": "y"}), "line 1 is neither a result"),
        (lines(result()) + lines({"version": 1, "group": "g", "sample": 0, "turn_index": 0}), "line 2 is one of turns"),
        (lines({"version": 1, "group": "g", "sample": 0, "turn_index": 0}), "holds no verdict"),
        (b'{\n"evaluations": [', "neither JSON lines nor one JSON document"),
        (b'{"a":' * 50_000 + b"\n", "is not JSON"),
    ],
)
def test_what_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    ran = run(tmp_path, data)
    assert ran.exit_code == 2, ran.output
    assert message in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert not (tmp_path / "report.html").exists()


def test_files_that_are_not_there_or_in_the_way(tmp_path: Path) -> None:
    invoke = CliRunner().invoke
    assert "No such file" in invoke(app, ["report", str(tmp_path / "none"), "-o", str(tmp_path / "page")]).stderr
    (tmp_path / "results.jsonl").write_bytes(MANY)
    same = ["report", str(tmp_path / "results.jsonl"), "-o", str(tmp_path / "results.jsonl")]
    assert "is an input of the report" in invoke(app, same).stderr
    assert (tmp_path / "results.jsonl").read_bytes() == MANY
    assert "No such file" in run(tmp_path, MANY, "--requests", tmp_path / "none").stderr
    assert "Is a directory" in invoke(app, ["report", str(tmp_path / "results.jsonl"), "-o", str(tmp_path)]).stderr


def test_odd_lines_are_left_out_and_told(tmp_path: Path) -> None:
    odd = [
        b"nonsense\n",
        lines(result("p/unknown_words", message=5)),
        lines(result("p/8", stages="many")),
        lines({"outcome": "CORRECT", "stages": [{"stage": 77}]}),
        MANY.splitlines()[0][:100],
    ]
    ran = run(tmp_path, MANY + b"".join(odd))
    assert ran.exit_code == 0, ran.output
    assert "5 lines left out: line 7 is not JSON" in ran.stderr
    assert "; and 2 more" in ran.stderr
    (index,) = page(tmp_path, MANY + b"".join(odd)).data("index")
    assert len(index["name"]) == 6


def test_little_is_needed(tmp_path: Path) -> None:
    rows = [
        {"outcome": "CORRECT"},
        {"id": "a", "outcome": "SOMETHING_NEW"},
        {"id": "b", "outcome": "CORRECT", "speedup": math.nan},
    ]
    found = page(tmp_path, lines(*rows))
    (index,) = found.data("index")
    assert [name for name, _ in index["outcomes"]] == ["CORRECT", "SOMETHING_NEW"]
    assert index["speedup"] == [None, None, None]


def test_numbers_that_are_none(tmp_path: Path) -> None:
    strange = result("p/a", speedup=2.0)
    strange["speedup_interval"] = {"low": math.nan, "high": math.inf}
    strange["candidate_timing"]["median_seconds"] = "NaN"
    strange["correctness"] = {"max_abs_error": "Infinity", "max_error_ratio": math.inf}
    strange["stages"] = [{"stage": "STAGE_TIMING", "duration": "-5s"}]
    backwards, huge = result("p/b", speedup=-1.0), result("p/c", speedup=1.5e308)
    (index,) = page(tmp_path, lines(strange, backwards, huge)).data("index")
    assert index["speedup"] == [2.0, None, 1.5e308]
    assert (index["low"][0], index["high"][0], index["seconds"][0]) == (None, None, None)


def test_the_last_of_one_id_counts(tmp_path: Path) -> None:
    rows = lines(result("p/a", "INCORRECT", logs="x" * 1000), result("p/b"), result("p/a"))
    ran = run(tmp_path, rows, "--json")
    assert dict(json.loads(ran.stdout)["outcomes"]) == {"CORRECT": 2}
    assert "1 result" in ran.stderr


def test_gzip_whole_and_cut(tmp_path: Path) -> None:
    many = lines(*(result(f"p/{number}", message=str(number) * 20) for number in range(2000)))
    packed = gzip.compress(many)
    assert "2000 candidates" in run(tmp_path, packed).stdout
    cut = run(tmp_path, packed[: len(packed) // 2])
    assert cut.exit_code == 0, cut.output
    assert "the compressed file ends early" in cut.stderr
    assert 100 < int(cut.stdout.split()[0]) < 2000


def test_one_document(tmp_path: Path) -> None:
    done = {"id": "a", "client_id": "c", "stage": "STAGE_DONE", "result": result("p/a", speedup=2.0)}
    waits = {"id": "b", "client_id": "c", "stage": "STAGE_QUEUED"}
    data = json.dumps({"evaluations": [done, waits], "more": False}, indent=2).encode()
    ran = run(tmp_path, data)
    assert "1 candidates" in ran.stdout
    assert "1 without a verdict yet" in ran.stderr
    assert "1 candidates" in run(tmp_path, json.dumps(result(), indent=2).encode()).stdout


def test_standard_input_with_the_base_install_alone(tmp_path: Path) -> None:
    extras = ("torch", "numpy", "httpx", "pyarrow", "matplotlib", "starlette", "prometheus_client")
    code = f"import sys; sys.modules.update(dict.fromkeys({extras})); from kerneldyno.cli import main; main()"
    command = [sys.executable, "-c", code, "report", "-", "-o", str(tmp_path / "page.html")]
    subprocess.run(command, input=gzip.compress(MANY), check=True, timeout=60)
    assert "from standard input" in (tmp_path / "page.html").read_text()


def test_hostile_words_are_never_markup(tmp_path: Path) -> None:
    words = HOSTILE + ODD
    hostile = result(f"{words}/{words}", "RUNTIME_ERROR", message=words, logs=words * 1000)
    hostile["environment"] = {"device": "cuda:0", "device_model": words}
    hostile["findings"] = [{"id": words, "severity": "SEVERITY_REJECT", "evidence": words}]
    hostile["runtime_error"] = {
        "kind": words,
        "stage": words,
        "exception": {"type": words, "message": words, "traceback": words},
    }
    ours = page(tmp_path, MANY)
    theirs = page(tmp_path, MANY + lines(hostile), "--title", words)
    assert set(theirs.elements) <= {*ours.elements, "ul", "li", "h3"}
    assert theirs.acting == []
    executed = [text for attributes, text in theirs.scripts if attributes.get("type") != "text/plain"]
    assert executed == [text for attributes, text in ours.scripts if attributes.get("type") != "text/plain"]
    assert len(executed) == 1
    written = (tmp_path / "report.html").read_text()
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\u2028]", written)
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in written


def test_long_texts_are_cut_to_the_budget_and_told(tmp_path: Path) -> None:
    rows = lines(
        *(result(f"p/{number}", logs=chr(97 + number) * (1 << 20)) for number in range(8)), result("p/short", logs="ok")
    )
    found = page(tmp_path, rows, "--budget", "1")
    texts = {
        text[:1]: (text, size) for block in found.data("details") for one in block for _, text, size in one["texts"]
    }
    assert texts["o"] == ("ok", 0)
    assert all(size == 1 << 20 for letter, (_, size) in texts.items() if letter != "o")
    kept = [len(text) for letter, (text, _) in texts.items() if letter != "o"]
    assert sum(kept) <= 1 << 20
    assert min(kept) == max(kept) > 100_000
    assert "8 of 9 sources and other texts are longer than" in run(tmp_path, rows, "--budget", "1").stderr


@given(
    budget=st.integers(10, 3000),
    texts=st.lists(st.builds(lambda text, times: text * times, st.text(max_size=20), st.integers(0, 200)), max_size=30),
)
def test_a_shelf_keeps_its_budget(budget: int, texts: list[str]) -> None:
    shelf = Shelf(budget)
    kept = [shelf.keep(text) for text in texts]
    note = shelf.settle()
    sizes = [len(one.text.encode()) for one in kept]
    assert sum(sizes) <= budget or all(one.size == 0 for one in kept)
    assert bool(note) == any(one.is_cut for one in kept)
    if sum(one.size for one in kept) <= budget and all(one.size <= min(MAX_TEXT_BYTES, budget) for one in kept):
        assert not note, "what fits is not cut"
    whole = [one.size for one in kept if not one.is_cut]
    cut = [len(one.text.encode()) for one in kept if one.is_cut]
    assert not cut or not whole or max(whole) <= max(cut) + 4, "the longest are cut first"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=sampling.examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_file_breaks_it(tmp_path: Path, data: st.DataObject) -> None:
    """Replace any value in real lines by anything: the command makes a page or refuses, and never crashes."""
    sound = [result("p/a", speedup=2.0, labels={"problem": "x"}), result("p/b", "INCORRECT")]
    sound += [json.loads(json.dumps({"version": 1, **turn_data()}))]
    rows = [copy.deepcopy(data.draw(st.sampled_from(sound))) for _ in range(3)]
    for row in rows:
        place: Any = row
        while isinstance(place, dict) and place:
            key = data.draw(st.sampled_from(sorted(place)))
            if not isinstance(place[key], dict) or not place[key] or data.draw(st.booleans()):
                place[key] = data.draw(ANYTHING)
                break
            place = place[key]
    ran = run(tmp_path, lines(*rows))
    assert ran.exit_code in (0, 2), (ran.output, ran.exception)
    if ran.exit_code == 0:
        assert Contents((tmp_path / "report.html").read_text()).data("index")


def turn_data() -> dict[str, Any]:
    again = {"outcome": "CORRECT", "speedup": 1.0}
    record = turn(0, 0, "CORRECT", 2.0, result=result("t", speedup=2.0), remeasured=again, parts={"correctness": 1.0})
    return {name: getattr(record, name) for name in TurnRecord.__dataclass_fields__}


def test_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerneldyno.report.reading.MAX_CANDIDATES", 5)
    for data in (MANY, b"[\n" + b",".join(MANY.splitlines()) + b"]"):
        with pytest.raises(ReportInputError, match="more than 5 candidates"):
            candidates(data)


def test_a_document_that_is_too_long_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"[\n" + b",".join(MANY.splitlines()) + b"]"
    monkeypatch.setattr("kerneldyno.report.reading.MAX_DOCUMENT_BYTES", len(data))
    assert len(candidates(data)) == 6
    with pytest.raises(ReportInputError, match="longer than"):
        candidates(data + b" ")


def test_a_line_that_is_too_long_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("rpc.input_files", "report.reading"):
        monkeypatch.setattr(f"kerneldyno.{module}.MAX_LINE_BYTES", 1 << 20)
    long = lines(result("p/long", logs="x" * (1 << 20)))
    assert "line 1 is longer than 1 MiB" in run(tmp_path, long + MANY).stderr


def test_an_array_on_one_line() -> None:
    assert len(candidates(b"[" + b",".join(MANY.splitlines()) + b"]\n")) == 6


def test_notes_that_quote_the_file_steer_no_terminal(tmp_path: Path) -> None:
    told = run(tmp_path, MANY + lines(result("p/a", findings="\x1b[2J"))).stderr
    assert "\x1b" not in told
    assert "\N{SYMBOL FOR ESCAPE}[2J" in told

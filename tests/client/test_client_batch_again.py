"""Tests of `kerneldyno batch` and `suite` with an existing output: two runs at once, changed requests, and counts."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from tests.client.command import NOBODY, finished, invoke, run, started
from tests.client.fake_fleet import FakeFleet
from tests.waiting import eventually


def tasks(path: Path, **codes: str) -> Path:
    """Write a file of requests; `codes` has the source of each candidate by id. Return its path."""
    path.write_text("".join(json.dumps({"id": id, "kernel_code": code}) + "\n" for id, code in codes.items()))
    return path


def results(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ids(path: Path) -> list[str]:
    return sorted(line["id"] for line in results(path))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestTwoAtOnce:
    async def test_the_second_is_refused_and_nothing_is_lost(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        """Before there was a lock, the second run replaced the file of the first, to judge one of its lines again."""
        output = tmp_path / "r.jsonl"
        lost = {"id": "lost", "outcome": "INFRASTRUCTURE_ERROR"}
        output.write_text(json.dumps(lost) + "\n")
        source = tasks(tmp_path / "t.jsonl", a="k", b="hang")
        command = ["batch", source, "-o", output, "--address", scheduler.address]
        async with started(*command) as first:
            await eventually(lambda: "a" in output.read_text())
            second = await run(*command)
            linked = tmp_path / "link.jsonl"
            linked.symlink_to(output)
            other_way = await run("batch", source, "-o", linked, "--address", scheduler.address)
            for client_id, id in scheduler.work:
                scheduler.cancel(client_id, id)
            ran = await finished(first)
        for refused in (second, other_way):
            assert refused.status == 2
            said = f"{output} is being written by another run (process {first.pid} on "
            assert said in refused.err
            assert f"batch {source} -o {output}" in refused.err
            assert "since 20" in refused.err
        assert ran.status == 1
        assert ids(output) == ["a", "b"]
        assert names(tmp_path) == ["link.jsonl", "r.jsonl", "t.jsonl"]

    async def test_a_killed_run_leaves_no_lock(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        output = tmp_path / "r.jsonl"
        source = tasks(tmp_path / "t.jsonl", a="k", b="hang")
        command = ["batch", source, "-o", output, "--address", scheduler.address]
        async with started(*command) as first:
            await eventually(lambda: output.exists() and "a" in output.read_text())
            first.kill()
            await first.wait()
        tasks(source, a="k", b="k")
        ran = await invoke(*command)
        assert ran.status == 0, ran.err
        assert ids(output) == ["a", "b"]
        assert names(tmp_path) == ["r.jsonl", "t.jsonl"]

    async def test_of_a_suite(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        (tmp_path / "p.py").write_text("class Model: ...\n\n\ndef get_inputs():\n    return []\n")
        mine = tmp_path / "mine"
        mine.mkdir()
        (mine / "p.py").write_text("hang")
        out = tmp_path / "run"
        command = ["suite", tmp_path / "p.py", "--candidates", mine, "-o", out, "--address", scheduler.address]
        async with started(*command) as first:
            await eventually(lambda: scheduler.runs)
            for second in (
                await run(*command),
                await run("batch", tasks(tmp_path / "t.jsonl", a="k"), "-o", out / "results.jsonl"),
            ):
                assert second.status == 2
                assert f"is being written by another run (process {first.pid} on " in second.err
            first.send_signal(signal.SIGINT)
            assert (await finished(first)).status == 130


class TestChangedRequests:
    async def test_code_that_changed_is_judged_again(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        output = tmp_path / "r.jsonl"
        source = tasks(tmp_path / "t.jsonl", same="k", other="k")
        command = ["batch", source, "-o", output, "--json", "--address", scheduler.address]
        assert (await invoke(*command)).status == 0
        before = {line["id"]: line["digest"] for line in results(output)}
        tasks(source, same="k", other="changed")
        ran = await invoke(*command)
        assert ran.json == {"requests": 2, "skipped": 1, "judged_again": 1, "outcomes": {"CORRECT": 2}}
        assert "judged again, because a source or a setting has changed since the verdict: 1" in ran.err
        assert scheduler.runs[2:] == ["other"]
        after = {line["id"]: line["digest"] for line in results(output)}
        assert ids(output) == ["other", "same"]  # one line each
        assert after["same"] == before["same"]
        assert after["other"] != before["other"]

    async def test_settings_count_and_labels_do_not(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        output, source = tmp_path / "r.jsonl", tmp_path / "t.jsonl"
        command = ["batch", source, "-o", output, "--json", "--address", scheduler.address]
        request: dict[str, object] = {"id": "a", "kernel_code": "k", "speedup_kind": "device"}
        for change, again in (
            ({}, False),
            ({"labels": {"step": "2"}, "priority": "high", "num_perf_trials": 100}, False),  # 100 is the default
            ({"num_perf_trials": 7}, True),
            ({"num_perf_trials": 7, "speedup_kind": "end-to-end"}, True),
        ):
            source.write_text(json.dumps(request | change) + "\n")
            ran = await invoke(*command)
            assert ran.status == 0
            assert ran.json["judged_again"] == int(again), change
            assert ids(output) == ["a"]

    async def test_no_verdict_goes_before_its_successor_is_there(self, tmp_path: Path) -> None:
        output = tmp_path / "r.jsonl"
        text = "".join(
            json.dumps({"id": id, "outcome": outcome, "digest": "00"}) + "\n"
            for id, outcome in (("a", "CORRECT"), ("b", "INFRASTRUCTURE_ERROR"))
        )
        output.write_text(text)
        source = tasks(tmp_path / "t.jsonl", a="changed", b="k")
        assert (await invoke("batch", source, "-o", output, "--address", NOBODY)).status == 3
        assert output.read_text() == text

    async def test_results_without_a_digest_are_kept_and_said(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        output = tmp_path / "r.jsonl"
        output.write_text(json.dumps({"id": "old", "outcome": "INCORRECT"}) + "\n")
        source = tasks(tmp_path / "t.jsonl", old="k", new="k")
        ran = await invoke("batch", source, "-o", output, "--json", "--address", scheduler.address)
        assert ran.status == 0
        assert ran.json["outcomes"] == {"INCORRECT": 1, "CORRECT": 1}
        assert "because the result has no digest: 1; give another --output" in ran.err
        assert scheduler.runs == ["new"]

    async def test_of_two_lines_with_one_id_the_last_counts(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        """Two runs at once left such a file before there was a lock."""
        output = tmp_path / "r.jsonl"
        lines = [{"id": "a", "outcome": outcome, "digest": ""} for outcome in ("TIMEOUT", "CORRECT")]
        output.write_text("".join(json.dumps(line) + "\n" for line in lines))
        source = tasks(tmp_path / "t.jsonl", a="k")
        ran = await invoke("batch", source, "-o", output, "--json", "--address", scheduler.address)
        assert ran.json["outcomes"] == {"CORRECT": 1}
        assert results(output) == lines[1:]


async def test_results_of_requests_that_are_not_given_stay_and_are_said(scheduler: FakeFleet, tmp_path: Path) -> None:
    output = tmp_path / "r.jsonl"
    source = tasks(tmp_path / "t.jsonl", a="k", b="k")
    command = ["batch", source, "-o", output, "--json", "--address", scheduler.address]
    assert (await invoke(*command)).status == 0
    tasks(source, b="changed")
    ran = await invoke(*command)
    assert ran.json == {"requests": 1, "skipped": 0, "judged_again": 1, "outcomes": {"CORRECT": 1}}
    assert "in the output, but not among the requests: 1;" in ran.err
    assert ids(output) == ["a", "b"]


async def test_the_summary_counts_all_and_says_what_was_before(scheduler: FakeFleet, tmp_path: Path) -> None:
    output = tmp_path / "r.jsonl"
    source = tasks(tmp_path / "t.jsonl", a="k", b="k")
    command = ["batch", source, "-o", output, "--address", scheduler.address]
    assert (await invoke(*command)).status == 0
    tasks(source, a="k", b="k", c="k")
    ran = await invoke(*command)
    assert ran.status == 0
    assert "3 requests, 2 of them judged before" in " ".join(ran.out.split())
    row = next(line for line in ran.out.splitlines() if "CORRECT" in line)
    assert [word for word in row.split() if word.isdigit()] == ["3"]
    assert "100.0%" in row

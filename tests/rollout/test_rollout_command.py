"""Tests of `kerneldyno rollout` and `trajectories` as processes: killed, interrupted, resumed, and what they print."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kerneldyno.rewards.trajectories import TurnRecord, read
from kerneldyno.rpc import installing
from tests.client.command import invoke
from tests.rollout.fake_model import FakeModel, Prompt, Reply, block
from tests.rollout.rollout_harness import World, command, ended, start, world, write_problems

pytestmark = pytest.mark.slow

SECRET = "sk-do-not-tell-anybody-42"


def by_prompt(prompt: Prompt) -> str:
    """Return an answer that depends only on the prompt and its seed, so that two runs can be compared."""
    text = json.dumps([prompt.messages, prompt.body.get("seed")])
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:2], "big")
    outcome = ("CORRECT", "CORRECT", "INCORRECT", "COMPILE_ERROR")[number % 4]
    return block(f"outcome={outcome} speedup={1 + number % 7 / 4}", f"number = {number}")


def options(w: World, model: FakeModel, tmp_path: Path, count: int = 3) -> list[object]:
    return [
        *("rollout", write_problems(tmp_path, count), "--output", w.path, "--address", w.address),
        *("--model", "fake", "--base-url", model.url, "--reward", "kevin", "--concurrency", "4"),
        *("--turns", "3", "--samples", "4", "--seed", "1"),
    ]


def essence(turns: list[TurnRecord]) -> dict[tuple[str, int, int], tuple[Any, ...]]:
    """Return what must be the same in two runs of the same configuration."""
    return {
        (t.group, t.sample, t.turn_index): (t.messages, t.response, t.kernel_code, t.outcome, t.reward, t.feedback)
        for t in turns
        if t.reward is not None
    }


def files_with(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


async def test_from_beginning_to_report(tmp_path: Path) -> None:
    async with world(tmp_path) as w, FakeModel(by_prompt) as model:
        done = await command(*options(w, model, tmp_path), "--api-key-env", "MY_KEY", MY_KEY=SECRET)
    assert (done.status, model.authorizations[0]) == (0, f"Bearer {SECRET}"), done.err
    assert "12 episodes of 3 problems" in done.out
    figures = json.loads((tmp_path / "run.report.json").read_text())
    assert (figures["episodes"], len(figures["turns"]), figures["unfinished"]) == (12, 3, 0)
    assert set(figures["selected"][0]["pass_at"]) == {"1", "2", "4"}
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert len(model.prompts) == 36
    assert not files_with(tmp_path, SECRET)
    assert SECRET not in done.out + done.err


@pytest.mark.long
async def test_killed_again_and_again_it_comes_to_the_same(tmp_path: Path) -> None:
    """Responses, rewards and prompts equal those of an undisturbed run; no turn is asked for twice without need."""

    async def slowly(prompt: Prompt) -> str:
        await asyncio.sleep(0.02)
        return by_prompt(prompt)

    async with world(tmp_path, node={"mean_seconds": 0.05}) as w, FakeModel(slowly) as model:
        kills = 0
        while True:
            process = await start(*options(w, model, tmp_path))
            seen = len(model.prompts)
            while len(model.prompts) < seen + 7 and process.returncode is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            if process.returncode is None and kills < 4:
                process.send_signal(signal.SIGKILL)
                await process.communicate()
                kills += 1
            else:
                break
        done = await ended(process)
        assert (done.status, kills) == (0, 4), done.err
        # A kill loses only the generations that were under way: at most one for each of four episodes.
        assert 36 <= len(model.prompts) <= 36 + 4 * kills
        broken = essence(read(w.path).turns)
        w.path = tmp_path / "whole.jsonl"
        assert (await command(*options(w, model, tmp_path))).status == 0
        assert broken == essence(read(w.path).turns)
    assert len(broken) == 36


async def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    async with world(tmp_path, node={"mean_seconds": 0.1}) as w, FakeModel(by_prompt) as model:
        process = await start(*options(w, model, tmp_path))
        while len(model.prompts) < 10:  # noqa: ASYNC110 - the model has no event for it
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        stopped = await ended(process)
        assert stopped.status == 130
        assert "interrupted; what is done is in" in stopped.err
        assert "Traceback" not in stopped.err
        kept = essence(read(w.path).turns)
        done = await command(*options(w, model, tmp_path))
        assert done.status == 0, done.err
        finished = essence(read(w.path).turns)
    assert kept.items() <= finished.items()
    assert len(finished) == 36


async def test_a_second_run_on_one_file_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def waits(prompt: Prompt) -> str:
        asked.set()
        await answer.wait()
        return by_prompt(prompt)

    async with world(tmp_path) as w, FakeModel(waits) as model:
        first = await start(*options(w, model, tmp_path))
        await asyncio.wait_for(asked.wait(), 60)
        second = await command(*options(w, model, tmp_path))
        answer.set()
        done = await ended(first)
    assert second.status == 2
    assert f"{w.path} is being written by another run (process {first.pid} on " in second.err
    assert "wait for it, or give another --output" in second.err
    assert done.status == 0
    assert not files_with(tmp_path, f'"pid": {first.pid}')  # the lock is gone


async def test_a_finished_run_asks_for_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as w, FakeModel(by_prompt) as model:
        first = await command(*options(w, model, tmp_path), "--json")
        again = await invoke(*options(w, model, tmp_path), "--json")
    assert len(model.prompts) == 36
    assert json.loads(first.out) == json.loads(again.out)


async def test_what_stops_a_run(tmp_path: Path) -> None:
    async with world(tmp_path) as w, FakeModel(lambda prompt: Reply(401, {"error": "who?"})) as model:
        refused = await command(*options(w, model, tmp_path))
        assert (refused.status, "does not accept the key" in refused.err) == (3, True)
        model.answer = lambda prompt: Reply(503, {})
        gone = await invoke(*options(w, model, tmp_path), "--endpoint-retries", "0")
        assert (gone.status, "nor to a short probe" in gone.err) == (3, True)
        model.answer = lambda prompt: block("outcome=INFRASTRUCTURE_ERROR retryable=no")
        lost = await invoke(*options(w, model, tmp_path))
        assert (lost.status, "12 of 12 episodes are not finished, because a reward is missing" in lost.err) == (1, True)
        other = await invoke(*options(w, model, tmp_path), "--temperature", "0.5")
        assert (other.status, "it was started with sampling" in other.err) == (2, True)
        away = await invoke(*options(w, model, tmp_path), "--address", "127.0.0.1:1")
        assert (away.status, "cannot reach" in away.err or "away" in away.err) == (3, True)
    for one in (refused, gone, lost, other, away):
        assert "Traceback" not in one.err


USAGE: list[tuple[list[str], str]] = [
    ([], "give --model"),
    (["--model", "m"], "--output"),
    (["--model", "m", "-o", "run.jsonl", "--base-url", "nonsense"], "not an http(s) URL"),
    (["--model", "m", "-o", "run.jsonl", "--api-key-env", "NOT_THERE"], "no such variable"),
    (["--model", "m", "-o", "run.png"], "the plot is written there"),
    (["--reward", "fortune"], "is not known"),
    (["--reward", '{"speedup_clip": -1}'], "speedup_clip"),
    (["--reward", "{"], "not JSON"),
    (["--reward", '{"colour": 1}'], "colour"),
    (["--reward", '{"speedup_kind": "WALL"}'], "speedup_kind"),
    (["--request", "[]"], "must be a JSON object"),
    (["--request", '{"colour": 1}'], "unknown field"),
    (["--request", "missing.json"], "No such file"),
    (["--extra-body", "x"], "not JSON"),
    (["--extra-body", '{"stream": true}'], "stream cannot be set"),
    (["--strategy", "best"], "strategy"),
    (["--strategy", "top", "--rank-by", "time"], "rank_by='time' is unknown"),
    (["--rank-by", "speedup"], "has no effect with strategy='all'"),
]


@pytest.mark.parametrize(("arguments", "complaint"), USAGE, ids=range(len(USAGE)))
async def test_usage_errors(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    done = await invoke("rollout", write_problems(tmp_path, 1), *arguments, COLUMNS="160")
    assert (done.status, complaint in done.err) == (2, True), done.err


async def test_a_dry_run_needs_neither_model_nor_services(tmp_path: Path) -> None:
    done = await command("rollout", write_problems(tmp_path, 2), "--dry-run")
    assert done.status == 0
    assert done.out.startswith("--- user ---\nMake the PyTorch program below faster")
    assert "MARK p0" in done.out
    as_json = await command(
        "rollout", write_problems(tmp_path, 2), "--dry-run", "--json", "--request", '{"backend": "torch"}'
    )
    assert "with PyTorch's own operators" in json.loads(as_json.out)[0]["content"]


@pytest.mark.parametrize(("name", "extra"), [("rollout", "rollout"), ("gateway", "gateway")])
def test_a_missing_extra_is_named(name: str, extra: str, tmp_path: Path) -> None:
    missing = {"rollout": "httpx", "gateway": "starlette"}[name]
    hide = f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['kerneldyno', {name!r}, *sys.argv[1:]]"
    program = f"{hide}\nfrom kerneldyno.cli import main\nmain()"
    more = [str(write_problems(tmp_path, 1))] if name == "rollout" else []
    done = subprocess.run([sys.executable, "-c", program, *more], capture_output=True, text=True, timeout=60)
    assert (done.returncode, installing.command(extra) in done.stderr) == (2, True), done.stderr


async def test_exports(tmp_path: Path) -> None:
    async with world(tmp_path) as w, FakeModel(by_prompt) as model:
        assert (await command(*options(w, model, tmp_path))).status == 0
    table, sft, picture = tmp_path / "run.parquet", tmp_path / "sft.jsonl", tmp_path / "again.png"
    shown = await invoke("trajectories", w.path)
    made = await command(
        "trajectories", w.path, "--parquet", table, "--sft", sft, "--min-reward", "1", "--plot", picture
    )
    figures = await invoke("trajectories", w.path, "--json")
    assert [one.status for one in (shown, made, figures)] == [0, 0, 0], made.err
    assert "fast@1.2" in shown.out
    assert "best: chosen by the evaluator's own measurement" in " ".join(shown.out.split())
    assert json.loads(figures.out) == json.loads((tmp_path / "run.report.json").read_text())
    rows = pq.read_table(table).to_pylist()
    assert len(rows) == 36, "a turn counts once, though its response was recorded before its reward"
    assert all(row["reward"] is not None for row in rows)
    chats = [json.loads(line) for line in sft.read_text().splitlines()]
    assert 0 < len(chats) <= 12
    assert all(chat["messages"][-1]["role"] == "assistant" and chat["reward"] >= 1 for chat in chats)
    assert picture.read_bytes().startswith(b"\x89PNG")


async def test_an_export_takes_the_place_of_no_other_file(tmp_path: Path) -> None:
    run, other = tmp_path / "run.jsonl", tmp_path / "sub" / ".." / "run.jsonl"
    (tmp_path / "sub").mkdir()
    run.write_text('{"version": 1, "group": "g", "sample": 0, "turn_index": 0}\n')
    before = run.read_bytes()
    table = tmp_path / "out"
    for arguments in (["--sft", run], ["--parquet", other], ["--plot", run], ["--sft", table, "--parquet", table]):
        done = await invoke("trajectories", run, *arguments)
        assert (done.status, "give another file" in done.err) == (2, True), done.err
    assert run.read_bytes() == before
    assert not table.exists()


async def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text("{}\n")
    for name, complaint in (("missing.jsonl", "No such file"), ("other.jsonl", "not a turn")):
        done = await invoke("trajectories", tmp_path / name)
        assert (done.status, complaint in done.err) == (2, True), done.err
    (tmp_path / "empty.jsonl").write_text("")
    empty = await command("trajectories", tmp_path / "empty.jsonl")
    assert (empty.status, "0 episodes" in empty.out) == (0, True), empty.err

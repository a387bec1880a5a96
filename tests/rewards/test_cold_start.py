"""Tests of examples for a cold start: which turns are left out, what an example contains, and the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kerneldyno.cli import app
from kerneldyno.rewards.cold_start import ThresholdError, turn_examples
from kerneldyno.rewards.trajectories import TrajectoryWriter, TurnRecord

pytestmark = pytest.mark.pure

PROMPT = [{"role": "user", "content": "make it fast"}]
GOOD = TurnRecord(
    group="g", sample=0, turn_index=0, problem_id="p", messages=PROMPT, response="answer", outcome="CORRECT",
    reward=1.0, speedup=1.5, speedup_kind="device", coverage=0.7, model="m",
)  # fmt: skip


def examples(*turns: TurnRecord, min_reward: float = 0.5, **options: Any) -> list[dict[str, Any]]:
    return list(turn_examples(turns, min_reward=min_reward, **options))


@pytest.mark.parametrize("options", [{"min_reward": math.nan}, {"min_speedup": math.nan}])
def test_thresholds_that_nothing_reaches_are_refused_at_once(options: dict[str, float]) -> None:
    with pytest.raises(ThresholdError, match=f"{next(iter(options))} is NaN"):
        turn_examples([], **({"min_reward": 0.0} | options))


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "INCORRECT"},
        {"outcome": "REJECTED"},
        {"outcome": ""},
        {"reward": None},
        {"reward": 0.49},
        {"speedup": 1.19},
        {"messages": []},
        {"response": "  \n"},
        {"remeasured": {"outcome": "INCORRECT", "speedup": 2.0}},
        {"remeasured": {"outcome": "CORRECT", "speedup": 1.1}},
    ],
)
def test_what_is_not_imitated(change: dict[str, Any]) -> None:
    assert len(examples(GOOD, min_speedup=1.2)) == 1
    assert examples(replace(GOOD, **change), min_speedup=1.2) == []


def test_an_example_is_one_answer_and_what_was_seen_before_it() -> None:
    later = replace(
        GOOD, turn_index=1, response="better",
        messages=[*PROMPT, {"role": "assistant", "content": "answer"}, {"role": "user", "content": "go on"}],
    )  # fmt: skip
    wrong = replace(GOOD, turn_index=2, outcome="INCORRECT")
    first, second = examples(GOOD, later, wrong)
    assert first == {
        "prompt": PROMPT,
        "completion": [{"role": "assistant", "content": "answer"}],
        "problem_id": "p",
        "group": "g",
        "sample": 0,
        "turn_index": 0,
        "reward": 1.0,
        "speedup": 1.5,
        "speedup_kind": "device",
        "coverage": 0.7,
        "model": "m",
    }
    assert [message["content"] for message in second["prompt"]] == ["make it fast", "answer", "go on"]
    assert second["completion"][0]["content"] == "better"


def test_a_turn_that_was_recorded_twice_counts_once() -> None:
    pending = replace(GOOD, reward=None, outcome="")
    assert len(examples(pending, GOOD)) == 1
    assert examples(GOOD, replace(GOOD, outcome="INCORRECT", reward=0.0)) == []


def test_the_command_writes_them(tmp_path: Path) -> None:
    run, out = tmp_path / "run.jsonl", tmp_path / "out.jsonl"
    with TrajectoryWriter(run) as writer:
        for index, (reward, speedup) in enumerate([(0.4, 3.0), (1.0, 1.5), (0.9, 0.8)]):
            writer.write(replace(GOOD, turn_index=index, reward=reward, speedup=speedup))

    def command(*options: str) -> tuple[int, str]:
        ran = CliRunner().invoke(app, ["trajectories", str(run), "--sft-turns", str(out), *options])
        return ran.exit_code, ran.output

    status, printed = command()
    assert (status, printed.strip()) == (0, f"2 of 3 turns in {out}")
    assert command("--min-speedup", "1")[1].startswith("1 of 3 turns")
    (row,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert (row["turn_index"], row["speedup"]) == (1, 1.5)
    for wrong, said in ((("--min-speedup", "nan"), "min_speedup is NaN"), (("--sft", str(out)), "is also --sft")):
        status, printed = command(*wrong)
        assert status == 2, printed
        assert said in " ".join(printed.split())

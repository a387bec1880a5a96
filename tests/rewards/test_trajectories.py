"""Tests of trajectory files: what was written can be read, whatever interrupts the writer; and exports."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kerneldyno.rewards.presets import PRESETS
from kerneldyno.rewards.scoring import score
from kerneldyno.rewards.trajectories import (
    TrajectoryFileError,
    TrajectoryWriter,
    TurnRecord,
    read,
    scan,
    to_parquet,
    to_sft,
    trajectories,
)
from kerneldyno.rpc.jsonio import result_from_json
from kerneldyno.v1.reward_service_pb2 import Extraction, StreamRewardsResponse
from tests.rewards.reward_results import RESULTS, both_times, result


def answer(outcome: str = "CORRECT", group: str = "p7", sample: int = 0, turn: int = 0, **changes: Any) -> Any:
    verdict = result(outcome, digest="d" * 64, environment={"device_model": "NVIDIA H200"}, **changes)
    reward, parts = score(verdict, PRESETS["drkernel"])
    return StreamRewardsResponse(
        id=f"{group}/{sample}/{turn}",
        group=group,
        sample=sample,
        turn_index=turn,
        reward=reward,
        parts=parts,
        result=verdict,
        feedback="Your line 3: x",
        extraction=Extraction(method=Extraction.METHOD_FENCED, kernel_code="class ModelNew: ...", note="odd"),
    )


def turn(reward: float | None, index: int, history: list[dict[str, Any]] | None = None, **own: Any) -> TurnRecord:
    history = [{"role": "user", "content": "Make it fast."}] if history is None else history
    return TurnRecord(
        group="p7", sample=0, turn_index=index, messages=history, response=f"answer {index}", reward=reward, **own
    )


def episode(*rewards: float | None) -> list[TurnRecord]:
    """Return an episode in which every turn sees all earlier turns."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "Make it fast."}]
    turns = []
    for index, reward in enumerate(rewards):
        turns.append(turn(reward, index, list(history)))
        history += [
            {"role": "assistant", "content": f"answer {index}"},
            {"role": "user", "content": f"feedback {index}"},
        ]
    return turns


def write(path: Path, *turns: TurnRecord) -> None:
    with TrajectoryWriter(path) as writer:
        for one in turns:
            writer.write(one)


@pytest.mark.parametrize("outcome", RESULTS)
def test_answers_of_every_outcome_come_back_whole(tmp_path: Path, outcome: str) -> None:
    given_ = answer(outcome)
    messages = [{"role": "user", "content": "Größe \ud800 \n"}]
    own: dict[str, Any] = {
        "response": "text",
        "messages": messages,
        "problem_id": "L1/19",
        "model": "policy@230",
        "sampling": {"temperature": 1.0, "stop": ["</s>"]},
        "timings": {"generate": 2.5, "reward": 0.5},
        "extra": {"step": 7},
    }
    record = TurnRecord.from_answer(given_, **own)
    write(tmp_path / "t.jsonl", record)
    (back,), note = read(tmp_path / "t.jsonl").turns, read(tmp_path / "t.jsonl").note
    assert (back, note) == (record, "")
    for name, value in own.items():
        assert getattr(back, name) == value
    assert back.outcome == outcome
    assert back.reward == (given_.reward if given_.HasField("reward") else None)
    assert (back.reward is None) == (outcome in ("INFRASTRUCTURE_ERROR", "REFERENCE_ERROR", "PROBLEM_TOO_LARGE"))
    assert back.result is not None
    assert result_from_json(back.result) == given_.result
    assert (back.kernel_code, back.extraction) == ("class ModelNew: ...", {"method": "METHOD_FENCED", "note": "odd"})
    if outcome == "CORRECT":
        assert (back.speedup, back.speedup_low, back.speedup_high, back.coverage) == (1.5, 1.4, 1.6, 0.4)
        assert back.parts["paid_speedup"] == 1.5
        assert sum(back.parts[name] for name in ("correctness", "speedup", "coverage", "tier", "fixed")) == back.reward


def test_a_second_measurement_is_kept(tmp_path: Path) -> None:
    given_ = answer()
    given_.remeasured.CopyFrom(result("INCORRECT"))
    write(tmp_path / "t.jsonl", TurnRecord.from_answer(given_, kernel_code="own", speedup=1.0))
    (back,) = read(tmp_path / "t.jsonl").turns
    assert back.remeasured is not None
    assert result_from_json(back.remeasured) == given_.remeasured
    assert (back.kernel_code, back.speedup) == ("own", 1.0), "what the caller says overrides"


def test_the_speedup_of_a_turn_is_the_one_that_counts(tmp_path: Path) -> None:
    counts = {"device": (1.5, 1.4, 1.6), "end_to_end": (3.0, 2.9, 3.1)}
    turns = []
    for index, kind in enumerate(counts):
        verdict = both_times(speedup_kind=f"SPEEDUP_KIND_{kind.upper()}")
        given_ = StreamRewardsResponse(group="g", sample=0, turn_index=index, reward=1.0, result=verdict)
        turns.append(TurnRecord.from_answer(given_, messages=[{"role": "user", "content": "Make it fast."}]))
    turns.append(TurnRecord.from_answer(StreamRewardsResponse(group="g", turn_index=2, result=result("INCORRECT"))))
    write(tmp_path / "t.jsonl", *turns)
    back = read(tmp_path / "t.jsonl").turns
    assert back == turns
    assert {one.speedup_kind: (one.speedup, one.speedup_low, one.speedup_high) for one in back[:2]} == counts
    assert (back[2].speedup_kind, back[2].speedup) == ("", 0.0)
    (row,) = to_sft(trajectories(turns[1:]), min_reward=1.0)
    assert (row["speedup"], row["speedup_kind"]) == (3.0, "end_to_end")
    to_parquet(turns, tmp_path / "t.parquet")
    rows = pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pylist()
    assert [row["speedup_kind"] for row in rows] == ["device", "end_to_end", ""]
    assert [row["speedup"] for row in rows] == [1.5, 3.0, 0.0]
    for row in rows[:2]:
        assert (row["device_speedup"], row["end_to_end_speedup"]) == (1.5, 3.0)
        assert (row["candidate_seconds"], row["reference_seconds"]) == (4e-5, 6e-5)
        assert (row["candidate_end_to_end_seconds"], row["reference_end_to_end_seconds"]) == (6e-5, 1.8e-4)
    assert rows[2]["candidate_end_to_end_seconds"] is None


def test_turns_of_an_earlier_release_are_read_and_are_by_device_time(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", TurnRecord.from_answer(answer()))
    line = json.loads((tmp_path / "t.jsonl").read_text())
    del line["speedup_kind"]
    (tmp_path / "t.jsonl").write_text(json.dumps(line) + "\n")
    (back,) = read(tmp_path / "t.jsonl").turns
    assert (back.speedup, back.speedup_kind) == (1.5, "")
    line["speedup_kind"] = 2
    (tmp_path / "t.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(TrajectoryFileError, match="speedup_kind"):
        read(tmp_path / "t.jsonl")


def test_files_are_continued_and_joined(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", turn(0.1, 0))
    write(tmp_path / "a.jsonl", turn(0.2, 1))
    (tmp_path / "b.jsonl").write_bytes((tmp_path / "a.jsonl").read_bytes() * 2)
    assert [one.turn_index for one in read(tmp_path / "a.jsonl").turns] == [0, 1]
    both = read(tmp_path / "b.jsonl")
    assert len(both.turns) == 4
    (whole,) = both.trajectories()
    assert [one.turn_index for one in whole.turns] == [0, 1]


@pytest.mark.parametrize("keep", [1, 5, 12, 60, -2])
def test_a_cut_last_line_is_told_and_then_taken_away(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "t.jsonl"
    write(path, turn(0.1, 0))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:keep])
    cut = read(path)
    assert [one.turn_index for one in cut.turns] == [0]
    assert cut.note.startswith("line 2 is cut off after ")
    with TrajectoryWriter(path) as writer:
        assert writer.dropped_bytes == len(whole[:keep])
        writer.write(turn(0.2, 1))
    mended = read(path)
    assert ([one.turn_index for one in mended.turns], mended.note) == ([0, 1], "")


def test_a_last_line_that_lacks_only_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, turn(0.1, 0))
    path.write_bytes(path.read_bytes()[:-1])
    assert (len(read(path).turns), read(path).note) == (1, "")
    write(path, turn(0.2, 1))
    assert [one.turn_index for one in read(path).turns] == [0, 1]


def test_a_long_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, turn(0.1, 0), turn(0.2, 1, extra={"x": "y" * 300_000}))
    whole = path.read_bytes()
    path.write_bytes(whole[:-100_000])
    with TrajectoryWriter(path) as writer:
        assert writer.dropped_bytes > 200_000
    assert [one.turn_index for one in read(path).turns] == [0]


_DIES = """
import os, sys
from kerneldyno.rewards.trajectories import TrajectoryWriter, TurnRecord
writer = TrajectoryWriter(sys.argv[1])
for index in range(10_000):
    writer.write(TurnRecord(group="g", sample=0, turn_index=index, response="x" * 1000))
    if index == 50:
        print("ready", flush=True)
"""


def test_nothing_written_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with subprocess.Popen([sys.executable, "-c", _DIES, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    turns = read(path).turns
    assert len(turns) > 50
    assert [one.turn_index for one in turns] == list(range(len(turns)))
    write(path, turn(1.0, 0))
    assert len(read(path).turns) == len(turns) + 1


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with TrajectoryWriter(path) as writer:
        with pytest.raises(TrajectoryFileError, match="another process"):
            TrajectoryWriter(path)
        writer.write(turn(0.1, 0))
        assert len(read(path).turns) == 1, "readers may follow"
        writer.close()
        TrajectoryWriter(path).close()


_FULL = """
import resource, signal, sys
from kerneldyno.rewards.trajectories import TrajectoryWriter, TurnRecord
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = TrajectoryWriter(sys.argv[1])
writer.write(TurnRecord(group="g", sample=0, turn_index=0))
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    writer.write(TurnRecord(group="g", sample=0, turn_index=1, response="x" * 100_000))
except OSError:
    writer.write(TurnRecord(group="g", sample=0, turn_index=2))
    writer.close()
    sys.exit(7)
"""


@pytest.mark.parametrize("tail", [-1, -2, -100])
def test_no_part_of_a_line_stays_when_the_disk_is_full(tmp_path: Path, tail: int) -> None:
    """A limit on the file size stands for a full disk: Linux writes a part of the line, then refuses."""
    path = tmp_path / "t.jsonl"
    write(path, turn(0.0, 8), turn(0.0, 9))
    path.write_bytes(path.read_bytes()[:tail])
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    assert subprocess.run([sys.executable, "-c", _FULL, str(path)], check=False).returncode == 7
    recording = read(path)
    assert [one.turn_index for one in recording.turns] == [8, *([9] if tail == -1 else []), 0, 2]
    assert recording.turns[-1].speedup == 0.0
    assert not recording.note


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hello", "not JSON"),
        ("[1]", "it has no version"),
        ('{"group": "g"}', "it has no version"),
        ('{"version": 2, "group": "g", "sample": 0, "turn_index": 0}', "its version is 2"),
        ('{"version": 1, "group": "g", "sample": "0", "turn_index": 0}', "needs group, sample and turn_index"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_turn_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "t.jsonl"
    write(path, turn(0.1, 0))
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(TrajectoryFileError, match=f"line 2: .*{said}"):
        read(path)


def test_other_files_are_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("precious\nwords without an end")
    with pytest.raises(TrajectoryFileError, match=r"notes\.txt does not end in a turn"):
        TrajectoryWriter(path)
    assert path.read_text() == "precious\nwords without an end"
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "absent")


@pytest.mark.parametrize("odd", ['"0.4"', "[]", "NaN", "Infinity"])
def test_a_coverage_that_is_no_number_is_refused(tmp_path: Path, odd: str) -> None:
    path = tmp_path / "t.jsonl"
    line = '{"version": 1, "group": "g", "sample": 0, "turn_index": 0, "coverage": %s}\n'
    path.write_text(line % "null")
    assert [one.coverage for one in scan(path)] == [None]
    path.write_text(line % odd)
    with pytest.raises(TrajectoryFileError, match=r"line 1: coverage is"):
        read(path)


def test_fields_of_a_newer_minor_form_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('\n{"version": 1, "group": "g", "sample": 0, "turn_index": 3, "new": 1}\n\n')
    assert [(one.group, one.turn_index) for one in scan(path)] == [("g", 3)]


def test_numbers_that_json_has_not_are_refused(tmp_path: Path) -> None:
    with TrajectoryWriter(tmp_path / "t.jsonl") as writer, pytest.raises(ValueError, match="JSON"):
        writer.write(turn(float("nan"), 0))
    assert (tmp_path / "t.jsonl").read_bytes() == b""


_places = st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 3))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_places, st.none() | st.floats(-5, 5), st.text()), max_size=20), st.integers(0, 400))
def test_any_file_cut_anywhere(tmp_path: Path, lines: list[tuple[Any, float | None, str]], cut: int) -> None:
    path = tmp_path / f"t{os.getpid()}.jsonl"
    path.unlink(missing_ok=True)
    turns = [
        TurnRecord(group=group, sample=sample, turn_index=index, reward=reward, response=text)
        for (group, sample, index), reward, text in lines
    ]
    write(path, *turns)
    path.write_bytes(path.read_bytes()[: -cut or None])
    kept = read(path).turns
    assert kept == turns[: len(kept)]
    write(path)
    assert read(path).turns == kept
    assert not read(path).note
    episodes = trajectories(kept)
    assert {(one.group, one.sample) for one in episodes} == {(one.group, one.sample) for one in kept}
    for one in episodes:
        assert [step.turn_index for step in one.turns] == sorted({step.turn_index for step in one.turns})


@pytest.mark.parametrize(
    ("rewards", "best"), [([0.1, 0.9, 0.5], 1), ([0.5, 0.5], 0), ([None, -1.0], 1), ([None], None), ([], None)]
)
def test_best_turn(rewards: list[float | None], best: int | None) -> None:
    found = [one.best for one in trajectories(episode(*rewards))]
    assert [one and one.turn_index for one in found] == ([best] if rewards else [])


def contents(row: dict[str, Any]) -> list[str]:
    return [message["content"] for message in row["messages"]]


def test_sft_rows_end_with_the_best_turn() -> None:
    (row,) = to_sft(trajectories(episode(0.5, 1.0, 0.7)), min_reward=1.0)
    assert contents(row) == ["Make it fast.", "answer 0", "feedback 0", "answer 1"]
    assert (row["best_turn"], row["num_turns"], row["reward"]) == (1, 2, 1.0)
    assert not list(to_sft(trajectories(episode(0.5, 1.0)), min_reward=1.01))
    system = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}]
    (row,) = to_sft(trajectories([turn(1.0, 0, system)]), min_reward=1.0)
    assert (len(row["messages"]), row["num_turns"]) == (3, 1)
    assert not list(to_sft(trajectories(episode(None, None)), min_reward=-1))
    assert not list(to_sft(trajectories([turn(1.0, 0, [])]), min_reward=0))


def test_sft_rows_without_steps_back() -> None:
    turns = episode(0.5, 0.0, 0.6, None, 1.0)
    (row,) = to_sft(trajectories(turns), min_reward=0.9)
    assert contents(row) == ["Make it fast.", "answer 0", "feedback 0", "answer 2", "feedback 2", "answer 4"]
    roles = [message["role"] for message in row["messages"]]
    assert roles == ["user", "assistant"] * 3
    (row,) = to_sft(trajectories(turns), min_reward=0.9, drop_regressions=False)
    assert len(row["messages"]) == 10
    assert row["num_turns"] == 5
    json.dumps(row)


def test_sft_finds_steps_back_in_chats_that_do_not_keep_reasoning() -> None:
    said = ["answer 0", "answer 1", "answer 2", "answer 0"]
    history: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    turns = []
    for index, (text, reward) in enumerate(zip(said, [0.5, 0.1, 0.9, 1.0], strict=True)):
        record = turn(reward, index, list(history))
        turns.append(dataclasses.replace(record, response=f"<think>\nHm {index}\n</think>\n\n{text}"))
        history += [{"role": "assistant", "content": text}, {"role": "user", "content": f"feedback {index}"}]
    (row,) = to_sft(trajectories(turns), min_reward=1.0)
    assert contents(row)[:-1] == ["Go.", "answer 0", "feedback 0", "answer 2", "feedback 2"]
    assert contents(row)[-1].endswith("answer 0"), "the response that is learned keeps its reasoning"
    again = [dataclasses.replace(one, reward=reward) for one, reward in zip(turns, [0.5, 0.1, 0.4, 1.0], strict=True)]
    again[2] = dataclasses.replace(again[2], response=again[0].response)
    (row,) = to_sft(trajectories(again), min_reward=1.0)
    assert "answer 0" in contents(row), "what was once no step back stays"


def test_parquet(tmp_path: Path) -> None:
    turns = [
        TurnRecord.from_answer(answer(outcome, turn=index), response="r\ud800", timings={"generate": 1.5})
        for index, outcome in enumerate(RESULTS)
    ]
    assert to_parquet(iter(turns * 150), tmp_path / "t.parquet") == 150 * len(RESULTS)
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet")
    assert table.num_rows == 150 * len(RESULTS)
    rows = {row["outcome"]: row for row in table.slice(0, len(RESULTS)).to_pylist()}
    assert set(rows) == set(RESULTS)
    correct, lost = rows["CORRECT"], rows["INFRASTRUCTURE_ERROR"]
    assert (correct["reward"], correct["part_coverage"], correct["candidate_seconds"]) == (1.45, 0.2, 4e-5)
    assert (correct["device_model"], correct["extraction_method"]) == ("NVIDIA H200", "METHOD_FENCED")
    assert json.loads(correct["timings_json"]) == {"generate": 1.5}
    assert result_from_json(json.loads(correct["result_json"])) == answer().result
    assert lost["reward"] is None
    assert lost["response"] == "r?"
    assert not any(isinstance(value, list | dict) for row in rows.values() for value in row.values()), "flat"
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_empty_parquet_has_the_columns(tmp_path: Path) -> None:
    assert to_parquet([], tmp_path / "t.parquet") == 0
    assert "reward" in pyarrow.parquet.read_table(tmp_path / "t.parquet").column_names


def test_a_failed_export_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_text("old")

    def broken() -> Any:
        yield turn(0.1, 0)
        raise RuntimeError("broken off")

    with pytest.raises(RuntimeError, match="broken off"):
        to_parquet(broken(), path)
    assert [one.name for one in tmp_path.iterdir()] == ["t.parquet"]
    assert path.read_text() == "old"


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from kerneldyno.rewards.trajectories import to_parquet\n"
        "try: to_parquet([], sys.argv[1])\n"
        "except ImportError as error: print(error)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "t")]
    assert "[rollout]" in subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        ('"reward": "x"', "reward is 'x'"),
        ('"reward": NaN', "reward is nan"),
        ('"speedup": null', "speedup is 'None'"),
        ('"messages": 5', "messages is '5'"),
        ('"response": null', "response is 'None'"),
        ('"problem_id": true', "problem_id is 'True'"),
        ('"kernel_code": []', r"kernel_code is '\[\]'"),
        ('"feedback": 1', "feedback is '1'"),
    ],
)
def test_a_field_of_another_type_is_named_with_its_line(tmp_path: Path, field: str, complaint: str) -> None:
    path = tmp_path / "edited.jsonl"
    path.write_text('{"version": 1, "group": "g", "sample": 0, "turn_index": 0, ' + field + "}\n")
    with pytest.raises(TrajectoryFileError, match=f"line 1: {complaint}"):
        read(path)


def test_a_last_line_of_a_later_release_is_not_taken_for_a_cut_one(tmp_path: Path) -> None:
    path = tmp_path / "later.jsonl"
    path.write_text('{"version": 2, "group": "g", "what": {"is": "new"}}')
    with pytest.raises(TrajectoryFileError, match="version is 2"):
        TrajectoryWriter(path)
    assert path.read_text().endswith('"new"}}')

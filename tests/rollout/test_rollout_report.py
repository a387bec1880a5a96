"""Tests of the report of a rollout, against figures calculated by hand."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kerneldyno.cli.trajectories import report_tables
from kerneldyno.rewards.trajectories import Trajectory, TrajectoryFileError, TurnRecord
from kerneldyno.rollout.plot import plot
from kerneldyno.rollout.recorded import light, light_episodes
from kerneldyno.rollout.report import Report, report

pytestmark = pytest.mark.pure

#: Speedup of a right turn, None for a wrong one, "failed" for a failed generation, "lost" for a turn without a reward.
Played = float | str | None


def episode(group: str, sample: int, *played: Played, wanted: int = 3) -> Trajectory:
    turns = []
    for index, one in enumerate(played):
        extra: dict[str, Any] = {"rollout": {"turns": wanted}, "run": "r"}
        known: dict[str, Any] = {"outcome": "INCORRECT", "reward": 0.0}
        if isinstance(one, float):
            known = {"outcome": "CORRECT", "speedup": one, "reward": 0.3 + one}
        elif one == "failed":
            extra["ended"] = "generation_failed"
            known = {"outcome": "GENERATION_FAILED"}
        elif one == "lost":
            known = {}
        turns.append(TurnRecord(group=group, sample=sample, turn_index=index, problem_id=group, extra=extra, **known))
    return Trajectory(group, sample, tuple(turns))


def test_figures() -> None:
    found = report(
        [
            episode("a", 0, None, 1.1, 1.0),
            episode("a", 1, 2.0, 1.4, None),
            episode("b", 0, None, "failed"),
            episode("b", 1, None, None, 1.6),
            episode("b", 2, 3.0, "lost"),
            episode("c", 0, 3.0),
        ]
    )
    assert (found.problems, found.episodes, found.unfinished, found.failed_generations) == (2, 4, 2, 1)
    assert [row.correct for row in found.turns] == [0.25, 0.5, 0.5]
    assert [row.fast[1.2] for row in found.turns] == [0.25, 0.25, 0.25]
    assert [row.fast[2.0] for row in found.turns] == [0.25, 0.0, 0.0]
    assert [row.best_fast[1.0] for row in found.turns] == [0.25, 0.5, 0.75]
    assert [row.best_fast[2.0] for row in found.turns] == [0.25, 0.25, 0.25]
    assert found.outcomes == {"INCORRECT": 5, "CORRECT": 5, "GENERATION_FAILED": 1}
    last, best = found.selected
    # The last answers are 1.0, wrong, failed, 1.6. The best answers are 1.1, 2.0, wrong, 1.6.
    assert (last.correct, last.fast[1.0], last.fast[1.5]) == (0.5, 0.5, 0.25)
    assert last.mean_reward == pytest.approx((1.3 + 0.0 + 1.9) / 3)
    assert last.pass_at == {1: 0.5, 2: 1.0}
    assert (best.correct, best.fast[1.0], best.fast[1.5], best.fast[2.0]) == (0.75, 0.75, 0.5, 0.25)
    assert best.mean_reward == pytest.approx((1.4 + 2.3 + 0.0 + 1.9) / 4)
    assert best.pass_at == {1: 0.75, 2: 1.0}


def test_a_speedup_that_was_measured_twice_counts_by_the_smaller() -> None:
    again = {"outcome": "CORRECT", "speedup": 1.1}
    wrong = {"outcome": "INCORRECT", "speedup": 0.0}
    turns = [
        TurnRecord(group=f"g{i}", sample=0, turn_index=0, outcome="CORRECT", speedup=9.0, reward=1.0, remeasured=second)
        for i, second in enumerate((again, wrong, None))
    ]
    found = report([Trajectory(turn.group, 0, (turn,)) for turn in turns])
    assert found.turns[0].correct == pytest.approx(2 / 3)
    assert found.turns[0].fast[1.0] == pytest.approx(2 / 3)
    assert found.turns[0].fast[1.2] == pytest.approx(1 / 3)


@pytest.mark.parametrize("is_light", [False, True])
def test_two_measurements_are_compared_by_the_speedup_that_counts(is_light: bool) -> None:
    kind = "SPEEDUP_KIND_END_TO_END"
    seconds: list[dict[str, Any]] = [
        {"outcome": "CORRECT", "speedup": 1.1, "end_to_end_speedup": 4.0, "speedup_kind": kind},
        {"outcome": "CORRECT", "speedup": 4.0, "end_to_end_speedup": 1.1, "speedup_kind": kind},
        {"outcome": "CORRECT", "speedup": 4.0, "end_to_end_speedup": 1.1},
    ]
    known = {"outcome": "CORRECT", "speedup": 9.0, "speedup_kind": "end_to_end", "reward": 1.0}
    turns = [
        TurnRecord(group=f"g{i}", sample=0, turn_index=0, remeasured=second, **known)
        for i, second in enumerate(seconds)
    ]
    turns = [light(turn) for turn in turns] if is_light else turns
    found = report([Trajectory(turn.group, 0, (turn,)) for turn in turns])
    assert found.turns[0].fast[1.0] == 1.0
    assert found.turns[0].fast[2.0] == pytest.approx(2 / 3), "the second is 1.1, the others 4"


def printed(found: Report) -> str:
    file = io.StringIO()
    console = Console(file=file, width=120)
    for table in report_tables(found):
        console.print(table)
    return file.getvalue()


def one_turn(group: str, **known: Any) -> Trajectory:
    turn = TurnRecord(group=group, sample=0, turn_index=0, **({"outcome": "CORRECT", "reward": 1.0} | known))
    return Trajectory(group, 0, (light(turn),))


def test_absent_coverage_is_absent_and_not_0() -> None:
    """Two answers have a profile, one of them with coverage 0; the third has no profile, and the fourth is wrong."""
    known: dict[str, Any] = {"speedup": 2.0}
    found = report(
        [
            one_turn("a", coverage=0.8, **known),
            one_turn("b", coverage=0.0, **known),
            one_turn("c", **known),
            one_turn("d", coverage=0.1, outcome="INCORRECT"),
        ]
    )
    spread = found.turns[0].coverage_quartiles
    assert spread is not None
    assert (spread.count, spread.mean, spread.median) == (2, 0.4, 0.4)
    said = json.loads(json.dumps(found.to_json()))["turns"][0]
    assert (said["coverage_quartiles"]["upper"], said["improvement"]) == (pytest.approx(0.6), None)
    assert "coverage, turn 1         2   0.20     0.40   0.60" in printed(found)
    assert "coverage, turn" not in printed(report([one_turn("c", **known)]))


def test_sure_wins_are_by_the_lower_end_of_the_interval() -> None:
    """The four turns: a reference against itself, a sure win, one without an interval, and a wrong one."""
    found = report(
        [
            one_turn("a", speedup=1.003, speedup_low=0.98, speedup_high=1.03),
            one_turn("b", speedup=1.5, speedup_low=1.3, speedup_high=1.7),
            one_turn("c", speedup=2.0),
            one_turn("d", speedup=9.0, speedup_low=8.0, speedup_high=9.5, outcome="INCORRECT"),
        ]
    )
    (row,) = found.turns
    assert (row.fast[1.0], row.sure_fast[1.0], row.sure_fast[1.2], row.sure_fast[1.5]) == (0.75, 0.25, 0.25, 0.0)
    assert (row.fast_kernelgym[1.0], row.fast_correct[1.5]) == (0.75, pytest.approx(2 / 3))
    assert [(one.fast[1.0], one.sure_fast[1.0]) for one in found.selected] == [(0.75, 0.25)] * 2
    assert (found.timed, found.without_interval) == (3, 1)
    said = json.loads(json.dumps(found.to_json()))
    assert (said["turns"][0]["fast"]["1.0"], said["turns"][0]["sure_fast"]["1.0"]) == (0.75, 0.25)


def test_of_two_measurements_both_must_be_surely_faster_by_the_time_that_counts() -> None:
    def again(low: float | None, **changes: Any) -> dict[str, Any]:
        interval = None if low is None else {"low": low, "high": 2.0}
        second = {"outcome": "CORRECT", "speedup": 1.5, "end_to_end_speedup": 1.5, "speedup_interval": interval}
        return second | {"end_to_end_speedup_interval": {"low": 0.9, "high": 2.0}} | changes

    seconds = {
        "sure": again(1.1),
        "device": again(1.1, speedup_kind="SPEEDUP_KIND_DEVICE"),
        "unsure": again(0.9),
        "end to end": again(1.1, speedup_kind="SPEEDUP_KIND_END_TO_END"),
        "none": again(None),
    }
    first = {"speedup": 1.4, "speedup_low": 1.2, "speedup_high": 1.6}
    assert {
        name: report([one_turn("a", remeasured=second, **first)]).turns[0].sure_fast[1.0]
        for name, second in seconds.items()
    } == {"sure": 1.0, "device": 1.0, "unsure": 0.0, "end to end": 0.0, "none": 0.0}


def test_a_file_without_intervals_has_no_sure_win_and_says_so(tmp_path: Path) -> None:
    line = {
        "version": 1,
        "group": "g",
        "sample": 0,
        "turn_index": 0,
        "outcome": "CORRECT",
        "speedup": 2.0,
        "reward": 1.0,
    }
    (tmp_path / "old.jsonl").write_text(json.dumps(line) + "\n")
    found = report(light_episodes(tmp_path / "old.jsonl"))
    assert (found.turns[0].fast[1.0], found.turns[0].sure_fast[1.0], found.without_interval) == (1.0, 0.0, 1)
    assert "1 of 1 right, timed answers have no interval" in shown(found)
    (tmp_path / "bad.jsonl").write_text(json.dumps(line | {"speedup_low": "1.9"}) + "\n")
    with pytest.raises(TrajectoryFileError, match="speedup_low"):
        light_episodes(tmp_path / "bad.jsonl")


def test_an_episode_with_a_gap_is_not_finished() -> None:
    whole = episode("a", 0, 1.0, 1.0, 1.0)
    assert report([Trajectory("a", 0, whole.turns[1:])]).unfinished == 1


def test_nothing(tmp_path: Path) -> None:
    found = report([])
    assert (found.episodes, found.turns, found.selected) == (0, [], [])
    assert [str(part) for part in report_tables(found)] == [
        "0 episodes of 0 problems, % of all samples",
        "no turn is recorded",
    ]
    with pytest.raises(ValueError, match="nothing to plot"):
        plot(found, tmp_path / "a.png")


def test_what_a_person_sees() -> None:
    text = shown(report([episode("a", 0, None, "failed"), episode("a", 1, 2.0, 2.0, "lost")]))
    assert "1 episodes of 1 problems (1 unfinished ones left out)" in text
    assert "failed generation, which counts as a failure" in text
    assert "fast@1.2" in text
    assert "pass@1" in text


def test_both_counts_and_kernelgyms_are_shown_beside_each_other() -> None:
    known = {"speedup": 1.003, "speedup_low": 0.98, "speedup_high": 1.03}
    failed = {"outcome": "GENERATION_FAILED", "reward": None, "extra": {"ended": "generation_failed"}}
    text = shown(report([one_turn("a", **known), one_turn("b", **failed), one_turn("c", outcome="INCORRECT")]))
    rows = [line.split() for line in text.splitlines()]
    assert ["turn", "1", "33.3", "33.3", "0.0", "0.0", "0.0", "0.0"] in rows
    assert ["sure", "0.0", "0.0", "0.0", "0.0", "0.0"] in rows
    assert ["turn", "1,", "in", "all", "66.7", "50.0", "0.0", "0.0", "0.0", "0.0"] in rows
    assert ["of", "correct", "100.0", "0.0", "0.0", "0.0", "0.0"] in rows
    assert ["last", "1.000", "33.3", "33.3", "33.3", "0.0", "0.0"] in rows
    assert "no interval" not in text


def shown(found: Report) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    for table in report_tables(found):
        console.print(table)
    return console.export_text()

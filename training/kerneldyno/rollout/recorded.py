"""Reading of large trajectory files: keeps only what a resumed run and a report need of each turn.

A line has the whole prompt and the whole verdict, so a file can be larger than memory. These functions drop both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kerneldyno.rewards.trajectories import Trajectory, TurnRecord, scan, trajectories

#: Fields to keep of a second measurement.
_KEPT_OF_SECOND = (
    *("outcome", "speedup_kind", "speedup", "end_to_end_speedup"),
    *("speedup_interval", "end_to_end_speedup_interval"),
)


def light(turn: TurnRecord) -> TurnRecord:
    """Return a turn without its large fields: prompt, candidate and verdicts, except the figures of a second verdict."""
    again = None if turn.remeasured is None else {key: turn.remeasured.get(key) for key in _KEPT_OF_SECOND}
    return replace(turn, messages=(), kernel_code="", kernel_files={}, result=None, remeasured=again)


def light_turns(path: Path, notes: list[str] | None = None) -> list[TurnRecord]:
    """Return every line of a file without its large fields.

    Args:
        path: the trajectory file.
        notes: receives notes on lines that were skipped.

    Raises:
        TrajectoryFileError, OSError: as `kerneldyno.rewards.trajectories.scan`.
    """
    return [light(turn) for turn in scan(path, notes)]


def light_episodes(path: Path, notes: list[str] | None = None) -> list[Trajectory]:
    """Return the episodes of a file; their turns have no large fields, no responses and no feedback."""
    return trajectories(replace(light(turn), response="", feedback="") for turn in scan(path, notes))


def final_turns(path: Path) -> Iterator[TurnRecord]:
    """Yield each turn once and whole, in the order of the file: its last line, which has the reward if there is one."""
    last: dict[tuple[str, int, int], int] = {}
    for number, turn in enumerate(scan(path)):
        last[turn.group, turn.sample, turn.turn_index] = number
    kept = set(last.values())
    for number, turn in enumerate(scan(path)):
        if number in kept:
            yield turn

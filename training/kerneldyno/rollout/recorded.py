"""Reading trajectories of any size: what a resumed run and a report need of each turn, and each turn once.

A line has the whole prompt and the whole verdict, so a file can be larger than memory; what is kept of it here is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kerneldyno.rewards.trajectories import Trajectory, TurnRecord, scan, trajectories

#: What is needed of a second measurement.
_KEPT_OF_SECOND = (
    *("outcome", "speedup_kind", "speedup", "end_to_end_speedup"),
    *("speedup_interval", "end_to_end_speedup_interval"),
)


def light(turn: TurnRecord) -> TurnRecord:
    """Return a turn without what is large: prompt, candidate, verdicts but for what the second one came to."""
    again = None if turn.remeasured is None else {key: turn.remeasured.get(key) for key in _KEPT_OF_SECOND}
    return replace(turn, messages=(), kernel_code="", result=None, remeasured=again)


def light_turns(path: Path, notes: list[str] | None = None) -> list[TurnRecord]:
    """Return every line of a file, light. Raises as kerneldyno.rewards.trajectories.scan."""
    return [light(turn) for turn in scan(path, notes)]


def light_episodes(path: Path, notes: list[str] | None = None) -> list[Trajectory]:
    """Return the episodes of a file, their turns without responses too."""
    return trajectories(replace(light(turn), response="", feedback="") for turn in scan(path, notes))


def final_turns(path: Path) -> Iterator[TurnRecord]:
    """Yield each turn once, whole, in the order of the file: its last line, which has its reward if there is one."""
    last: dict[tuple[str, int, int], int] = {}
    for number, turn in enumerate(scan(path)):
        last[turn.group, turn.sample, turn.turn_index] = number
    kept = set(last.values())
    for number, turn in enumerate(scan(path)):
        if number in kept:
            yield turn

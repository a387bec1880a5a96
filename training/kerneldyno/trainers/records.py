"""Trajectories on disk: every process of a run keeps a file of its own in the folder `kerneldyno.trajectories`.

The files are those of kerneldyno.rewards.trajectories, for analysis and for cold starts; `cat` joins them.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from kerneldyno.rewards.trajectories import TrajectoryWriter, TurnRecord
from kerneldyno.rollout.problems import Message, Problem
from kerneldyno.trainers.episode import PlayedTurn
from kerneldyno.trainers.marks import Mark

_log = logging.getLogger("kerneldyno.verl")


def write(
    folder: str,
    problem: Problem,
    seen: Sequence[Sequence[Message]],
    turns: Sequence[PlayedTurn],
    marks: Sequence[Mark],
    row: Mapping[str, Any],
) -> None:
    """Appends an episode. What cannot be written is logged and lost: no sample fails for its record.

    Args:
        folder: where this process has its file; it is made if need be.
        problem: what the episode was about.
        seen: the messages of each turn's prompt.
        turns: those that were played.
        marks: what becomes of each in training.
        row: the row of the data set; its step and its source are kept.
    """
    extra = {name: row[name] for name in ("data_source", "global_steps") if isinstance(row.get(name), str | int)}
    try:
        writer = _writer(folder, os.getpid())
        for messages, turn, mark in zip(seen, turns, marks, strict=True):
            writer.write(
                TurnRecord.from_answer(
                    turn.answer,
                    problem_id=problem.id,
                    messages=messages,
                    response=turn.text,
                    timings={"reward": turn.seconds},
                    extra={**extra, "mark": mark.name.lower()},
                )
            )
    except (OSError, ValueError) as error:
        _log.error("turns of %s were not recorded: %s", turns[0].answer.group, error)


@lru_cache(maxsize=4)
def _writer(folder: str, pid: int) -> TrajectoryWriter:
    """The file of this process; a forked one has another."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    return TrajectoryWriter(Path(folder) / f"{socket.gethostname()}-{pid}.jsonl")

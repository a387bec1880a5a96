"""Trajectories on disk: every process of a run writes its own file in the folder `kerneldyno.trajectories`.

The format is that of kerneldyno.rewards.trajectories, for analysis and for cold starts; join the files with `cat`.
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
from kerneldyno.trainers.episode import EpisodeTurn
from kerneldyno.trainers.marks import Mark

_log = logging.getLogger("kerneldyno.verl")


def write(
    folder: str,
    problem: Problem,
    seen: Sequence[Sequence[Message]],
    turns: Sequence[EpisodeTurn],
    marks: Sequence[Mark],
    row: Mapping[str, Any],
) -> None:
    """Append an episode to the file of this process. A failed write is logged and does not fail the sample.

    Args:
        folder: folder of the file; created if it does not exist.
        problem: problem of the episode.
        seen: messages of the prompt of each turn.
        turns: turns that were played.
        marks: how training treats each turn.
        row: row of the data set; `data_source` and `global_steps` are recorded.
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
        _log.error("event=turns_not_recorded group=%s detail=%r", turns[0].answer.group, str(error))


@lru_cache(maxsize=4)
def _writer(folder: str, pid: int) -> TrajectoryWriter:
    """Return the writer of the process `pid`; a forked process gets another file."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    return TrajectoryWriter(Path(folder) / f"{socket.gethostname()}-{pid}.jsonl")

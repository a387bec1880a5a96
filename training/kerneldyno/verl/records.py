"""Trajectories on disk: every process of a run keeps a file of its own in the folder `kerneldyno.trajectories`."""

from __future__ import annotations

from collections.abc import Sequence

from kerneldyno.rollout.problems import Message, Problem
from kerneldyno.verl.episode import PlayedTurn
from kerneldyno.verl.settings import Settings


async def write(
    settings: Settings,
    problem: Problem,
    messages: Sequence[Message],
    turns: Sequence[PlayedTurn],
    *,
    group: str,
    sample: int,
) -> None:
    """Appends an episode."""
    if not settings.trajectories:
        return

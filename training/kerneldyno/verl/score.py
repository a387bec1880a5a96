"""Reward of a single-turn response, as a custom reward function of verl:

    reward.custom_reward_function.path=pkg://kerneldyno.verl.score
    +reward.custom_reward_function.reward_kwargs.address=scheduler:50051

For several turns use the agent loop, which gives a reward for each turn.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kerneldyno.trainers import connection, settings
from kerneldyno.trainers.episode import EpisodeTurn, figures
from kerneldyno.trainers.marks import Mark
from kerneldyno.trainers.settings import Settings
from kerneldyno.trainers.turns import make_turn, problem_of

#: Keywords that verl passes to every reward function if a reward model is on.
_VERL_KEYWORDS = ("reward_router_address", "reward_model_tokenizer")


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None, **given: Any
) -> dict[str, float]:
    """Score a response.

    Args:
        data_source: name of the data set, for error messages.
        solution_str: the response; its last complete code block is the candidate.
        ground_truth: the reference, or a problem as JSON text (see `kerneldyno.verl.dataset`).
        extra_info: `extra_info` of the row; `entry_point` and `problem_id` are used.
        given: settings, by their names in `kerneldyno.trainers.settings`.

    Returns:
        "score" and figures; the same keys for every response.

    Raises:
        SampleFailedError: no reward came, for a reason that is not the response's. verl then drops the sample.
        SettingsError: the row or a setting cannot be used.
    """
    chosen = settings.load({name: value for name, value in given.items() if name not in _VERL_KEYWORDS})
    row = {"data_source": data_source, "reward_model": {"ground_truth": ground_truth}, "extra_info": extra_info or {}}
    return await score_row(row, solution_str, chosen)


async def score_row(row: Mapping[str, Any], response: str, chosen: Settings) -> dict[str, float]:
    """Score a response to a row of the data set.

    Returns, Raises: as `compute_score`.
    """
    problem = problem_of(row)
    group, sample = str(row.get("uid") or problem.id), int(row.get("session_id") or 0)
    turn = make_turn(problem, chosen, response, group=group, sample=sample, turn_index=0)
    started = time.monotonic()
    answer = await connection.score(chosen, turn)
    played = EpisodeTurn(response, answer, begin=0, end=1, seconds=time.monotonic() - started)
    return figures([played], [Mark.KEPT])

"""Advantage estimators on turns, for stock verl: `algorithm.adv_estimator=trloo`.

A row of verl has a whole episode. Its turns are the runs of ones in the response mask, in order. The reward of a turn is
the sum of the rewards on its tokens (the agent loop puts it on the last one). The group is the prompt's uid, the discount
is `algorithm.gamma`. The formulas are those of kerneldyno.training.advantages.

Registered names: `trloo`, and `kerneldyno_<name>` for every estimator of kerneldyno.training, for example `kerneldyno_grpo`
(the mean includes the sample itself; no division by the standard deviation). `kerneldyno_optimal_baseline` weighs turns by
their tokens. For `remax` use verl's own: only its trainer knows the reward of the greedy rollout.

Rows from which verl's rejection sampling removed all tokens have no turns and are not members of their group. That keeps
TRLOO unbiased, because the rejection of a row depends on its own tokens only; KernelGYM counts such rows in the baseline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kerneldyno.trainers import marks
from kerneldyno.trainers.errors import SettingsError
from kerneldyno.training import advantages, masks
from kerneldyno.training.returns import multi_turn_returns
from kerneldyno.verl import correction
from verl.trainer.ppo.core_algos import register_adv_est

_log = logging.getLogger("kerneldyno.verl")

Estimator = Callable[..., tuple[Tensor, Tensor]]


def on_turns(name: str) -> Estimator:
    """Return an estimator in verl's form that applies `kerneldyno.training.advantages.ESTIMATORS[name]` to turns.

    Args:
        name: a key of `ESTIMATORS`.

    Returns:
        f(token_level_rewards, response_mask, index, config) -> (advantages, returns), with arguments by keyword:
        token_level_rewards: (B, L) float.
        response_mask: (B, L), 1 where the policy wrote the token.
        index: (B,) uids of the prompts.
        config: `config.algorithm`; `gamma` is used, and `rollout_correction` is checked.
        Other keywords that verl passes are ignored. Both results are (B, L) float32, 0 where the policy did not write.
        It raises SettingsError if rejection sampling on single tokens would split turns, or if there are no uids.
    """

    def estimate(
        token_level_rewards: Tensor,
        response_mask: Tensor,
        index: np.ndarray | None = None,
        config: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> tuple[Tensor, Tensor]:
        options = {} if config is None else config
        correction.refuse_split_turns(options.get("rollout_correction"))
        if index is None:
            raise SettingsError(f"{name} compares samples of one prompt, but the batch has no uid")
        turns = masks.turns_of(response_mask.bool())
        if int(turns.max()) < 0:
            return torch.zeros_like(token_level_rewards), torch.zeros_like(token_level_rewards)
        rewards, exists = by_turn(token_level_rewards, turns)
        dropped, void = marks.read(token_level_rewards, turns, rewards.shape[1])
        members = exists & ~void
        group = torch.as_tensor(np.unique(index.astype(str), return_inverse=True)[1], device=turns.device)
        gamma = float(options.get("gamma", 1.0))
        more = {"weights": tokens_of(turns, rewards.shape[1])} if name == "optimal_baseline" else {}
        estimated = advantages.estimate(name, rewards, members, group, gamma=gamma, **more).masked_fill(dropped, 0)
        returns = multi_turn_returns(rewards, members, gamma)
        return masks.to_tokens(estimated, turns), masks.to_tokens(returns, turns)

    estimate.__name__ = estimate.__qualname__ = f"{name}_on_turns"
    return estimate


def by_turn(token_level_rewards: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
    """Sum token-level rewards over turns.

    Args:
        token_level_rewards: (E, L) float.
        turns: (E, L) integer, the turn of each token, -1 outside.

    Returns:
        (E, T) rewards; (E, T) bool, True where a turn exists.
    """
    counts = turns.amax(dim=1) + 1
    rewards = token_level_rewards.new_zeros(len(turns), int(counts.max()))
    row, token = ((token_level_rewards != 0) & (turns >= 0)).nonzero(as_tuple=True)  # most tokens have none
    rewards.index_put_((row, turns[row, token]), token_level_rewards[row, token], accumulate=True)
    return rewards, torch.arange(rewards.shape[1], device=turns.device) < counts[:, None]


def tokens_of(turns: Tensor, columns: int) -> Tensor:
    """Count the tokens of each turn.

    Args:
        turns: (E, L) integer, the turn of each token, -1 outside.
        columns: number of turns of the longest episode, T.

    Returns:
        (E, T) int64.
    """
    return torch.stack([(turns == turn).sum(dim=1) for turn in range(columns)], dim=1)


def _register() -> None:
    for name in advantages.ESTIMATORS:
        register_adv_est(f"kerneldyno_{name}")(on_turns(name))
    try:
        register_adv_est("trloo")(on_turns("trloo"))
    except ValueError:
        _log.warning(
            "event=estimator_name_taken name=trloo detail=%r", "use kerneldyno_trloo for KernelDyno's estimator"
        )


_register()

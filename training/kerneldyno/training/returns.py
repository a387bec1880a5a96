"""Discounted returns over the turns of an episode."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import TrainingError
from .tables import check_table, result_type


def multi_turn_returns(rewards: Tensor, mask: Tensor, gamma: float = 1.0) -> Tensor:
    """Compute returns, the discounted rewards from turn t on: G[e, t] = R[e, t] + gamma * G[e, t + 1].

    A masked turn has a reward and a return of 0, but it is still a step in time: rewards after it reach the turns before it
    with one more discount. So padding may be on either side, and a void turn in the middle does not cut off later rewards.
    With `gamma=0` the return of each turn is its own reward.

    Source: Dr. Kernel, Eq. 2 (gamma 1); KernelGYM, core_algos.compute_multi_turn_returns.

    Args:
        rewards: (E, T), any floating type. Values where the mask is not set may be anything, NaN included.
        mask: (E, T), bool or integer: the turn exists and counts.
        gamma: discount for each turn, 0 <= gamma <= 1.

    Returns:
        (E, T), float32 (float64 for float64).

    Raises:
        ShapeError, MaskError, NotFiniteError: see `kerneldyno.training.errors`.
        TrainingError: `gamma` is not within 0..1.
    """
    if not 0.0 <= gamma <= 1.0:
        raise TrainingError(f"gamma={gamma} is not within 0..1")
    values, inside = check_table(rewards, mask, "rewards")
    returns = torch.empty_like(values)
    later = values.new_zeros(len(values))
    for turn in reversed(range(values.shape[1])):  # a loop over the few turns, vectorised over episodes
        later = values[:, turn] + gamma * later
        returns[:, turn] = later
    return torch.where(inside, returns, 0).to(result_type(rewards))

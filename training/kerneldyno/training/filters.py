"""Filters for groups without a training signal: if all samples of a prompt have the same reward, all advantages are 0."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import TrainingError
from .groups import statistics
from .masks import align
from .tables import check_table


@dataclass(frozen=True, slots=True)
class Filtered:
    """The episodes to train on, and the reason why each other group was dropped."""

    keep: Tensor
    """(E,) bool: True for episodes to train on; False for masked episodes, also those of a kept group."""
    kept: list[int]
    """Ids of the kept groups, ascending."""
    no_variance: list[int]
    """Ids of groups whose scores have a standard deviation below the threshold, ascending."""
    too_small: list[int]
    """Ids of groups with fewer members than the minimum, whatever their variance, ascending."""


def zero_variance(
    scores: Tensor, group: Tensor, *, mask: Tensor | None = None, threshold: float = 1e-3, min_size: int = 2
) -> Filtered:
    """Drop the groups whose scores do not differ, and those that are too small.

    Source: KernelGYM's unified_filter: threshold 1e-3 on the reward of the last turn (`last_turn`); it drops groups of n
    samples that have fewer than n // 2 + 1 left. KernelGYM also holds a short batch back to merge it with the next; leave
    that to the trainer.

    Args:
        scores: (E,), any floating type: one for each episode.
        group: (E,) integer ids.
        mask: (E,) bool or integer: episodes that count. Others are not members.
        threshold: drop groups whose standard deviation (of the members, N in its denominator) is below this.
        min_size: drop groups with fewer members than this. KernelGYM uses `n // 2 + 1`.

    Returns:
        See `Filtered`; a group without members is too small.

    Raises:
        ShapeError, MaskError, GroupError, NotFiniteError: see `kerneldyno.training.errors`.
        TrainingError: `min_size` or `threshold` cannot be used.
    """
    if min_size < 1 or threshold < 0:
        raise TrainingError(f"min_size={min_size}, threshold={threshold}: expected min_size >= 1, threshold >= 0")
    mask = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    values, inside = check_table(scores[:, None], mask[:, None], "scores")
    found = statistics(values, inside, group)
    small = (found.count < min_size)[:, 0]
    flat = ((found.spread / found.count.clamp(min=1)).sqrt() < threshold)[:, 0] & ~small
    keep = ~small & ~flat  # a masked episode has a count of 0

    kept, no_variance = set(group[keep].tolist()), set(group[flat].tolist())
    too_small = set(group.tolist()) - kept - no_variance
    return Filtered(keep, sorted(kept), sorted(no_variance), sorted(too_small))


def last_turn(rewards: Tensor, exists: Tensor) -> Tensor:
    """Return the reward of each episode's last turn.

    Args:
        rewards: (E, T), any floating type, padding on either side.
        exists: (E, T) bool or integer: the turn was played.

    Returns:
        (E,); 0 for an episode without turns.
    """
    values, inside = check_table(rewards, exists, "rewards")
    if not values.shape[1]:
        return values.new_zeros(len(values))
    return align(values, inside, "left")[:, -1] * inside.any(dim=1)

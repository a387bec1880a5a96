"""Groups that teach nothing: where all samples of a prompt earn the same, every baseline leaves an advantage of 0."""

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
    """Which episodes are left, and why the groups of the others are not."""

    keep: Tensor
    """(E,) bool: episodes to train on. Masked episodes of a kept group are not among them."""
    kept: list[int]
    """Group ids, ascending."""
    no_variance: list[int]
    """Groups whose scores have a standard deviation below the threshold."""
    too_small: list[int]
    """Groups with fewer members than the minimum, whatever their variance."""


def zero_variance(
    scores: Tensor, group: Tensor, *, mask: Tensor | None = None, threshold: float = 1e-3, min_size: int = 2
) -> Filtered:
    """Drops the groups whose scores do not differ, and those that are too small.

    Source: KernelGYM's unified_filter: threshold 1e-3 on the reward of the last turn (`last_turn`), groups of n
    samples that have fewer than n // 2 + 1 left. It also holds a short batch back to merge it with the next; that is
    the trainer's to do.

    Args:
        scores: (E,), any floating type: one for each episode.
        group: (E,) integer.
        mask: (E,) bool or integer: episodes that count. Others are no members.
        threshold: below this standard deviation (of the members, N in its denominator) a group is dropped.
        min_size: fewer members than this are too few. `n // 2 + 1` is KernelGYM's.

    Returns:
        See `Filtered`; a group without members is too small.
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
    """The reward of each episode's last turn, (E,); 0 for an episode without turns. Arguments (E, T), padding on
    either side."""
    values, inside = check_table(rewards, exists, "rewards")
    if not values.shape[1]:
        return values.new_zeros(len(values))
    return align(values, inside, "left")[:, -1] * inside.any(dim=1)

"""Statistics of the members of each (prompt, turn) group, from which baselines are computed.

Members are the unmasked cells of a table that share a group id and a turn. Masked cells are not members: they do not
change the statistics of others, and their own are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import ShapeError
from .tables import check_group


@dataclass(frozen=True)
class GroupStatistics:
    """Statistics of each cell's group, as (E, T) tables. All are 0 where the mask is not set."""

    count: Tensor
    """Number of members N, the cell itself included; in the type of the values."""
    mean: Tensor
    """Mean of the members."""
    spread: Tensor
    """Sum of the squared distances to the mean. The variance is spread / N, or spread / (N - 1) without bias."""


def statistics(values: Tensor, mask: Tensor, group: Tensor, turn: Tensor | None = None) -> GroupStatistics:
    """Compute count, mean and spread of each cell's group.

    Args:
        values: (E, T), finite where the mask is set.
        mask: (E, T) bool.
        group: (E,) integer ids; samples of one prompt have the same.
        turn: (E, T) integer, the turn of each cell within its episode. By default the column is the turn, which is right
            if padding is at the end; for padding at the start use `masks.turn_index`. Ignored where the mask is not set.

    Returns:
        Tables in the type of `values`.

    Raises:
        ShapeError, GroupError: see `kerneldyno.training.errors`.
    """
    cell, size = _cells(values, mask, group, turn)
    member = values[mask]
    count = values.new_zeros(size).index_add_(0, cell, torch.ones_like(member))
    mean = values.new_zeros(size).index_add_(0, cell, member) / count.clamp(min=1)
    spread = values.new_zeros(size).index_add_(0, cell, (member - mean[cell]).square())
    return GroupStatistics(*(_table(figure[cell], values, mask) for figure in (count, mean, spread)))


def weighted_sums(
    values: Tensor, weights: Tensor, mask: Tensor, group: Tensor, turn: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute the sum of the weights and the sum of weight * value of each cell's group.

    Args:
        values, mask, group, turn: as `statistics`.
        weights: (E, T) in the type of `values`.

    Returns:
        Two tables in the type of `values`, 0 where the mask is not set.
    """
    cell, size = _cells(values, mask, group, turn)
    weight = weights[mask]
    total = values.new_zeros(size).index_add_(0, cell, weight)
    product = values.new_zeros(size).index_add_(0, cell, weight * values[mask])
    return _table(total[cell], values, mask), _table(product[cell], values, mask)


def _cells(values: Tensor, mask: Tensor, group: Tensor, turn: Tensor | None) -> tuple[Tensor, int]:
    """Return the group number of each unmasked cell, in the order of the table, and an upper bound of these numbers."""
    episodes, columns = values.shape
    group = check_group(group, episodes)
    if turn is None:
        turn = torch.arange(columns, device=values.device).expand(episodes, columns)
    elif turn.shape != values.shape:
        raise ShapeError("turn", turn.shape, str((episodes, columns)))
    cell = (group[:, None] * columns + turn)[mask]
    if cell.numel() and bool(((turn[mask] < 0) | (turn[mask] >= columns)).any()):
        raise ShapeError("turn", turn.shape, f"values within 0..{columns - 1} where the mask is set")
    return cell, int(group.max()) * columns + columns if episodes else 0


def _table(member: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Write one number for each unmasked cell into a table like `values`."""
    return torch.zeros_like(values).masked_scatter_(mask, member)

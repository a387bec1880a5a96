"""Sums of tokens by turn and by episode, and the way back, for both layouts of tokens (see `masks`).

Tokens are many (768 rows of 8,192), so nothing here makes an index or a copy as large as they are: sums are made turn
by turn, which is also the same in every run on an accelerator, where a scatter is not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from .errors import GroupError, MaskError, ShapeError
from .tables import check_group, check_mask, precision


class TokenLayout:
    """Which turn and which episode the tokens of a batch belong to.

    Args:
        mask: (R, L) bool or integer: the tokens that count.
        turns: (R, L) integer, the turn of each token within its row; without it a row is one turn.
        episodes: (R,) integer, equal for the rows of one episode; without it a row is an episode of its own.

    Raises:
        ShapeError, MaskError, GroupError: see `kerneldyno.training.errors`; a token that counts but has no turn is a
        ShapeError.
    """

    def __init__(self, mask: Tensor, turns: Tensor | None = None, episodes: Tensor | None = None) -> None:
        if mask.dim() != 2:
            raise ShapeError("mask", mask.shape, "(rows, tokens)")
        self.mask = check_mask(mask, mask.shape)
        if turns is not None:
            if turns.is_floating_point():
                raise MaskError("turns", turns.dtype)
            if turns.shape != mask.shape:
                raise ShapeError("turns", turns.shape, f"{tuple(mask.shape)}, as mask")
        self._turns = turns
        self._columns = 1 if turns is None else max(1, int(turns.max()) + 1 if turns.numel() else 1)
        if episodes is not None and episodes.shape != mask.shape[:1]:
            raise GroupError(
                f"episodes has shape {tuple(episodes.shape)}; expected ({len(mask)},), one id for each row"
            )
        self._episodes = None if episodes is None else check_group(episodes, len(mask))
        if turns is not None and int(self.turn_tokens.sum()) != int(self.mask.sum()):
            raise ShapeError("turns", turns.shape, "a turn of 0 or more wherever the mask is set")

    @cached_property
    def turn_tokens(self) -> Tensor:
        """(R, T) float: how many tokens of each turn count. T is 1 where a row is a turn."""
        return self.by_turn(self.mask, lambda tokens: tokens.sum(dim=1)).to(precision(self.mask.device))

    @cached_property
    def episode_tokens(self) -> Tensor:
        """(R, 1): tokens of each row's episode."""
        return self.by_episode(self.turn_tokens)

    def turn_sums(self, values: Tensor) -> Tensor:
        """(R, T): sums over the tokens of each turn. `values` (R, L) is 0 where the mask is not set."""
        return self.by_turn(values, lambda tokens: tokens.sum(dim=1)).to(precision(values.device))

    def by_turn(self, values: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """(R, T): `reduce` ((R, L) -> (R,)) of the tokens of each turn, the others set to 0."""
        if self._turns is None:
            return reduce(values)[:, None]
        none = values.new_zeros(())
        columns = [reduce(torch.where(self._turns == turn, values, none)) for turn in range(self._columns)]
        return torch.stack(columns, dim=1)

    def by_episode(self, turns: Tensor) -> Tensor:
        """(R, 1): for each row, the sum over all turns of its episode."""
        rows = turns.sum(dim=1)
        if self._episodes is None:
            return rows[:, None]
        sums = rows.new_zeros(len(rows)).index_add_(0, self._episodes, rows)
        return sums[self._episodes][:, None]

    def one_per_episode(self, rows: Tensor) -> Tensor:
        """From what `by_episode` gives, the figures of the episodes that have tokens, once each."""
        if self._episodes is None:
            return rows[:, 0][self.turn_tokens.sum(dim=1) > 0]
        figures = rows.new_zeros(len(rows)).index_copy_(0, self._episodes, rows[:, 0])
        tokens = rows.new_zeros(len(rows)).index_copy_(0, self._episodes, self.episode_tokens[:, 0].to(rows.dtype))
        return figures[tokens > 0]

    def to_tokens(self, turns: Tensor) -> Tensor:
        """(R, T) or (R, 1) to tokens: (R, L), or (R, 1) that broadcasts where a row has one value."""
        if self._turns is None or turns.shape[1] == 1:
            return turns
        return turns.gather(1, self._turns.clamp(min=0).long())

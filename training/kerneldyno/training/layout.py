"""Sums of tokens by turn and by episode, and spreading over tokens, for both layouts of tokens (see `masks`).

There are many tokens (768 rows of 8,192) and few turns. So temporary tensors as large as the tokens are computed block by
block: a block of rows stays in a CPU's cache and bounds the memory on an accelerator. On a CPU, sums use scatter_add,
which is fastest there. Elsewhere they are computed turn by turn: an accelerator scatters in another order in every run,
so its results would differ in the last bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from .errors import GroupError, MaskError, ShapeError
from .tables import check_group, check_mask, precision

#: Tokens in a block: 1 MB of float32 on a CPU; 64 MB on an accelerator, where a block costs launches.
_BLOCK_TOKENS: Final = {"cpu": 2**18}
_BLOCK_TOKENS_ELSEWHERE: Final = 2**24


class TokenLayout:
    """The turn and the episode of each token of a batch.

    Args:
        mask: (R, L) bool or integer: the tokens that count.
        turns: (R, L) integer, the turn of each token within its row; without it a row is one turn.
        episodes: (R,) integer, equal for the rows of one episode; without it a row is an episode of its own.

    Raises:
        ShapeError: see `kerneldyno.training.errors`; also for a token that counts and has no turn.
        MaskError, GroupError: see `kerneldyno.training.errors`.
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
        self.columns = 1 if turns is None or not turns.numel() else max(1, int(turns.max()) + 1)
        """Largest number of turns T of a row; 1 if a row is a turn."""
        if episodes is not None and episodes.shape != mask.shape[:1]:
            raise GroupError(
                f"episodes has shape {tuple(episodes.shape)}; expected ({len(mask)},), one id for each row"
            )
        self._episodes = None if episodes is None else check_group(episodes, len(mask))
        if turns is not None and int(self.turn_tokens.sum()) != int(self.mask.count_nonzero()):
            raise ShapeError("turns", turns.shape, "a turn of 0 or more wherever the mask is set")

    def blocks(self) -> Iterator[slice]:
        """Yield slices of rows, one block at a time."""
        rows, length = self.mask.shape
        step = max(1, _BLOCK_TOKENS.get(self.mask.device.type, _BLOCK_TOKENS_ELSEWHERE) // max(length, 1))
        for start in range(0, rows, step):
            yield slice(start, start + step)

    def table(self) -> Tensor:
        """Return (R, T) zeros in the precision for sums."""
        return torch.zeros(len(self.mask), self.columns, device=self.mask.device, dtype=precision(self.mask.device))

    def by_turn(self, block: slice, values: Tensor) -> Tensor:
        """Sum values, or count bools, over the tokens of each turn: a block (r, L) to (r, T). Values are 0 where masked."""
        if self._turns is None:
            return values.sum(dim=1, keepdim=True)
        sums = scattered if values.device.type == "cpu" else turn_by_turn
        return sums(values, self._turns[block], self.columns)

    def to_tokens(self, block: slice, turns: Tensor) -> Tensor:
        """Spread a table (R, T) or (R, 1) over the tokens of a block: (r, L), or (r, 1), which broadcasts."""
        if self._turns is None or turns.shape[1] == 1:
            return turns[block]
        return turns[block].gather(1, self._turns[block].clamp(min=0).long())

    @cached_property
    def turn_tokens(self) -> Tensor:
        """(R, T): number of tokens of each turn that count."""
        counts = self.table()
        for block in self.blocks():
            counts[block] = self.by_turn(block, self.mask[block])
        return counts

    @cached_property
    def episode_tokens(self) -> Tensor:
        """(R, 1): number of tokens of each row's episode that count."""
        return self.by_episode(self.turn_tokens)

    def by_episode(self, turns: Tensor) -> Tensor:
        """Sum over all turns of each row's episode: (R, T) to (R, 1)."""
        rows = turns.sum(dim=1)
        if self._episodes is None:
            return rows[:, None]
        sums = rows.new_zeros(len(rows)).index_add_(0, self._episodes, rows)
        return sums[self._episodes][:, None]

    def one_per_episode(self, rows: Tensor) -> Tensor:
        """Return one number for each episode that has tokens, from a result of `by_episode`, (R, 1)."""
        if self._episodes is None:
            return rows[:, 0][self.episode_tokens[:, 0] > 0]
        figures = rows.new_zeros(len(rows)).index_copy_(0, self._episodes, rows[:, 0])
        tokens = rows.new_zeros(len(rows)).index_copy_(0, self._episodes, self.episode_tokens[:, 0].to(rows.dtype))
        return figures[tokens > 0]


def scattered(values: Tensor, turns: Tensor, columns: int) -> Tensor:
    """Sum by turn in one pass: (r, L) to (r, columns)."""
    sums = torch.zeros(len(turns), columns + 1, device=values.device, dtype=precision(values.device))
    return sums.scatter_add_(1, turns.clamp(min=-1).long() + 1, values.to(sums.dtype))[:, 1:]


def turn_by_turn(values: Tensor, turns: Tensor, columns: int) -> Tensor:
    """Sum by turn like `scattered`, with one pass for each turn."""
    none = values.new_zeros(())
    return torch.stack([torch.where(turns == turn, values, none).sum(dim=1) for turn in range(columns)], dim=1)

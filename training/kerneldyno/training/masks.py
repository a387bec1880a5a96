"""Masks of turns that count, positions of turns in a padded table, and the turn that each token belongs to.

Two layouts of tokens are in use, and every function that takes tokens accepts both:
    one row for each turn (KernelGYM's): tokens (R, L) with `episodes` (R,), the episode of each row, and no turn ids
    one row for each episode (verl's): tokens (R, L) with `turns` (R, L), the turn of each token, -1 where the policy
    did not write
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from .errors import MaskError, OptionError, ShapeError
from .tables import check_mask, check_table


def turn_mask(rewards: Tensor, exists: Tensor, *, void_turns: bool = True, failed: Tensor | None = None) -> Tensor:
    """Return the turns that count in training: those that exist, without void turns and those of failed episodes.

    A turn is void if it regressed: an earlier turn of its episode had a reward above 0 and its own reward is <= 0. Masking
    void turns removes negative examples: the policy gets no signal that it broke working code. It is the default because it
    is KernelGYM's; `void_turns=False` keeps such turns.

    Source: KernelGYM, vllm_async_engine.py (mask_void_turn); absent from the Dr. Kernel paper.

    Args:
        rewards: (E, T), any floating type.
        exists: (E, T) bool or integer, padding on either side.
        void_turns: whether to mask regressions.
        failed: (E,) bool or integer: episodes that an infrastructure failure ended. None of their turns counts.

    Returns:
        (E, T) bool.

    Raises:
        ShapeError, MaskError, NotFiniteError: see `kerneldyno.training.errors`.
    """
    if failed is not None:
        exists = check_mask(exists, rewards.shape, "exists") & ~check_mask(failed, rewards.shape[:1], "failed")[:, None]
    values, mask = check_table(rewards, exists, "rewards")
    if not void_turns:
        return mask
    best = torch.where(mask, values, -torch.inf).cummax(dim=1).values
    earlier = torch.nn.functional.pad(best, (1, 0), value=-torch.inf)[:, :-1]
    return mask & ~((earlier > 0) & (values <= 0))


def turn_index(exists: Tensor) -> Tensor:
    """Return the number of each turn within its episode, from 0; -1 where there is none. Padding may be on either side.

    Args:
        exists: (E, T) bool or integer: the turn was played, whether it counts or not. (Do not give a mask without void
            turns: the numbers would shift.)

    Returns:
        (E, T) int64.
    """
    played = check_mask(exists, exists.shape, "exists")
    return torch.where(played, played.long().cumsum(dim=1) - 1, -1)


def align(table: Tensor, exists: Tensor, side: Literal["left", "right"] = "right") -> Tensor:
    """Move the padding of a table to `side`; the order of turns stays.

    Args:
        table: (E, T), any type.
        exists: (E, T) bool or integer.
        side: where to put the padding.

    Returns:
        (E, T) like `table`. `align(exists, exists, side)` is the mask that belongs to it.
    """
    if side not in ("left", "right"):
        raise OptionError("side", side, ("left", "right"))
    played = check_mask(exists, table.shape, "exists")
    order = torch.argsort(played.to(torch.uint8), dim=1, stable=True, descending=side == "right")
    return table.gather(1, order)


def turns_of(response_mask: Tensor) -> Tensor:
    """Return the turn of each token: turns are the runs of ones, counted from 0; -1 outside.

    Padding and the environment's messages are zeros, on either side and in between. Rejecting single tokens splits runs, so
    give the mask as it was before any rejection.

    Args:
        response_mask: (R, L), bool or integer; 1 where the policy wrote the token.

    Returns:
        (R, L) int64.
    """
    if response_mask.dim() != 2:
        raise ShapeError("response_mask", response_mask.shape, "(rows, tokens)")
    written = check_mask(response_mask, response_mask.shape, "response_mask")
    begins = written.clone()
    begins[:, 1:] &= ~written[:, :-1]
    return begins.cumsum(dim=1).sub_(1).masked_fill_(~written, -1)


def to_tokens(table: Tensor, turns: Tensor, episodes: Tensor | None = None) -> Tensor:
    """Spread one value for each turn over the tokens of that turn.

    Args:
        table: (E, T), any type: advantages, or the turns to keep.
        turns: (R, L) integer, the turn of each token; a negative one is no turn and gives 0 (False). With one row for each
            turn also (R,): then every token of the row has the value, padding included.
        episodes: (R,) integer, the episode (row of `table`) of each row. Without it row r is episode r.

    Returns:
        (R, L) like `table`; for `turns` (R,) it is (R, 1), which broadcasts without taking memory.

    Raises:
        ShapeError: the table lacks a turn or an episode, or shapes do not fit.
        MaskError: ids are of a floating-point type.
    """
    if table.dim() != 2:
        raise ShapeError("table", table.shape, "(episodes, turns)")
    if turns.is_floating_point():
        raise MaskError("turns", turns.dtype)
    if turns.dim() == 1:
        turns = turns[:, None]
    if turns.dim() != 2:
        raise ShapeError("turns", turns.shape, "(rows, tokens) or (rows,)")
    if turns.numel() and int(turns.max()) >= table.shape[1]:
        raise ShapeError("table", table.shape, f"a column for each turn: the tokens have {int(turns.max()) + 1} turns")
    rows = table if episodes is None else table[episodes]
    if len(rows) != len(turns):
        raise ShapeError("turns", turns.shape, f"{len(rows)} rows; give the episode of each row by `episodes`")
    return rows.gather(1, turns.clamp(min=0).long()).masked_fill_(turns < 0, 0)

"""Which turns count, where turns stand in a padded table, and which turn a token belongs to.

Two layouts of tokens are in use, and every function that takes tokens takes both:
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
    """The turns that count in training: those that exist, less the void ones and those of failed episodes.

    A turn is void if it regressed: an earlier turn of its episode had a reward above 0 and it has none (reward <= 0).
    This takes negative examples away: a policy that breaks what worked is not told so. It is KernelGYM's default
    and therefore here; `void_turns=False` leaves such turns in.

    Source: KernelGYM, vllm_async_engine.py (mask_void_turn); absent from the Dr. Kernel paper.

    Args:
        rewards: (E, T), any floating type.
        exists: (E, T) bool or integer, padding on either side.
        void_turns: whether regressions are masked.
        failed: (E,) bool or integer; episodes that infrastructure ended. None of their turns counts.

    Returns:
        (E, T) bool.
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
    """Which turn of its episode each cell is, counted from 0; -1 where there is none. Padding may stand on either side.

    Args:
        exists: (E, T) bool or integer: the turn was played, whether it counts or not. (Of a mask with void turns the
            numbers would shift.)

    Returns:
        (E, T) int64.
    """
    played = check_mask(exists, exists.shape, "exists")
    return torch.where(played, played.long().cumsum(dim=1) - 1, -1)


def align(table: Tensor, exists: Tensor, side: Literal["left", "right"] = "right") -> Tensor:
    """The same table with its padding moved to `side`; the order of turns stays.

    Args:
        table: (E, T), any type.
        exists: (E, T) bool or integer.
        side: where the padding shall stand.

    Returns:
        (E, T) like `table`. `align(exists, exists, side)` is the mask that belongs to it.
    """
    if side not in ("left", "right"):
        raise OptionError("side", side, ("left", "right"))
    played = check_mask(exists, table.shape, "exists")
    order = torch.argsort(played.to(torch.uint8), dim=1, stable=True, descending=side == "right")
    return table.gather(1, order)


def turns_of(response_mask: Tensor) -> Tensor:
    """Which turn each token belongs to: turns are the runs of ones, counted from 0; -1 outside.

    Padding and the environment's messages are zeros, on either side and in between. A mask out of which single tokens
    have been rejected splits turns: take the turns from the mask as it was before.

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
    """Spreads a value for each turn over the tokens of that turn.

    Args:
        table: (E, T), any type: advantages, or what to keep.
        turns: (R, L) integer, the turn of each token; anything negative is no turn and becomes 0 (False). With one
            row for each turn also (R,): then every token of the row has the value, padding included.
        episodes: (R,) integer, the episode (row of `table`) of each row. Without it row r is episode r.

    Returns:
        (R, L) like `table`; for `turns` (R,) it is (R, 1), which broadcasts without taking memory.

    Raises:
        ShapeError: a turn or an episode that the table does not have, or shapes that do not fit.
        MaskError: ids of floating point.
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
        raise ShapeError("turns", turns.shape, f"{len(rows)} rows; `episodes` says which episode each row is of")
    return rows.gather(1, turns.clamp(min=0).long()).masked_fill_(turns < 0, 0)

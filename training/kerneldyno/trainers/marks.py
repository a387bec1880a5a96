"""Marks that carry a decision about a turn from the agent loop to the estimator.

verl's default trainer (V1) passes only the token-level rewards and the response mask of each sample to an estimator, and no
extra column that could say "drop this turn". So the mark is stored in the rewards: the first token of the turn has a
number that is too small to matter in any sum (2 to the power of -100 and less), while the reward is on the last token. It
survives padding, nesting and multiplication with the mask. A KL penalty in the reward would overwrite it, so
`kerneldyno.verl.agent_loop.check` raises for that combination.

A turn of one token is never marked, because its first token is its last. (No kernel fits into one token.)
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch import Tensor


class Mark(Enum):
    """How to treat a turn in training."""

    KEPT = 0.0
    """Train on it."""
    DROPPED = 2.0**-100
    """Rejected for its coverage (PRS): its advantage is 0, and it stays in the baseline of the other turns."""
    VOID = 2.0**-101
    """It regressed: its advantage is 0, and it is not a member of any group."""


#: A positive number below this limit is a mark; no reward is that small.
LIMIT: Final = 2.0**-90


def read(token_level_rewards: Tensor, turns: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return which turns are marked.

    Args:
        token_level_rewards: (E, L), as passed by the trainer.
        turns: (E, L) integer, the turn of each token, -1 outside.
        count: number of turns of the longest episode, T.

    Returns:
        (E, T) bool, True for dropped turns; (E, T) bool, True for void turns.
    """
    import torch  # making marks needs no torch

    tiny = (token_level_rewards > 0) & (token_level_rewards < LIMIT) & (turns >= 0)
    row, token = tiny.nonzero(as_tuple=True)  # marks are few, so this costs one pass over the tokens
    value, turn = token_level_rewards[row, token], turns[row, token]

    def marked(mark: Mark) -> Tensor:
        found = torch.zeros(len(turns), count, dtype=torch.bool, device=turns.device)
        hit = value == mark.value
        found[row[hit], turn[hit]] = True
        return found

    return marked(Mark.DROPPED), marked(Mark.VOID)

"""How a decision about a turn travels from the agent loop to the estimator.

verl's default trainer (V1) hands an estimator the token-level rewards and the response mask of each sample, and nothing
else: no column of its own can carry "drop this turn". So the decision rides on the rewards: the first token of the turn
holds a number that is far too small to matter in any sum (2 to the power of -100 and less), while the reward is on the
last token. It survives padding, nesting and multiplication with the mask; it does not survive a KL penalty in the
reward, which `settings.check` therefore refuses together with it.

A turn of one token has no first token beside its last, and is never marked. (No kernel fits into one token.)
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch import Tensor


class Mark(Enum):
    """What is to become of a turn in training."""

    KEPT = 0.0
    """It is trained on."""
    DROPPED = 2.0**-100
    """Rejected by its coverage (PRS): its advantage is 0, and it stays in the baseline of the others."""
    VOID = 2.0**-101
    """It regressed: its advantage is 0, and it is no member of any group."""


#: Everything smaller and not 0 is a mark; no reward is.
LIMIT: Final = 2.0**-90


def read(token_level_rewards: Tensor, turns: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Tells which turns are marked.

    Args:
        token_level_rewards: (E, L), as the trainer hands it over.
        turns: (E, L) integer, the turn of each token, -1 outside.
        count: turns of the longest episode, T.

    Returns:
        (E, T) bool, dropped; (E, T) bool, void.
    """
    import torch  # whoever only makes marks does without

    tiny = (token_level_rewards > 0) & (token_level_rewards < LIMIT) & (turns >= 0)
    row, token = tiny.nonzero(as_tuple=True)  # few: reading them is a pass over the tokens, and no more
    value, turn = token_level_rewards[row, token], turns[row, token]

    def marked(mark: Mark) -> Tensor:
        found = torch.zeros(len(turns), count, dtype=torch.bool, device=turns.device)
        hit = value == mark.value
        found[row[hit], turn[hit]] = True
        return found

    return marked(Mark.DROPPED), marked(Mark.VOID)

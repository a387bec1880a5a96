"""Advantage estimators over (prompt, turn) groups, and their way to tokens.

All take (returns, mask, group) and give an (E, T) table; 0 where the mask is not set. Members of a group are the
unmasked cells of one prompt and one turn. None looks at tokens, so a turn that MRS or PRS rejects later still belongs
to its group's baseline, as in KernelGYM.

`estimate` is the way from rewards; the functions are the way from returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import torch
from torch import Tensor

from .errors import OptionError, ShapeError, TrainingError
from .groups import statistics
from .masks import to_tokens as to_tokens
from .returns import multi_turn_returns
from .tables import check_table, result_type

#: What a group of one has: "return" = its return (a baseline of 0, as KernelGYM and verl have it), "zero" = nothing to
#: learn from.
Singleton = Literal["return", "zero"]


def trloo(
    returns: Tensor, mask: Tensor, group: Tensor, *, turn: Tensor | None = None, singleton: Singleton = "return"
) -> Tensor:
    """Turn-level REINFORCE with a leave-one-out baseline: A = G_i - mean of the others' G.

    Equal to N / (N - 1) * (G_i - mean G), N members in the group.

    Unbiased: no sample is in its own baseline. GRPO's self-including mean shrinks the expected gradient of a group by
    1 - 1/N, which weighs small groups less where N differs between prompts and turns.

    Source: Dr. Kernel, Eq. 5; KernelGYM, core_algos.py (the rule for N = 1, which the paper leaves open).

    Args:
        returns: (E, T), any floating type; see `returns.multi_turn_returns`.
        mask: (E, T) bool or integer: which turns count.
        group: (E,) integer, equal for the samples of one prompt.
        turn: (E, T) integer, the turn of each cell where padding stands at the start (`masks.turn_index`); the column
            otherwise.
        singleton: what a group of one member has.

    Returns:
        (E, T), float32 (float64 for float64).

    Raises:
        ShapeError, MaskError, GroupError, NotFiniteError, OptionError: see `kerneldyno.training.errors`.
    """
    values, inside = check_table(returns, mask, "returns")
    found = statistics(values, inside, group, turn)
    advantages = (values - found.mean) * found.count / (found.count - 1).clamp(min=1)
    return _finish(advantages, values, found.count, singleton, returns)


def grpo(
    returns: Tensor,
    mask: Tensor,
    group: Tensor,
    *,
    turn: Tensor | None = None,
    singleton: Singleton = "return",
    normalize: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    """Group-relative: A = G_i - mean G, the sample itself in the mean; divided by std + eps with `normalize`.

    Its expected gradient is (1 - 1/N) of the true one without `normalize`, and no multiple of it with.

    Source: Dr. Kernel, Eq. 3 and KernelGYM (no division); DeepSeekMath for the division, with the unbiased std that
    verl and TRL take; the mean without the division is also Dr. GRPO's.

    Args, returns and raises as `trloo`, and
        normalize: divide by the standard deviation of the group (N - 1 in its denominator).
        eps: added to it, above 0.
    """
    if not eps > 0:
        raise TrainingError(f"eps={eps} must be above 0: a group whose returns are all equal has no deviation")
    values, inside = check_table(returns, mask, "returns")
    found = statistics(values, inside, group, turn)
    advantages = values - found.mean
    if normalize:
        advantages = advantages / ((found.spread / (found.count - 1).clamp(min=1)).sqrt() + eps)
    return _finish(advantages, values, found.count, singleton, returns)


def turn_independent_grpo(
    rewards: Tensor,
    mask: Tensor,
    group: Tensor,
    *,
    turn: Tensor | None = None,
    singleton: Singleton = "return",
    normalize: bool = True,
    eps: float = 1e-6,
) -> Tensor:
    """GRPO on each turn's immediate **reward**, as if turns were prompts of their own: nothing later counts for an
    earlier turn.

    The first argument is the rewards (which are the returns with gamma 0).

    Source: KernelGYM, kernel_trainer.py, where it is one of the estimators to compare with.

    Args, returns and raises as `grpo`.
    """
    return grpo(rewards, mask, group, turn=turn, singleton=singleton, normalize=normalize, eps=eps)


def rloo(
    returns: Tensor, mask: Tensor, group: Tensor, *, turn: Tensor | None = None, singleton: Singleton = "return"
) -> Tensor:
    """Leave-one-out over whole episodes: one score for each episode, the same advantage for all its turns.

    The score is the return of the first turn that counts: with gamma 1, the sum of the rewards. Episodes with no such
    turn are no members.

    Source: Ahmadian et al. 2024 (arXiv 2402.14740).

    Args, returns and raises as `trloo`; `turn` is not used.
    """
    values, inside = check_table(returns, mask, "returns")
    if not values.shape[1]:
        return values.to(result_type(returns))
    first = inside.to(torch.uint8).argmax(dim=1, keepdim=True)
    scores, members = values.gather(1, first), inside.any(dim=1, keepdim=True)
    found = statistics(scores, members, group)
    advantages = (scores - found.mean) * found.count / (found.count - 1).clamp(min=1)
    return torch.where(inside, _finish(advantages, scores, found.count, singleton, returns), 0)


def reinforce(
    returns: Tensor, mask: Tensor, group: Tensor, *, turn: Tensor | None = None, singleton: Singleton = "return"
) -> Tensor:
    """REINFORCE without a baseline: A = G. Unbiased, and noisy.

    Args, returns and raises as `trloo`; only `returns` and `mask` are used.
    """
    values, _ = check_table(returns, mask, "returns")
    return values.to(result_type(returns))


def reinforce_pp(
    returns: Tensor,
    mask: Tensor,
    group: Tensor,
    *,
    turn: Tensor | None = None,
    singleton: Singleton = "return",
    tokens: Tensor | None = None,
    eps: float = 1e-8,
) -> Tensor:
    """REINFORCE++: returns whitened over the whole batch, prompts and turns together; A = (G - mean) / sqrt(var + eps).

    Source: Hu et al. 2025 (arXiv 2501.03262); verl whitens over tokens, so long turns weigh more: `tokens` does the
    same.

    Args, returns and raises as `trloo`; `group`, `turn` and `singleton` are not used, and
        tokens: (E, T), how many tokens each turn has; every turn counts once without it.
        eps: added to the (unbiased) variance. A batch of fewer than two has nothing to be compared with: 0.
    """
    values, inside = check_table(returns, mask, "returns")
    weights = inside.to(values.dtype)
    if tokens is not None:
        if tokens.shape != values.shape:
            raise ShapeError("tokens", tokens.shape, str(tuple(values.shape)))
        weights = torch.where(inside, tokens, 0).to(values.dtype)
    total = weights.sum()
    mean = (weights * values).sum() / total.clamp(min=1)
    variance = (weights * (values - mean).square()).sum() / (total - 1).clamp(min=1)
    advantages = (values - mean) * torch.rsqrt(variance + eps)
    return torch.where(inside & (total > 1), advantages, 0).to(result_type(returns))


#: Estimators by name. The first argument of all is the returns, except for `turn_independent_grpo`: the rewards.
ESTIMATORS: Final[dict[str, Callable[..., Tensor]]] = {
    "trloo": trloo,
    "grpo": grpo,
    "turn_independent_grpo": turn_independent_grpo,
    "rloo": rloo,
    "reinforce": reinforce,
    "reinforce_pp": reinforce_pp,
}


def estimate(name: str, rewards: Tensor, mask: Tensor, group: Tensor, *, gamma: float = 1.0, **options: Any) -> Tensor:
    """Advantages straight from the rewards, by the name of an estimator.

    Args:
        name: a key of `ESTIMATORS`.
        rewards: (E, T).
        mask: (E, T) bool or integer.
        group: (E,) integer.
        gamma: discount; `turn_independent_grpo` has none.
        options: keywords of the estimator.

    Returns:
        (E, T).
    """
    if name not in ESTIMATORS:
        raise OptionError("estimator", name, ESTIMATORS)
    immediate = name == "turn_independent_grpo"
    return ESTIMATORS[name](multi_turn_returns(rewards, mask, 0.0 if immediate else gamma), mask, group, **options)


def _finish(advantages: Tensor, values: Tensor, count: Tensor, singleton: Singleton, given: Tensor) -> Tensor:
    """Groups of one, and the type that the caller gets; where there is no member the values are 0 already."""
    if singleton not in ("return", "zero"):
        raise OptionError("singleton", singleton, ("return", "zero"))
    alone = values if singleton == "return" else torch.zeros_like(values)
    return torch.where(count == 1, alone, advantages).to(result_type(given))

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

from .errors import NotFiniteError, OptionError, ShapeError, TrainingError
from .groups import GroupStatistics, statistics, weighted_sums
from .layout import TokenLayout
from .masks import to_tokens as to_tokens
from .returns import multi_turn_returns
from .tables import check_table, precision, result_type

#: What a group of one has: "return" = its return (a baseline of 0, as KernelGYM and verl have it), "zero" = nothing to
#: learn from.
Singleton = Literal["return", "zero"]

#: Weights of the others below this share of the group's are rounding errors of a difference.
_NEGLIGIBLE: Final = 1e-12


def trloo(
    returns: Tensor,
    mask: Tensor,
    group: Tensor,
    *,
    turn: Tensor | None = None,
    singleton: Singleton = "return",
    normalize: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    """Turn-level REINFORCE with a leave-one-out baseline: A = G_i - mean of the others' G.

    Equal to N / (N - 1) * (G_i - mean G), N members in the group.

    Unbiased: no sample is in its own baseline. GRPO's self-including mean shrinks the expected gradient of a group by
    1 - 1/N, which weighs small groups less where N differs between prompts and turns.

    With `normalize` (the estimator "trloo_norm") A is divided by the group's standard deviation + eps. Prompts with large
    and with small rewards then move the policy by similar amounts. The price is the guarantee above: the deviation depends
    on the sample itself, so the expected gradient is no multiple of the true one.

    Source: Dr. Kernel, Eq. 5; KernelGYM, core_algos.py (the rule for N = 1, which the paper leaves open). The normalised
    form is ours, made as `grpo` divides; KernelGYM names one (erloo_norm) that its released runs do not use.

    Args:
        returns: (E, T), any floating type; see `returns.multi_turn_returns`.
        mask: (E, T) bool or integer: which turns count.
        group: (E,) integer, equal for the samples of one prompt.
        turn: (E, T) integer, the turn of each cell where padding stands at the start (`masks.turn_index`); the column
            otherwise.
        singleton: what a group of one member has; it is never divided.
        normalize: divide by the standard deviation of the group (N - 1 in its denominator).
        eps: added to it, above 0.

    Returns:
        (E, T), float32 (float64 for float64).

    Raises:
        ShapeError, MaskError, GroupError, NotFiniteError, OptionError: see `kerneldyno.training.errors`.
        TrainingError: eps is not above 0.
    """
    _check_eps(eps)
    values, inside = check_table(returns, mask, "returns")
    found = statistics(values, inside, group, turn)
    advantages = _leave_one_out(values, found, normalize=normalize, eps=eps)
    return _finish(advantages, values, found.count, singleton, returns)


def trloo_norm(
    returns: Tensor,
    mask: Tensor,
    group: Tensor,
    *,
    turn: Tensor | None = None,
    singleton: Singleton = "return",
    eps: float = 1e-6,
) -> Tensor:
    """`trloo` with `normalize`: divided by the group's standard deviation. Args, returns and raises as `trloo`."""
    return trloo(returns, mask, group, turn=turn, singleton=singleton, normalize=True, eps=eps)


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
    _check_eps(eps)
    values, inside = check_table(returns, mask, "returns")
    found = statistics(values, inside, group, turn)
    advantages = values - found.mean
    if normalize:
        advantages = advantages / (_deviation(found) + eps)
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
    returns: Tensor,
    mask: Tensor,
    group: Tensor,
    *,
    turn: Tensor | None = None,
    singleton: Singleton = "return",
    normalize: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    """Leave-one-out over whole episodes: one score for each episode, the same advantage for all its turns.

    The score is the return of the first turn that counts: with gamma 1, the sum of the rewards. Episodes with no such
    turn are no members. With `normalize` (the estimator "rloo_norm") the advantage is divided by the standard deviation
    of the group's scores + eps, which is biased as it is in `trloo`.

    Source: Ahmadian et al. 2024 (arXiv 2402.14740).

    Args, returns and raises as `trloo`; `turn` is not used.
    """
    _check_eps(eps)
    values, inside = check_table(returns, mask, "returns")
    if not values.shape[1]:
        return values.to(result_type(returns))
    first = inside.to(torch.uint8).argmax(dim=1, keepdim=True)
    scores, members = values.gather(1, first), inside.any(dim=1, keepdim=True)
    found = statistics(scores, members, group)
    advantages = _leave_one_out(scores, found, normalize=normalize, eps=eps)
    return torch.where(inside, _finish(advantages, scores, found.count, singleton, returns), 0)


def rloo_norm(
    returns: Tensor,
    mask: Tensor,
    group: Tensor,
    *,
    turn: Tensor | None = None,
    singleton: Singleton = "return",
    eps: float = 1e-6,
) -> Tensor:
    """`rloo` with `normalize`: divided by the group's standard deviation. Args, returns and raises as `rloo`."""
    return rloo(returns, mask, group, turn=turn, singleton=singleton, normalize=True, eps=eps)


def remax(
    returns: Tensor,
    mask: Tensor,
    group: Tensor,
    *,
    greedy: Tensor,
    turn: Tensor | None = None,
    singleton: Singleton = "return",
) -> Tensor:
    """ReMax: A = G - the return of one greedy rollout of the same prompt.

    Unbiased: the greedy rollout does not depend on what the sample did. It costs one more rollout for each prompt, and
    works with a single sample.

    Source: Li et al. 2023 (arXiv 2310.10505), for one turn. For several turns, `greedy` may hold the greedy episode's
    return from each turn on: its first turn compares equal states; later turns compare different ones, which is still
    unbiased.

    Args, returns and raises as `trloo` (`group`, `turn` and `singleton` are not used), and
        greedy: (E, T), or (E,) or (E, 1) with one value for each episode: the return of the greedy rollout of this
            episode's prompt, 0 where that rollout had no such turn. Looked at where the mask is set.
    """
    values, inside = check_table(returns, mask, "returns")
    if greedy.dim() == 1:
        greedy = greedy[:, None]
    if greedy.shape not in (values.shape, (len(values), 1)):
        raise ShapeError("greedy", greedy.shape, f"{tuple(values.shape)}, ({len(values)}, 1) or ({len(values)},)")
    baseline, _ = check_table(greedy.expand_as(values), inside, "greedy")
    return (values - baseline).to(result_type(returns))


def optimal_baseline(
    returns: Tensor,
    mask: Tensor,
    group: Tensor,
    *,
    turn: Tensor | None = None,
    singleton: Singleton = "return",
    weights: Tensor | None = None,
    leave_one_out: bool = True,
) -> Tensor:
    """A = G_i - b with the baseline of least variance: b = sum w_j G_j / sum w_j, w = squared norm of grad log pi.

    Of all constants b, this one makes the variance of grad log pi * (G - b) least: set the derivative of
    E[w (G - b)^2] to 0. The exact w would need one backward pass for each sample, so a proxy takes its place: the number
    of tokens (gradients of single tokens are about orthogonal and equally long), or `score_norms`.

    With `leave_one_out` b is of the *others*, which keeps the gradient unbiased. Without it the sample is in its own
    baseline, as published; for equal weights that is the mean of `grpo` and its factor 1 - 1/N.

    Source: Greensmith et al. 2004 (JMLR 5) for the optimum; Hao et al. 2025 (arXiv 2505.23585, OPO) for length as the
    weight and for whole episodes. Here it is for each turn.

    Args, returns and raises as `trloo`, and
        weights: (E, T) or (E,), at least 0: tokens of each turn, or what `score_norms` gives. None: all equal, which is
            `trloo` (and `grpo` without `leave_one_out`). Where the weights that b is made of are all 0, they count as equal.
        leave_one_out: see above.
    """
    values, inside = check_table(returns, mask, "returns")
    found = statistics(values, inside, group, turn)
    weight = _weights(weights, inside)
    total, product = weighted_sums(values, weight, inside, group, turn)
    if leave_one_out:
        others, count = total - weight, (found.count - 1).clamp(min=1)
        plain = (found.mean * found.count - values) / count
        baseline = torch.where(others > _NEGLIGIBLE * total, (product - weight * values) / others, plain)
    else:
        baseline = torch.where(total > 0, product / total, found.mean)
    advantages = torch.where(inside, values - baseline, 0)
    return _finish(advantages, values, found.count, singleton, returns)


def score_norms(log_probs: Tensor, sum_pi_squared: Tensor, mask: Tensor, *, turns: Tensor | None = None) -> Tensor:
    """Proxy of the squared gradient norm of each turn, as weights of `optimal_baseline`.

    The gradient of log pi(a) by the logits of one token is e_a - pi, and its squared norm is
    1 - 2 pi(a) + sum_v pi(v)^2. These are summed over the tokens of a turn, as if gradients of different tokens were
    orthogonal.

    Source: the identity above; verl's optimal_token_baseline takes the same proxy for each token.

    Args:
        log_probs: (R, L), of the tokens that were written.
        sum_pi_squared: (R, L), sum of the squared probabilities of the whole vocabulary at each token.
        mask: (R, L) bool or integer: the tokens that count.
        turns: (R, L) integer, see `masks.turns_of`; without it a row is a turn.

    Returns:
        (R, T) in the precision of tables, at least 0; T is 1 where a row is a turn.

    Raises:
        ShapeError, MaskError, NotFiniteError: see `kerneldyno.training.errors`.
    """
    layout = TokenLayout(mask, turns)
    for name, given in (("log_probs", log_probs), ("sum_pi_squared", sum_pi_squared)):
        if given.shape != layout.mask.shape:
            raise ShapeError(name, given.shape, f"{tuple(layout.mask.shape)}, as mask")
    sums = layout.table()
    for block in layout.blocks():
        norm = 1 - 2 * log_probs[block].to(sums.dtype).exp() + sum_pi_squared[block].to(sums.dtype)
        sums[block] = layout.by_turn(block, norm.clamp(min=0).masked_fill(~layout.mask[block], 0))
    if not bool(sums.isfinite().all()):
        raise NotFiniteError("log_probs or sum_pi_squared", "the mask is set")
    return sums


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
    "trloo_norm": trloo_norm,
    "grpo": grpo,
    "turn_independent_grpo": turn_independent_grpo,
    "rloo": rloo,
    "rloo_norm": rloo_norm,
    "optimal_baseline": optimal_baseline,
    "reinforce": reinforce,
    "reinforce_pp": reinforce_pp,
}
#: Those that need more than returns, a mask and groups: `remax` wants the keyword `greedy`.
_WITH_MORE: Final[dict[str, Callable[..., Tensor]]] = {"remax": remax}


def estimate(name: str, rewards: Tensor, mask: Tensor, group: Tensor, *, gamma: float = 1.0, **options: Any) -> Tensor:
    """Advantages straight from the rewards, by the name of an estimator.

    Args:
        name: a key of `ESTIMATORS`, or "remax" (whose option `greedy` holds returns).
        rewards: (E, T).
        mask: (E, T) bool or integer.
        group: (E,) integer.
        gamma: discount; `turn_independent_grpo` has none.
        options: keywords of the estimator.

    Returns:
        (E, T).
    """
    known = {**ESTIMATORS, **_WITH_MORE}
    if name not in known:
        raise OptionError("estimator", name, known)
    immediate = name == "turn_independent_grpo"
    return known[name](multi_turn_returns(rewards, mask, 0.0 if immediate else gamma), mask, group, **options)


def _check_eps(eps: float) -> None:
    if not eps > 0:
        raise TrainingError(f"eps={eps} must be above 0: a group whose returns are all equal has no deviation")


def _leave_one_out(values: Tensor, found: GroupStatistics, *, normalize: bool, eps: float) -> Tensor:
    """Each value less the mean of the others of its group; by the group's deviation if it is to be normalised."""
    advantages = (values - found.mean) * found.count / (found.count - 1).clamp(min=1)
    return advantages / (_deviation(found) + eps) if normalize else advantages


def _deviation(found: GroupStatistics) -> Tensor:
    """Standard deviation of each cell's group, N - 1 in its denominator; 0 for a group of one."""
    return (found.spread / (found.count - 1).clamp(min=1)).sqrt()


def _weights(weights: Tensor | None, inside: Tensor) -> Tensor:
    """Weights as a table, 0 where masked; ones where none are given."""
    if weights is None:
        return inside.to(precision(inside.device))
    if weights.dim() == 1:
        weights = weights[:, None]
    if weights.shape not in (inside.shape, (len(inside), 1)):
        raise ShapeError("weights", weights.shape, f"{tuple(inside.shape)}, ({len(inside)}, 1) or ({len(inside)},)")
    table, _ = check_table(weights.expand_as(inside), inside, "weights")
    if bool((table < 0).any()):
        raise TrainingError("weights has values below 0; a weight is a number of tokens or a squared norm")
    return table


def _finish(advantages: Tensor, values: Tensor, count: Tensor, singleton: Singleton, given: Tensor) -> Tensor:
    """Groups of one, and the type that the caller gets; where there is no member the values are 0 already."""
    if singleton not in ("return", "zero"):
        raise OptionError("singleton", singleton, ("return", "zero"))
    alone = values if singleton == "return" else torch.zeros_like(values)
    return torch.where(count == 1, alone, advantages).to(result_type(given))

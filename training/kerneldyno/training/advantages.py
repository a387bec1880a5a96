"""Advantage estimators over (prompt, turn) groups, and spreading their results over tokens.

All take (returns, mask, group) and return an (E, T) table, which is 0 where the mask is not set. Members of a group are
the unmasked cells of one prompt and one turn. No estimator reads tokens, so a turn that MRS or PRS rejects later still
belongs to its group's baseline, as in KernelGYM.

`estimate` starts from rewards; each estimator starts from returns.
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

#: Advantage of the only member of a group: "return" = its return (a baseline of 0, as in KernelGYM and verl), "zero" = 0.
Singleton = Literal["return", "zero"]

#: The other members' weight is computed as a difference. Below this share of the group's weight it is a rounding error.
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
    """Compute turn-level REINFORCE with a leave-one-out baseline: A = G_i - mean of the others' G.

    This equals N / (N - 1) * (G_i - mean G) for a group of N members.

    It is unbiased: no sample is in its own baseline. GRPO's mean includes the sample itself, which scales the expected
    gradient of a group by 1 - 1/N, so small groups weigh less where N differs between prompts and turns.

    With `normalize` (the estimator "trloo_norm") A is divided by the group's standard deviation + eps. Prompts with large
    and with small rewards then move the policy by similar amounts. The price is bias: the deviation depends on the sample
    itself, so the expected gradient is not a multiple of the true one.

    Source: Dr. Kernel, Eq. 5; KernelGYM, core_algos.py (the rule for N = 1, which the paper leaves open). The normalised
    form is ours and divides as `grpo` does; KernelGYM names one (erloo_norm) that its released runs do not use.

    Args:
        returns: (E, T), any floating type; see `returns.multi_turn_returns`.
        mask: (E, T) bool or integer: which turns count.
        group: (E,) integer, equal for the samples of one prompt.
        turn: (E, T) integer, the turn of each cell. Give it if padding is at the start (`masks.turn_index`); by default
            the column is the turn.
        singleton: advantage of the only member of a group, see `Singleton`; it is never divided.
        normalize: divide by the standard deviation of the group (N - 1 in its denominator).
        eps: added to the standard deviation; above 0.

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
    """Compute `trloo` with `normalize`: divide by the group's standard deviation.

    Args, Returns, Raises: as `trloo`.
    """
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
    """Compute group-relative advantages: A = G_i - mean G, the sample itself in the mean; with `normalize` / (std + eps).

    The expected gradient is (1 - 1/N) times the true one without `normalize`, and not a multiple of it with `normalize`.

    Source: Dr. Kernel, Eq. 3 and KernelGYM (no division); DeepSeekMath for the division, with the unbiased std that
    verl and TRL use; the mean without the division is also that of Dr. GRPO.

    Args, Returns, Raises: as `trloo`.
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
    """Compute GRPO on each turn's immediate **reward**: a later reward does not count for an earlier turn.

    The first argument is the rewards, which are the returns with gamma 0.

    Source: KernelGYM, kernel_trainer.py, where it is one of the estimators to compare with.

    Args, Returns, Raises: as `grpo`, with `rewards` in place of `returns`.
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
    """Compute leave-one-out advantages over whole episodes: all turns of an episode have the same advantage.

    The score of an episode is the return of its first turn that counts: with gamma 1, the sum of the rewards. Episodes
    without such a turn are not members. With `normalize` (the estimator "rloo_norm") the advantage is divided by the
    standard deviation of the group's scores + eps, which adds the same bias as in `trloo`.

    Source: Ahmadian et al. 2024 (arXiv 2402.14740).

    Args, Returns, Raises: as `trloo`; `turn` is not used.
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
    """Compute `rloo` with `normalize`: divide by the standard deviation of the group's scores.

    Args, Returns, Raises: as `rloo`.
    """
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
    """Compute ReMax: A = G - the return of one greedy rollout of the same prompt.

    It is unbiased: the greedy rollout does not depend on the sample. It costs one more rollout for each prompt, and works
    with a single sample.

    Source: Li et al. 2023 (arXiv 2310.10505), for one turn. For several turns, `greedy` may hold the greedy episode's
    return from each turn on: the first turn compares equal states; later turns compare different ones, which is still
    unbiased.

    Args:
        returns, mask: as `trloo`.
        group, turn, singleton: not used.
        greedy: (E, T), or (E,) or (E, 1) with one value for each episode: the return of the greedy rollout of this
            episode's prompt, 0 where that rollout had no such turn. Only values where the mask is set are read.

    Returns, Raises: as `trloo`.
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
    """Compute A = G_i - b, b being the baseline of least variance: sum w_j G_j / sum w_j, w = squared norm of grad log pi.

    Among all constants b, this one minimises the variance of grad log pi * (G - b): set the derivative of
    E[w (G - b)^2] to 0. The exact w would need one backward pass for each sample, so use a proxy: the number of tokens
    (gradients of single tokens are about orthogonal and equally long), or `score_norms`.

    With `leave_one_out` b is computed from the *other* members, which keeps the gradient unbiased. Without it the sample
    is in its own baseline, as published; for equal weights that is the mean of `grpo` with its factor 1 - 1/N.

    Source: Greensmith et al. 2004 (JMLR 5) for the optimum; Hao et al. 2025 (arXiv 2505.23585, OPO) for length as the
    weight and for whole episodes. Here b is computed for each turn.

    Args:
        returns, mask, group, turn, singleton: as `trloo`.
        weights: (E, T) or (E,), at least 0: tokens of each turn, or the result of `score_norms`. None: all equal, which
            is `trloo` (and `grpo` without `leave_one_out`). If all weights that b is computed from are 0, they count as
            equal.
        leave_one_out: leave each sample out of its own baseline, see above.

    Returns, Raises: as `trloo`.
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
    """Approximate the squared gradient norm of each turn; use the result as weights of `optimal_baseline`.

    The gradient of log pi(a) by the logits of one token is e_a - pi, and its squared norm is
    1 - 2 pi(a) + sum_v pi(v)^2. These are summed over the tokens of a turn, as if gradients of different tokens were
    orthogonal.

    Source: the identity above; verl's optimal_token_baseline uses the same proxy for each token.

    Args:
        log_probs: (R, L), log-probabilities of the tokens that were written.
        sum_pi_squared: (R, L), sum of the squared probabilities of the whole vocabulary at each token.
        mask: (R, L) bool or integer: the tokens that count.
        turns: (R, L) integer, see `masks.turns_of`; without it a row is a turn.

    Returns:
        (R, T) in the precision of tables (see `tables.precision`), at least 0; T is 1 if a row is a turn.

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
    """Compute REINFORCE without a baseline: A = G. It is unbiased and has a high variance.

    Args, Returns, Raises: as `trloo`; only `returns` and `mask` are used.
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
    """Compute REINFORCE++: whiten returns over the whole batch, all prompts and turns; A = (G - mean) / sqrt(var + eps).

    Source: Hu et al. 2025 (arXiv 2501.03262); verl whitens over tokens, so long turns weigh more: `tokens` does the
    same.

    Args:
        returns, mask: as `trloo`.
        group, turn, singleton: not used.
        tokens: (E, T), number of tokens of each turn; without it every turn counts once.
        eps: added to the (unbiased) variance. The advantage is 0 in a batch of fewer than two turns (or tokens).

    Returns, Raises: as `trloo`.
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


#: Estimators by name. Their first argument is the returns; that of `turn_independent_grpo` is the rewards.
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
#: Estimators that need more than returns, a mask and groups: `remax` needs the keyword `greedy`.
_WITH_MORE: Final[dict[str, Callable[..., Tensor]]] = {"remax": remax}


def estimate(name: str, rewards: Tensor, mask: Tensor, group: Tensor, *, gamma: float = 1.0, **options: Any) -> Tensor:
    """Compute advantages from rewards with the named estimator.

    Args:
        name: a key of `ESTIMATORS`, or "remax" (whose option `greedy` holds returns).
        rewards: (E, T).
        mask: (E, T) bool or integer.
        group: (E,) integer.
        gamma: discount; `turn_independent_grpo` ignores it.
        options: keywords of the estimator.

    Returns:
        (E, T).

    Raises:
        OptionError: `name` is unknown.
        TrainingError: see `returns.multi_turn_returns` and the estimator.
    """
    known = {**ESTIMATORS, **_WITH_MORE}
    if name not in known:
        raise OptionError("estimator", name, known)
    immediate = name == "turn_independent_grpo"
    return known[name](multi_turn_returns(rewards, mask, 0.0 if immediate else gamma), mask, group, **options)


def _check_eps(eps: float) -> None:
    if not eps > 0:
        raise TrainingError(f"eps={eps} must be above 0: a group whose returns are all equal has a deviation of 0")


def _leave_one_out(values: Tensor, found: GroupStatistics, *, normalize: bool, eps: float) -> Tensor:
    """Subtract from each value the mean of its group's other members; divide by the deviation if `normalize`."""
    advantages = (values - found.mean) * found.count / (found.count - 1).clamp(min=1)
    return advantages / (_deviation(found) + eps) if normalize else advantages


def _deviation(found: GroupStatistics) -> Tensor:
    """Return the standard deviation of each cell's group, N - 1 in its denominator; 0 for a group of one."""
    return (found.spread / (found.count - 1).clamp(min=1)).sqrt()


def _weights(weights: Tensor | None, inside: Tensor) -> Tensor:
    """Return the weights as a table, 0 where masked; ones if none are given."""
    if weights is None:
        return inside.to(precision(inside.device))
    if weights.dim() == 1:
        weights = weights[:, None]
    if weights.shape not in (inside.shape, (len(inside), 1)):
        raise ShapeError("weights", weights.shape, f"{tuple(inside.shape)}, ({len(inside)}, 1) or ({len(inside)},)")
    table, _ = check_table(weights.expand_as(inside), inside, "weights")
    if bool((table < 0).any()):
        raise TrainingError("weights has values below 0; give numbers of tokens or squared norms")
    return table


def _finish(advantages: Tensor, values: Tensor, count: Tensor, singleton: Singleton, given: Tensor) -> Tensor:
    """Apply `singleton` to groups of one and convert to the result type. Cells that are no member are 0 already."""
    if singleton not in ("return", "zero"):
        raise OptionError("singleton", singleton, ("return", "zero"))
    alone = values if singleton == "return" else torch.zeros_like(values)
    return torch.where(count == 1, alone, advantages).to(result_type(given))

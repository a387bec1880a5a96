"""Policy losses, and the aggregation of token losses into one number.

    dual_clip        PPO with a higher upper clip and a second clip for negative advantages
    policy_gradient  no ratio and no clip: REINFORCE with optional weights
    bypass, pure     rejection by mismatch (MRS) and one of the two above, in one forward pass

`dual_clip` after `mismatch.reject` compares three policies: the one that generated (rollout), the one at the beginning of
the update (old) and the one that is trained. `bypass` and `pure` do not use the old policy, so its log-probabilities need
not be recomputed.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import torch
from torch import Tensor

from . import mismatch
from .errors import NotFiniteError, OptionError, ShapeError, TrainingError
from .tables import check_mask

#: token-mean               mean over all tokens of the batch
#: token-sum                sum over them
#: seq-mean-token-sum       sum over the tokens of a row, mean over rows (Dr. Kernel, / 1000)
#: seq-mean-token-mean      mean over the tokens of a row, mean over rows
#: seq-mean-token-sum-norm  seq-mean-token-sum / the length L of the rows, unless `scale` is given (Dr. GRPO)
#: Rows without any token do not count as rows.
Aggregation = Literal["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]

#: Log ratios are clamped to this bound before exp().
LOG_RATIO_LIMIT: Final = 20.0


def dual_clip(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    clip_dual: float | None = 3.0,
    weights: Tensor | None = None,
    aggregation: str = "seq-mean-token-sum",
    scale: float | None = None,
    tokens: float | None = None,
    rows: float | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """Compute the dual-clip PPO loss to minimise.

    With r = exp(log_probs - old_log_probs):

        L = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)),  and where A < 0  L = min(L, -A clip_dual)

    Source: PPO; DAPO (clip-higher); Ye et al. 2020 (dual clip); Dr. Kernel's constants: KernelGYM, core_algos.py.

    Args:
        log_probs: (R, L), with gradient; float32 or bfloat16 (or wider). Values where the mask is not set may be
            anything, NaN included, and get a gradient of 0.
        old_log_probs: (R, L), of the policy at the beginning of the update; `log_probs.detach()` for exactly one step.
        advantages: (R, L), or (R, 1) or (R,) with one value for each row.
        mask: (R, L) bool or integer: the response mask without rejected tokens.
        clip_low, clip_high: how far below and above 1 the ratio may be before it is clipped.
        clip_dual: bound of the ratio for negative advantages, above 1; None: no second clip.
        weights: (R, L) or (R, 1), multiplied with each token's loss: `mismatch.importance_weights`.
        aggregation, scale, tokens, rows: see `aggregate`.

    Returns:
        The loss, a scalar, float32 or wider, and metrics: clip_fraction and clip_fraction_dual (of tokens), kl and
        kl_k3 (old against new policy, estimated on the old one's tokens), ratio_max.

    Raises:
        ShapeError, MaskError, OptionError, TrainingError: see `kerneldyno.training.errors`.
    """
    if not (0 <= clip_low < 1 and clip_high >= 0 and (clip_dual is None or clip_dual > 1)):
        raise TrainingError(
            f"clip_low={clip_low}, clip_high={clip_high}, clip_dual={clip_dual}: expected 0 <= low < 1, high >= 0, dual > 1"
        )
    if log_probs.dim() != 2 or old_log_probs.shape != log_probs.shape:
        raise ShapeError(
            "old_log_probs", old_log_probs.shape, f"{tuple(log_probs.shape)}, as log_probs, (rows, tokens)"
        )
    inside = check_mask(mask, log_probs.shape)
    gain = _by_row(advantages, log_probs, "advantages")

    moved = log_probs.to(gain.dtype) - old_log_probs.detach().to(gain.dtype)
    moved = torch.where(inside, moved, 0).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = moved.exp()
    free, clipped = -gain * ratio, -gain * ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(free, clipped)
    second = torch.zeros_like(inside)
    if clip_dual is not None:
        bound = -gain * clip_dual
        second = (loss > bound) & (gain < 0) & inside
        loss = torch.where(gain < 0, torch.minimum(loss, bound), loss)
    if weights is not None:
        loss = loss * _by_row(weights, log_probs, "weights")
    total = aggregate(loss, inside, aggregation, scale=scale, tokens=tokens, rows=rows)
    with torch.no_grad():
        count = inside.sum().clamp(min=1)
        figures = {
            "clip_fraction": ((clipped > free) & inside).sum() / count,
            "clip_fraction_dual": second.sum() / count,
            "kl": -moved.sum() / count,
            "kl_k3": (moved.expm1() - moved).sum() / count,
            "ratio_max": ratio.amax() if ratio.numel() else ratio.new_ones(()),
        }
        values = torch.stack([figure.to(gain.dtype) for figure in figures.values()]).tolist()
    return total, dict(zip(figures, values, strict=True))


def policy_gradient(
    log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    weights: Tensor | None = None,
    aggregation: str = "seq-mean-token-sum",
    scale: float | None = None,
    tokens: float | None = None,
    rows: float | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """Compute the loss to minimise L = -w A log pi, whose gradient is that of REINFORCE.

    Source: Williams 1992. The value of the loss has no meaning; only its gradient has.

    Args:
        log_probs: (R, L), with gradient; float32 or bfloat16 (or wider). Values where the mask is not set may be
            anything, NaN included, and get a gradient of 0. Where it is set they must be finite.
        advantages: (R, L), or (R, 1) or (R,) with one value for each row.
        mask: (R, L) bool or integer: the response mask without rejected tokens.
        weights: (R, L), (R, 1) or (R,): w, without gradient; `mismatch.importance_weights`. None: 1.
        aggregation, scale, tokens, rows: see `aggregate`.

    Returns:
        The loss, a scalar, float32 or wider, and metrics: weight_mean and weight_max, over tokens.

    Raises:
        ShapeError, MaskError, NotFiniteError, OptionError, TrainingError: see `kerneldyno.training.errors`.
    """
    if log_probs.dim() != 2:
        raise ShapeError("log_probs", log_probs.shape, "(rows, tokens)")
    inside = check_mask(mask, log_probs.shape)
    gain = _by_row(advantages, log_probs, "advantages")
    held = torch.where(inside, log_probs.to(gain.dtype), 0)
    if not bool(held.detach().isfinite().all()):
        raise NotFiniteError("log_probs", "the mask is set")
    weight = torch.ones_like(gain) if weights is None else _by_row(weights, log_probs, "weights")
    total = aggregate(-weight * gain * held, inside, aggregation, scale=scale, tokens=tokens, rows=rows)
    shown = torch.where(inside, weight.expand_as(held), 0)
    largest = float(shown.amax()) if shown.numel() else 0.0
    return total, {"weight_mean": float(shown.sum() / inside.sum().clamp(min=1)), "weight_max": largest}


def bypass(
    log_probs: Tensor,
    rollout_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    rule: mismatch.Rule = mismatch.RELEASE,
    turns: Tensor | None = None,
    episodes: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, dict[str, float]]:
    """Compute `dual_clip` with the rollout policy in place of the old one: r = exp(log_probs - rollout_log_probs).

    The loss is that of `dual_clip` over the tokens that `mismatch.reject` keeps. The ratio already contains the mismatch,
    so there are no importance weights: they would count it twice. Rejection uses the log-probabilities of the update's own
    forward pass, which saves the pass that recomputes those of the old policy. Two things differ from `dual_clip` after
    `mismatch.reject`: clipping is around the rollout policy, and rejection is decided again in every pass, by the current
    policy.

    Source: KernelGYM, mismatch_helper.py, mode "bypass" (old := rollout); verl's rollout_correction.bypass_mode with
    loss_type ppo_clip is the same.

    Args:
        log_probs: (R, L), with gradient: of the policy that is trained.
        rollout_log_probs: (R, L), as reported by the inference engine.
        advantages, mask: as `dual_clip`; the mask is the response mask before any rejection.
        rule, turns, episodes: as `mismatch.reject`. All rows of one episode must be in one call; otherwise the episode's
            mean would be that of a part of it.
        options: clips and aggregation of `dual_clip`, but no weights.

    Returns:
        The loss and its metrics; metrics of the rejection have the prefix "mrs/".

    Raises:
        ShapeError, MaskError, GroupError, NotFiniteError, OptionError, TrainingError: see `kerneldyno.training.errors`.
    """
    if options.get("weights") is not None:
        raise TrainingError(
            "weights cannot be used with bypass: its ratio to the rollout policy already contains them; leave them out, or "
            "use pure with a level"
        )
    rejected = mismatch.reject(log_probs.detach(), rollout_log_probs, mask, rule, turns=turns, episodes=episodes)
    loss, figures = dual_clip(log_probs, rollout_log_probs, advantages, rejected.mask, **options)
    return loss, figures | _prefixed(rejected.metrics)


def pure(
    log_probs: Tensor,
    rollout_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    rule: mismatch.Rule = mismatch.RELEASE,
    level: mismatch.Level | None = None,
    cap: float = 2.0,
    turns: Tensor | None = None,
    episodes: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, dict[str, float]]:
    """Compute `policy_gradient` over the tokens that `mismatch.reject` keeps: L = -w A log pi, no ratio and no clips.

    Without `level` w is 1: rejection alone handles the mismatch, at the price of a bias that its bounds limit. With a level
    w = min(pi / pi_rollout, cap), without gradient. "sequence" with a cap that is never reached, and without rejection, is
    the unbiased gradient. As with `bypass`, no pass recomputes the old policy's log-probabilities. Only the rejection keeps
    the policy near the rollout policy, so take one step for each batch.

    Source: KernelGYM, mismatch_helper.py, pure rollout correction, L = -E[w log pi A]; verl's rollout_correction.bypass_mode
    with loss_type reinforce is the same, `rollout_is` being the level.

    Args:
        log_probs, rollout_log_probs, advantages, mask, rule, turns, episodes: as `bypass`.
        level: the tokens that one weight covers, see `mismatch.Level`; None: no weights.
        cap: the largest weight.
        options: aggregation of `policy_gradient`, but no weights.

    Returns, Raises: as `bypass`.
    """
    if options.get("weights") is not None:
        raise TrainingError("weights cannot be given to pure, which computes its own; choose them by level and cap")
    detached = log_probs.detach()
    rejected = mismatch.reject(detached, rollout_log_probs, mask, rule, turns=turns, episodes=episodes)
    weights = None
    if level is not None:
        weights = mismatch.importance_weights(
            detached, rollout_log_probs, mask, level=level, cap=cap, turns=turns, episodes=episodes
        )
    loss, figures = policy_gradient(log_probs, advantages, rejected.mask, **(options | {"weights": weights}))
    return loss, figures | _prefixed(rejected.metrics)


def aggregate(
    loss: Tensor,
    mask: Tensor,
    aggregation: str = "seq-mean-token-sum",
    *,
    scale: float | None = None,
    tokens: float | None = None,
    rows: float | None = None,
) -> Tensor:
    """Aggregate token losses into one number. Without any token it is 0, with a gradient of 0.

    For a batch in parts (micro-batches, ranks), give `tokens` or `rows` of the whole batch; the losses of the parts then
    add up to that of the whole. (If a framework averages gradients over ranks, multiply by the number of ranks.)

    Args:
        loss: (R, L).
        mask: (R, L) bool or integer.
        aggregation: see `Aggregation`.
        scale: divide the result by it (KernelGYM's loss_scale_factor, 1000 in its runs). None: 1, or L for
            "seq-mean-token-sum-norm".
        tokens: divisor of token-mean; None: the number of tokens of this mask.
        rows: divisor of seq-mean; None: the number of rows of this mask that have any token.

    Returns:
        A scalar, float32 or wider.

    Raises:
        ShapeError, MaskError, OptionError: see `kerneldyno.training.errors`.
        TrainingError: `scale`, `tokens` or `rows` is not above 0.
    """
    if aggregation not in get_args(Aggregation):
        raise OptionError("aggregation", aggregation, get_args(Aggregation))
    if loss.dim() != 2:
        raise ShapeError("loss", loss.shape, "(rows, tokens)")
    for name, whole in (("scale", scale), ("tokens", tokens), ("rows", rows)):
        if whole is not None and not whole > 0:
            raise TrainingError(f"{name}={whole} must be above 0")
    inside = check_mask(mask, loss.shape)
    loss = torch.where(inside, loss, 0).to(torch.promote_types(loss.dtype, torch.float32))
    if aggregation == "token-sum":
        total = loss.sum()
    elif aggregation == "token-mean":
        total = loss.sum() / (inside.sum().clamp(min=1) if tokens is None else tokens)
    else:
        each, length = loss.sum(dim=1), inside.sum(dim=1)
        if aggregation == "seq-mean-token-mean":
            each = each / length.clamp(min=1)
        total = each.sum() / ((length > 0).sum().clamp(min=1) if rows is None else rows)
        if aggregation == "seq-mean-token-sum-norm" and scale is None:
            scale = max(loss.shape[1], 1)
    return total if scale is None else total / scale


def _prefixed(figures: dict[str, float]) -> dict[str, float]:
    return {f"mrs/{name}": figure for name, figure in figures.items()}


def _by_row(values: Tensor, log_probs: Tensor, name: str) -> Tensor:
    """Detach (R,), (R, 1) or (R, L), convert to the precision of the loss, and shape so that it broadcasts over tokens."""
    if values.dim() == 1:
        values = values[:, None]
    rows, length = log_probs.shape
    if values.shape not in ((rows, 1), (rows, length)):
        raise ShapeError(name, values.shape, f"({rows}, {length}), ({rows}, 1) or ({rows},)")
    return values.detach().to(torch.promote_types(log_probs.dtype, torch.float32))

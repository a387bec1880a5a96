"""The mismatch between the policy that generated and the policy that is trained: rejection (MRS), truncated weights,
metrics.

An inference engine and a trainer give different probabilities to the same tokens. r = pi_train / pi_rollout of a
token; all sums are of log r, in float32 or wider whatever the log-probabilities are stored in. The functions take
both layouts of tokens (see `masks`): a row for each turn (with `episodes` to join the rows of an episode), or a row
for each episode (with `turns`).

Log-probabilities of minus infinity are allowed (such a token is vetoed); NaN is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

import torch
from torch import Tensor

from .errors import NotFiniteError, OptionError, ShapeError, TrainingError
from .layout import TokenLayout

#: What one ratio is made of:
#: token            each token's own
#: turn             product over the turn
#: turn_geometric   geometric mean over the tokens of the turn
#: sequence         product over all turns of the episode
#: geometric        geometric mean over all tokens of all turns of the episode
Level = Literal["token", "turn", "turn_geometric", "sequence", "geometric"]

#: Bound for log ratios before they are exponentiated, as KernelGYM and verl have it.
LOG_RATIO_LIMIT: Final = 20.0


@dataclass(frozen=True, slots=True)
class Rule:
    """What is kept: lower <= w <= upper with w of a level, and nowhere a token with r < veto."""

    level: Level | None = "geometric"
    """None: no bounds, the veto only."""
    upper: float = 1.001
    lower: float | None = 0.999
    """None: 1 / upper."""
    veto: float | None = 1e-4
    """None: no veto. One-sided: only tokens that the trained policy finds far less likely than the rollout did."""
    veto_level: Literal["turn", "sequence"] = "turn"
    """What such a token takes away: its turn, or its whole episode."""

    def __post_init__(self) -> None:
        if self.level is not None and self.level not in get_args(Level):
            raise OptionError("level", self.level, get_args(Level))
        if self.veto_level not in ("turn", "sequence"):
            raise OptionError("veto_level", self.veto_level, ("turn", "sequence"))
        lower = 1 / self.upper if self.lower is None and self.upper > 0 else self.lower
        if not (lower is not None and 0 < lower <= self.upper < math.inf):
            raise TrainingError(f"bounds {self.lower}..{self.upper}: they are ratios, 0 < lower <= upper")
        if self.veto is not None and not 0 < self.veto < 1:
            raise TrainingError(f"veto={self.veto}: it is a ratio, 0 < veto < 1")

    @property
    def log_bounds(self) -> tuple[float, float]:
        """The bounds of log w."""
        return math.log(1 / self.upper if self.lower is None else self.lower), math.log(self.upper)


#: Dr. Kernel's MRS as released (KernelGYM, mismatch_helper.py): a veto takes the row away, and a row is a turn.
RELEASE: Final = Rule()
#: Dr. Kernel's MRS as written (Eq. 6): a veto takes the whole sequence away.
PAPER: Final = Rule(veto_level="sequence")


@dataclass(frozen=True, slots=True)
class Rejection:
    """What is left of a response mask."""

    mask: Tensor
    """(R, L) bool: the mask given, less what was rejected."""
    metrics: dict[str, float]
    """masked_fraction: tokens rejected, of those that counted; turn_ and sequence_masked_fraction: turns and episodes
    that lost any token; veto_fraction: turns (or episodes) rejected by the veto; catastrophic_fraction: tokens below
    the veto."""


@torch.no_grad()
def reject(
    train: Tensor,
    rollout: Tensor,
    mask: Tensor,
    rule: Rule = RELEASE,
    *,
    turns: Tensor | None = None,
    episodes: Tensor | None = None,
) -> Rejection:
    """Mismatch rejection sampling: takes tokens out of the mask whose ratio leaves the bounds, and what the veto hits.

    Ratios and veto are both computed with the mask given, in whatever order; a rejected turn stays in its group's
    baseline (advantages are made from turns, not from this mask).

    Source: Dr. Kernel, Eq. 6; KernelGYM, mismatch_helper.py.

    Args:
        train: (R, L) log-probabilities of the trained policy, recomputed, float32 or bfloat16 (or wider).
        rollout: (R, L) those that the inference engine reported.
        mask: (R, L) bool or integer: the tokens that the policy wrote and that count.
        rule: `RELEASE` or `PAPER`, or your own.
        turns: (R, L) integer, see `masks.turns_of`; without it a row is a turn.
        episodes: (R,) integer, which rows form an episode; without it a row is an episode.

    Raises:
        ShapeError, MaskError, GroupError, NotFiniteError: see `kerneldyno.training.errors`.
    """
    layout = TokenLayout(mask, turns, episodes)
    ratio, sums = _log_ratio(train, rollout, layout)
    keep = torch.ones_like(layout.mask)
    if rule.level is not None:
        low, high = rule.log_bounds
        weight = _log_weight(ratio, sums, layout, rule.level)
        within = (weight >= low) & (weight <= high)
        keep &= within if rule.level == "token" else layout.to_tokens(within)
    catastrophic = vetoed = ratio.new_zeros(())
    if rule.veto is not None:
        below = ratio < math.log(rule.veto)
        catastrophic = below.sum()
        hit = layout.by_turn(below, lambda tokens: tokens.any(dim=1))
        if rule.veto_level == "sequence":
            hit = layout.by_episode(hit.to(sums.dtype)) > 0
        keep &= ~layout.to_tokens(hit)
        vetoed = (hit & (layout.turn_tokens > 0)).sum()
    keep &= layout.mask
    kept = layout.by_turn(keep, lambda tokens: tokens.sum(dim=1)).to(sums.dtype)
    return Rejection(keep, _rejection_metrics(layout, kept, vetoed, catastrophic))


@torch.no_grad()
def importance_weights(
    train: Tensor,
    rollout: Tensor,
    mask: Tensor,
    *,
    level: Level = "token",
    cap: float = 2.0,
    turns: Tensor | None = None,
    episodes: Tensor | None = None,
) -> Tensor:
    """Truncated importance weights min(w, cap), to be multiplied with the loss of each token; 0 where the mask is not
    set.

    Log ratios are clamped to +-20 first, the sums and not their terms.

    Source: Yao et al. 2025 (truncated importance sampling); KernelGYM, mismatch_helper.py, where it is off in the
    released runs.

    Args:
        level: what one weight is made of.
        cap: the largest weight.
        others: as `reject`.

    Returns:
        (R, L), float32 (float64 for float64), without gradient.
    """
    if level not in get_args(Level):
        raise OptionError("level", level, get_args(Level))
    if not 0 < cap < math.inf:
        raise TrainingError(f"cap={cap}: it is a weight above 0")
    layout = TokenLayout(mask, turns, episodes)
    ratio, sums = _log_ratio(train, rollout, layout)
    weight = _log_weight(ratio, sums, layout, level).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp_().clamp_(max=cap)
    if level != "token":
        weight = layout.to_tokens(weight.to(ratio.dtype))
    return torch.where(layout.mask, weight, 0)


@torch.no_grad()
def metrics(train: Tensor, rollout: Tensor, mask: Tensor, *, episodes: Tensor | None = None) -> dict[str, float]:
    """How far the two policies are apart. Arguments as `reject`; a mask without any token gives {}.

    Returns:
        kl, kl_k3: estimators of KL(rollout || train): mean of -log r, mean of r - 1 - log r.
        chi2_token, chi2_sequence: chi-square divergence, mean of r^2 - 1, r of a token or a product over an episode.
        ess_token, ess_sequence: effective sample size as a share, (mean r)^2 / mean r^2.
        ppl_train, ppl_rollout: mean over episodes of exp(-mean log-probability); ppl_ratio: mean over episodes of
        train / rollout. log_ratio_min, log_ratio_max: over tokens.
    """
    layout = TokenLayout(mask, None, episodes)
    tokens = layout.turn_tokens.sum()
    if not bool(tokens):
        return {}
    ratio, sums = _log_ratio(train, rollout, layout)
    found = {"kl": -sums.sum() / tokens, "log_ratio_min": ratio.min(), "log_ratio_max": ratio.max()}
    excess = ratio.clamp_(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).expm1()  # r - 1: 0 where masked, exact for r close to 1
    found["kl_k3"] = layout.turn_sums(excess.sub_(ratio)).sum() / tokens
    first = layout.turn_sums(excess.add_(ratio)).sum() / tokens + 1
    second = layout.turn_sums(excess.square_()).sum() / tokens + 2 * first - 1  # r^2 = (r - 1)^2 + 2 r - 1
    found |= {"chi2_token": second - 1, "ess_token": first.square() / second}
    del excess, ratio  # as large as the batch

    counts = layout.one_per_episode(layout.episode_tokens)
    products = layout.one_per_episode(layout.by_episode(sums))
    weights = products.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    found["chi2_sequence"] = weights.square().mean() - 1
    found["ess_sequence"] = weights.mean().square() / weights.square().mean()
    found["ppl_ratio"] = (-products / counts).exp().mean()
    for name, log_probs in (("train", train), ("rollout", rollout)):
        inside = torch.where(layout.mask, log_probs, 0).to(_wide(log_probs))
        means = layout.one_per_episode(layout.by_episode(layout.turn_sums(inside))) / counts
        found[f"ppl_{name}"] = (-means).exp().mean()
    values = torch.stack([figure.to(sums.dtype) for figure in found.values()]).tolist()
    return dict(zip(found, values, strict=True))


def _log_ratio(train: Tensor, rollout: Tensor, layout: TokenLayout) -> tuple[Tensor, Tensor]:
    """log r of each token, 0 where masked, (R, L), and its sums over turns, (R, T)."""
    for name, log_probs in (("train", train), ("rollout", rollout)):
        if log_probs.shape != layout.mask.shape:
            raise ShapeError(name, log_probs.shape, f"{tuple(layout.mask.shape)}, as mask")
    wide = torch.promote_types(_wide(train), _wide(rollout))
    ratio = (train.to(wide) - rollout.to(wide)).masked_fill_(~layout.mask, 0)
    sums = layout.turn_sums(ratio)
    if bool(sums.isnan().any()):
        raise NotFiniteError("log-probabilities", "the mask is set (NaN; minus infinity is allowed in one of the two)")
    return ratio, sums


def _log_weight(ratio: Tensor, sums: Tensor, layout: TokenLayout, level: Level) -> Tensor:
    """log w: (R, L) for tokens, (R, T) for turns, (R, 1) for episodes."""
    if level == "token":
        return ratio
    if level == "turn":
        return sums
    if level == "turn_geometric":
        return sums / layout.turn_tokens.clamp(min=1)
    episode = layout.by_episode(sums)
    return episode if level == "sequence" else episode / layout.episode_tokens.clamp(min=1)


def _rejection_metrics(layout: TokenLayout, kept: Tensor, vetoed: Tensor, catastrophic: Tensor) -> dict[str, float]:
    had = layout.turn_tokens
    turns = (had > 0).sum()
    before, after = (layout.one_per_episode(layout.by_episode(tokens)) for tokens in (had, kept))
    episodes = before.numel()
    figures = {
        "masked_fraction": (had - kept).sum() / had.sum().clamp(min=1),
        "turn_masked_fraction": (kept < had).sum() / turns.clamp(min=1),
        "sequence_masked_fraction": (after < before).sum() / max(episodes, 1),
        "veto_fraction": vetoed / turns.clamp(min=1),
        "catastrophic_fraction": catastrophic / had.sum().clamp(min=1),
    }
    values = torch.stack([figure.to(had.dtype) for figure in figures.values()]).tolist()
    return dict(zip(figures, values, strict=True))


def _wide(log_probs: Tensor) -> torch.dtype:
    return torch.promote_types(log_probs.dtype, torch.float32)

"""Mismatch between the policy that generated and the policy that is trained: rejection (MRS), truncated weights, metrics.

An inference engine and a trainer compute different probabilities for the same tokens. r is pi_train / pi_rollout of a
token. All sums are of log r, in float32 or wider, whatever type the log-probabilities have. The functions accept both
layouts of tokens (see `masks`): a row for each turn (with `episodes` to join the rows of an episode), or a row for each
episode (with `turns`).

Log-probabilities of minus infinity are allowed (the veto rejects such a token); NaN raises an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args

import torch
from torch import Tensor

from .errors import NotFiniteError, OptionError, ShapeError, TrainingError
from .layout import TokenLayout

#: The tokens that one ratio covers:
#: token            each token's own
#: turn             product over the turn
#: turn_geometric   geometric mean over the tokens of the turn
#: sequence         product over all turns of the episode
#: geometric        geometric mean over all tokens of all turns of the episode
Level = Literal["token", "turn", "turn_geometric", "sequence", "geometric"]

#: Log ratios are clamped to this bound before exp(), as in KernelGYM and verl.
LOG_RATIO_LIMIT: Final = 20.0


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule to keep tokens: lower <= w <= upper, w being the ratio of `level`, and no token with r < veto."""

    level: Level | None = "geometric"
    """The tokens that one ratio covers. None: no bounds, only the veto."""
    upper: float = 1.001
    lower: float | None = 0.999
    """None: 1 / upper."""
    veto: float | None = 1e-4
    """None: no veto. It is one-sided: it hits only tokens that are far less likely for the trained policy."""
    veto_level: Literal["turn", "sequence"] = "turn"
    """What a vetoed token rejects: its turn, or its whole episode."""

    def __post_init__(self) -> None:
        if self.level is not None and self.level not in get_args(Level):
            raise OptionError("level", self.level, get_args(Level))
        if self.veto_level not in ("turn", "sequence"):
            raise OptionError("veto_level", self.veto_level, ("turn", "sequence"))
        lower = 1 / self.upper if self.lower is None and self.upper > 0 else self.lower
        if not (lower is not None and 0 < lower <= self.upper < math.inf):
            raise TrainingError(f"bounds {self.lower}..{self.upper}: expected ratios with 0 < lower <= upper")
        if self.veto is not None and not 0 < self.veto < 1:
            raise TrainingError(f"veto={self.veto}: expected a ratio with 0 < veto < 1")

    @property
    def log_bounds(self) -> tuple[float, float]:
        """The bounds of log w."""
        return math.log(1 / self.upper if self.lower is None else self.lower), math.log(self.upper)


#: Dr. Kernel's MRS as released (KernelGYM, mismatch_helper.py): a veto rejects the row, and a row is a turn.
RELEASE: Final = Rule()
#: Dr. Kernel's MRS as written (Eq. 6): a veto rejects the whole sequence.
PAPER: Final = Rule(veto_level="sequence")


@dataclass(frozen=True, slots=True)
class Rejection:
    """A response mask after rejection."""

    mask: Tensor
    """(R, L) bool: the given mask without rejected tokens."""
    metrics: dict[str, float]
    """masked_fraction: share of the counted tokens that were rejected; turn_masked_fraction, sequence_masked_fraction:
    share of turns and of episodes that lost any token; veto_fraction: share of turns that the veto rejected;
    catastrophic_fraction: share of tokens below the veto."""


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
    """Apply mismatch rejection sampling: remove tokens whose ratio is outside the bounds, and those that the veto rejects.

    Ratios and veto are both computed with the given mask, so their order does not matter. A rejected turn stays in its
    group's baseline: advantages are computed from turns, not from this mask.

    Source: Dr. Kernel, Eq. 6; KernelGYM, mismatch_helper.py.

    Args:
        train: (R, L) log-probabilities of the trained policy, recomputed, float32 or bfloat16 (or wider).
        rollout: (R, L) log-probabilities that the inference engine reported.
        mask: (R, L) bool or integer: the tokens that the policy wrote and that count.
        rule: `RELEASE` or `PAPER`, or your own.
        turns: (R, L) integer, see `masks.turns_of`; without it a row is a turn.
        episodes: (R,) integer, which rows form an episode; without it a row is an episode.

    Raises:
        ShapeError, MaskError, GroupError, NotFiniteError: see `kerneldyno.training.errors`.
    """
    layout = TokenLayout(mask, turns, episodes)
    low, high = rule.log_bounds
    keep, sums, below, left = layout.mask.clone(), layout.table(), layout.table(), layout.turn_tokens
    if rule.level == "token":
        left = layout.table()
    for block, ratio in _log_ratios(train, rollout, layout):
        sums[block] = layout.by_turn(block, ratio)
        if rule.veto is not None:
            below[block] = layout.by_turn(block, ratio < math.log(rule.veto))
        if rule.level == "token":
            keep[block] &= (ratio >= low) & (ratio <= high)
            left[block] = layout.by_turn(block, keep[block])
    _refuse_nan(sums)

    hit = below > 0
    if rule.veto_level == "sequence":
        hit = (layout.by_episode(below) > 0).expand_as(hit)
    stays = ~hit
    if rule.level not in (None, "token"):
        weight = _log_weight(sums, layout, rule.level)
        stays &= (weight >= low) & (weight <= high)
    for block in layout.blocks():
        keep[block] &= layout.to_tokens(block, stays)
    return Rejection(keep, _rejection_metrics(layout, left * stays, hit, below))


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
    """Compute truncated importance weights min(w, cap), to multiply with each token's loss; 0 where the mask is not set.

    Log ratios are first clamped to +-20; the sums are clamped, not their terms.

    Source: Yao et al. 2025 (truncated importance sampling); KernelGYM, mismatch_helper.py, where it is off in the
    released runs.

    Args:
        train, rollout, mask, turns, episodes: as `reject`.
        level: the tokens that one weight covers.
        cap: the largest weight.

    Returns:
        (R, L), float32 (float64 for float64), without gradient.

    Raises:
        OptionError: `level` is unknown.
        TrainingError: `cap` is not a finite number above 0, and as `reject`.
    """
    if level not in get_args(Level):
        raise OptionError("level", level, get_args(Level))
    if not 0 < cap < math.inf:
        raise TrainingError(f"cap={cap}: expected a finite weight above 0")
    layout = TokenLayout(mask, turns, episodes)
    weights = torch.empty(mask.shape, dtype=_wide(train, rollout), device=mask.device)
    sums = layout.table()
    for block, ratio in _log_ratios(train, rollout, layout):
        sums[block] = layout.by_turn(block, ratio)
        if level == "token":
            weights[block] = _truncated(ratio, cap)
    _refuse_nan(sums)
    if level != "token":
        turn_weights = _truncated(_log_weight(sums, layout, level), cap).to(weights.dtype)
        for block in layout.blocks():
            weights[block] = layout.to_tokens(block, turn_weights)
    return weights.masked_fill_(~layout.mask, 0)


@torch.no_grad()
def metrics(train: Tensor, rollout: Tensor, mask: Tensor, *, episodes: Tensor | None = None) -> dict[str, float]:
    """Measure how far the two policies are apart.

    Args:
        train, rollout, mask, episodes: as `reject`.

    Returns:
        A dict, which is empty for a mask without any token:
        kl, kl_k3: estimators of KL(rollout || train): mean of -log r, mean of r - 1 - log r.
        chi2_token, chi2_sequence: chi-square divergence, mean of r^2 - 1, r of a token or a product over an episode.
        ess_token, ess_sequence: effective sample size as a share, (mean r)^2 / mean r^2.
        ppl_train, ppl_rollout: mean over episodes of exp(-mean log-probability).
        ppl_ratio: mean over episodes of ppl_train / ppl_rollout of the episode.
        log_ratio_min, log_ratio_max: over tokens.
    """
    layout = TokenLayout(mask, None, episodes)
    tokens = layout.turn_tokens.sum()
    if not bool(tokens):
        return {}
    log_ratios, excess, squares, k3, log_train, log_rollout = (layout.table() for _ in range(6))
    least, most = layout.table(), layout.table()
    for block, ratio in _log_ratios(train, rollout, layout):
        log_ratios[block] = ratio.sum(dim=1, keepdim=True)
        inside = layout.mask[block]
        least[block] = torch.where(inside, ratio, math.inf).amin(dim=1, keepdim=True)
        most[block] = torch.where(inside, ratio, -math.inf).amax(dim=1, keepdim=True)
        ratio = ratio.clamp_(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        over = ratio.expm1()  # r - 1: 0 where masked, and exact for r close to 1, where r itself loses digits
        excess[block], squares[block] = over.sum(dim=1, keepdim=True), over.square().sum(dim=1, keepdim=True)
        k3[block] = over.sub_(ratio).sum(dim=1, keepdim=True)
        for sums, log_probs in ((log_train, train), (log_rollout, rollout)):
            sums[block] = torch.where(inside, log_probs[block], 0).to(ratio.dtype).sum(dim=1, keepdim=True)
    _refuse_nan(log_ratios)

    first = 1 + excess.sum() / tokens
    second = 2 * first - 1 + squares.sum() / tokens  # r^2 = (r - 1)^2 + 2 r - 1
    counts = layout.one_per_episode(layout.episode_tokens)
    products = layout.one_per_episode(layout.by_episode(log_ratios))
    weights = products.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()

    def perplexity(sums: Tensor) -> Tensor:
        return (-layout.one_per_episode(layout.by_episode(sums)) / counts).exp().mean()

    return _floats(
        {
            "kl": -log_ratios.sum() / tokens,
            "kl_k3": k3.sum() / tokens,
            "chi2_token": second - 1,
            "chi2_sequence": weights.square().mean() - 1,
            "ess_token": first.square() / second,
            "ess_sequence": weights.mean().square() / weights.square().mean(),
            "ppl_train": perplexity(log_train),
            "ppl_rollout": perplexity(log_rollout),
            "ppl_ratio": perplexity(log_ratios),
            "log_ratio_min": least.min(),
            "log_ratio_max": most.max(),
        }
    )


def _log_ratios(train: Tensor, rollout: Tensor, layout: TokenLayout) -> Iterator[tuple[slice, Tensor]]:
    """Yield log r of each token, 0 where masked, one block of rows at a time; the caller may change the tensor."""
    for name, log_probs in (("train", train), ("rollout", rollout)):
        if log_probs.shape != layout.mask.shape:
            raise ShapeError(name, log_probs.shape, f"{tuple(layout.mask.shape)}, as mask")
    wide = _wide(train, rollout)
    for block in layout.blocks():
        ratio = train[block].to(wide) - rollout[block].to(wide)
        yield block, ratio.masked_fill_(~layout.mask[block], 0)


def _log_weight(sums: Tensor, layout: TokenLayout, level: Level | None) -> Tensor:
    """Compute log w from the sums over turns, (R, T): (R, T) for levels of turns, (R, 1) for levels of episodes."""
    if level == "turn":
        return sums
    if level == "turn_geometric":
        return sums / layout.turn_tokens.clamp(min=1)
    episode = layout.by_episode(sums)
    return episode if level == "sequence" else episode / layout.episode_tokens.clamp(min=1)


def _truncated(log_weight: Tensor, cap: float) -> Tensor:
    return log_weight.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp_().clamp_(max=cap)


def _refuse_nan(sums: Tensor) -> None:
    """Raise NotFiniteError if any token was NaN, which makes its sum NaN."""
    if bool(sums.isnan().any()):
        raise NotFiniteError("log-probabilities", "the mask is set (NaN; minus infinity is allowed in one of the two)")


def _rejection_metrics(layout: TokenLayout, after: Tensor, hit: Tensor, below: Tensor) -> dict[str, float]:
    """Compute the shares from counts of tokens by turn, (R, T)."""
    before = layout.turn_tokens
    tokens, turns = before.sum().clamp(min=1), (before > 0).sum().clamp(min=1)
    had, left = (layout.one_per_episode(layout.by_episode(counts)) for counts in (before, after))
    return _floats(
        {
            "masked_fraction": (before - after).sum() / tokens,
            "turn_masked_fraction": (after < before).sum() / turns,
            "sequence_masked_fraction": (left < had).sum() / max(had.numel(), 1),
            "veto_fraction": (hit & (before > 0)).sum() / turns,
            "catastrophic_fraction": below.sum() / tokens,
        }
    )


def _floats(figures: dict[str, Tensor]) -> dict[str, float]:
    """Read all numbers with one transfer from the device."""
    kind = next(iter(figures.values())).dtype
    return dict(zip(figures, torch.stack([figure.to(kind) for figure in figures.values()]).tolist(), strict=True))


def _wide(train: Tensor, rollout: Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(train.dtype, rollout.dtype), torch.float32)

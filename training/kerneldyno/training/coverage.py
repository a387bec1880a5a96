"""Profiling ratio (PR) and rejection by it (PRS): do not train on correct kernels that do little of the work themselves.

The service measures coverage and reports it in each result. `profiling_ratio` computes the same from a table of kernels,
by each of the published definitions. Kernels are the last dimension; all dimensions before it are a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

import torch
from torch import Tensor

from .errors import OptionError, ShapeError, TrainingError
from .tables import check_mask, check_table

#: paper    device time of the candidate's kernels / device time of all
#: release  the same, with host time added to each row of the denominator (KernelGYM's time coverage; its rows are
#:          operators *and* kernels)
#: number   share of rows that are the candidate's (KernelGYM's number coverage)
Definition = Literal["paper", "release", "number"]


def profiling_ratio(
    device_us: Tensor,
    custom: Tensor,
    *,
    host_us: Tensor | None = None,
    valid: Tensor | None = None,
    definition: str = "paper",
) -> Tensor:
    """Compute PR: the share of the work that the candidate's own kernels did.

    Source: Dr. Kernel, Eq. 7 (paper); KernelGYM, profiling.py (release, number). In KernelGYM's rows an operator and its
    kernel both count, so a library call weighs twice its device time, and a candidate that does everything itself does not
    reach 1.

    Args:
        device_us: (..., K) time on the device in microseconds, for each row of a profile.
        custom: (..., K) bool or integer: the row is one of the candidate's kernels.
        host_us: (..., K) time on the host in microseconds; only "release" needs it.
        valid: (..., K) bool or integer: the row exists; give it if profiles are padded.
        definition: see `Definition`.

    Returns:
        (...), float32 or wider, within 0..1; 0 for a profile without any time.

    Raises:
        ShapeError, MaskError, OptionError: see `kerneldyno.training.errors`.
        TrainingError: `definition` is "release" and `host_us` is missing.
    """
    if definition not in get_args(Definition):
        raise OptionError("definition", definition, get_args(Definition))
    own = check_mask(custom, device_us.shape, "custom")
    inside = torch.ones_like(own) if valid is None else check_mask(valid, device_us.shape, "valid")
    device = torch.where(inside, device_us, 0).to(torch.promote_types(device_us.dtype, torch.float32))
    if definition == "number":
        part, whole = (own & inside).sum(dim=-1), inside.sum(dim=-1)
        return part.to(device.dtype) / whole.clamp(min=1)
    whole = device.sum(dim=-1)
    if definition == "release":
        if host_us is None:
            raise TrainingError('definition="release" has host time in its denominator: give host_us')
        if host_us.shape != device_us.shape:
            raise ShapeError("host_us", host_us.shape, f"{tuple(device_us.shape)}, as device_us")
        whole = whole + torch.where(inside, host_us, 0).to(device.dtype).sum(dim=-1)
    part = torch.where(own, device, 0).sum(dim=-1)
    return torch.where(whole > 0, part / whole, 0)


def profiling_reward(coverage: Tensor, correct: Tensor, weight: float = 0.5) -> Tensor:
    """Compute the coverage part of the reward: weight * coverage for correct turns, 0 for others.

    Source: Dr. Kernel, Eq. 8 (weight 1, rewards of 1 + speedup + PR); KernelGYM (weight 0.5, the whole at half that
    scale).

    Args:
        coverage: any shape; may be NaN for turns that are not correct.
        correct: same shape, bool or integer.
        weight: factor of the coverage.
    """
    passed = check_mask(correct, coverage.shape, "correct")
    return torch.where(passed, coverage * weight, 0)


@dataclass(frozen=True, slots=True)
class CoverageRule:
    """Probability to keep a turn: clip((coverage - threshold) / softness, 0, 1), with exceptions."""

    threshold: float = 0.3
    softness: float | None = 0.1
    """None or 0: a hard limit; keep a turn exactly if coverage >= threshold."""
    level: Literal["turn", "geometric"] = "turn"
    """geometric: replace each coverage by the geometric mean over its episode, incorrect turns included."""
    keep_incorrect: bool = True
    """Always keep incorrect turns. Without it (Eq. 9 as written), their coverage of 0 drops every failure."""
    speedup_threshold: float | None = None
    """Keep correct turns with at least this speedup, whatever their coverage. None: no such exception."""
    decimals: int | None = None
    """Round coverage to this number of decimals first. None: do not round."""

    def __post_init__(self) -> None:
        if self.level not in ("turn", "geometric"):
            raise OptionError("level", self.level, ("turn", "geometric"))
        if self.softness is not None and self.softness < 0:
            raise TrainingError(f"softness={self.softness}: expected a width of at least 0")


#: Dr. Kernel's PRS as released: KernelGYM rounds coverage to two decimals before it decides.
RELEASE: Final = CoverageRule(decimals=2)
#: Eq. 9 as written, for every sample.
PAPER: Final = CoverageRule(keep_incorrect=False)

#: Smallest coverage in a geometric mean; smaller ones are raised to it.
_SMALLEST: Final = 1e-8


def keep_probability(
    coverage: Tensor, correct: Tensor, mask: Tensor, rule: CoverageRule = RELEASE, *, speedups: Tensor | None = None
) -> Tensor:
    """Compute the probability to keep each turn; 0 where the mask is not set.

    Source: Dr. Kernel, Eq. 9; KernelGYM, coverage_helper.py (correct turns only, the exception for fast ones).

    Args:
        coverage: (E, T); only values where the mask is set (and, with `keep_incorrect` and level "turn", correct) are read.
        correct: (E, T) bool or integer.
        mask: (E, T) bool or integer: which turns count.
        rule: the rule to apply.
        speedups: (E, T); needed with `rule.speedup_threshold`. NaN is not fast.

    Returns:
        (E, T) in the precision of tables (float64, except on MPS).

    Raises:
        ShapeError, MaskError, NotFiniteError: see `kerneldyno.training.errors`.
        TrainingError: the rule has a `speedup_threshold` and `speedups` is missing.
    """
    passed = check_mask(correct, coverage.shape, "correct")
    exempt = passed.logical_not() if rule.keep_incorrect else torch.zeros_like(passed)
    counted = check_mask(mask, coverage.shape)
    values, inside = check_table(torch.where(exempt & ~coverage.isfinite(), 0, coverage), counted, "coverage")
    if rule.decimals is not None:
        values = values.round(decimals=rule.decimals)
    if rule.level == "geometric":
        logs = torch.where(inside, values.clamp(min=_SMALLEST).log(), 0)
        values = (logs.sum(dim=1, keepdim=True) / inside.sum(dim=1, keepdim=True).clamp(min=1)).exp().expand_as(logs)
    if rule.softness:
        probability = ((values - rule.threshold) / rule.softness).clamp(0, 1)
    else:
        probability = (values >= rule.threshold).to(values.dtype)
    kept = exempt
    if rule.speedup_threshold is not None:
        if speedups is None:
            raise TrainingError("the rule has a speedup_threshold: give speedups")
        if speedups.shape != coverage.shape:
            raise ShapeError("speedups", speedups.shape, f"{tuple(coverage.shape)}, as coverage")
        kept = kept | (passed & (speedups >= rule.speedup_threshold))
    return torch.where(inside, torch.where(kept, 1, probability), 0)


def reject(
    coverage: Tensor,
    correct: Tensor,
    mask: Tensor,
    rule: CoverageRule = RELEASE,
    *,
    generator: torch.Generator,
    speedups: Tensor | None = None,
) -> Tensor:
    """Draw the turns to keep by profiling rejection sampling: each turn independently, with `keep_probability`.

    A rejected turn is neither rewarded nor punished, and still belongs to its group's baseline: compute the advantages
    with the mask as it was, and remove the turns from the response mask (`response_mask & masks.to_tokens(kept, ...)`).

    Args:
        coverage, correct, mask, rule, speedups: as `keep_probability`.
        generator: random generator; one on the CPU draws the same turns for every device.

    Returns:
        (E, T) bool, True for turns to keep; False where the mask is not set.

    Raises:
        TrainingError: as `keep_probability`.
    """
    probability = keep_probability(coverage, correct, mask, rule, speedups=speedups)
    drawn = torch.rand(probability.shape, generator=generator, device=generator.device, dtype=probability.dtype)
    return drawn.to(probability.device) < probability

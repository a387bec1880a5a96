"""Profiling ratio (PR) and rejection by it (PRS): a correct kernel that does little of the work itself is not learnt
from.

The service measures coverage and says it in each result; `profiling_ratio` is the same from a table of kernels, in
the definitions that are about. Kernels are the last dimension, everything before it is a batch.
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
#: operators *and* kernels) number   share of rows that are the candidate's (KernelGYM's number coverage)
Definition = Literal["paper", "release", "number"]


def profiling_ratio(
    device_us: Tensor,
    custom: Tensor,
    *,
    host_us: Tensor | None = None,
    valid: Tensor | None = None,
    definition: str = "paper",
) -> Tensor:
    """PR: which part of the work the candidate's own kernels did.

    Source: Dr. Kernel, Eq. 7 (paper); KernelGYM, profiling.py (release, number). With KernelGYM's rows, an operator
    and its kernel both count, so a library call weighs twice its device time and a candidate that does everything
    itself does not reach 1.

    Args:
        device_us: (..., K) time on the device, of each row of a profile.
        custom: (..., K) bool or integer: the row is one of the candidate's kernels.
        host_us: (..., K) time on the host; needed by "release" only.
        valid: (..., K) bool or integer: the row exists, where profiles have been padded.
        definition: see `Definition`.

    Returns:
        (...), float32 or wider, within 0..1; 0 for a profile without any time.
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
    """The reward's part for coverage: weight * coverage for correct turns, 0 for others (whose coverage may be NaN).

    Source: Dr. Kernel, Eq. 8 (weight 1, rewards of 1 + speedup + PR); KernelGYM (weight 0.5, the whole at half that
    scale).

    Args:
        coverage: any shape.
        correct: same shape, bool or integer.
    """
    passed = check_mask(correct, coverage.shape, "correct")
    return torch.where(passed, coverage * weight, 0)


@dataclass(frozen=True, slots=True)
class CoverageRule:
    """Who is kept with which probability: clip((coverage - threshold) / softness, 0, 1), and the exceptions."""

    threshold: float = 0.3
    softness: float | None = 0.1
    """None or 0: hard, kept exactly if coverage >= threshold."""
    level: Literal["turn", "geometric"] = "turn"
    """geometric: every turn has the geometric mean of its episode's coverages, incorrect turns' included."""
    keep_incorrect: bool = True
    """Incorrect turns are always kept. Without it (Eq. 9 as written), coverage 0 drops every failure."""
    speedup_threshold: float | None = None
    """Correct turns at least this fast are kept whatever their coverage. None: no such exception."""
    decimals: int | None = None
    """Coverage is rounded to so many decimals first."""

    def __post_init__(self) -> None:
        if self.level not in ("turn", "geometric"):
            raise OptionError("level", self.level, ("turn", "geometric"))
        if self.softness is not None and self.softness < 0:
            raise TrainingError(f"softness={self.softness}: it is a width")


#: Dr. Kernel's PRS as released: KernelGYM rounds coverage to two decimals before it decides.
RELEASE: Final = CoverageRule(decimals=2)
#: Eq. 9 as written, for every sample.
PAPER: Final = CoverageRule(keep_incorrect=False)

#: Below this a geometric mean takes a coverage to be this.
_SMALLEST: Final = 1e-8


def keep_probability(
    coverage: Tensor, correct: Tensor, mask: Tensor, rule: CoverageRule = RELEASE, *, speedups: Tensor | None = None
) -> Tensor:
    """With which probability each turn is kept; 0 where the mask is not set.

    Source: Dr. Kernel, Eq. 9; KernelGYM, coverage_helper.py (correct turns only, the exception for fast ones).

    Args:
        coverage: (E, T); looked at where the mask is set (and, with `keep_incorrect` and level "turn", correct) only.
        correct: (E, T) bool or integer.
        mask: (E, T) bool or integer: which turns count.
        rule: what decides.
        speedups: (E, T); needed with `rule.speedup_threshold`. NaN is not fast.

    Returns:
        (E, T) in the precision of tables (float64, except on MPS).
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
    """Profiling rejection sampling: which turns are kept, drawn one by one with `keep_probability`.

    What is not kept is neither rewarded nor punished, and still belongs to its group's baseline: make the advantages
    with the mask as it was, and take the turns out of the response mask (`response_mask & masks.to_tokens(kept, ...)`).

    Args:
        generator: where chance comes from; on the CPU it draws the same turns for every device.
        others: as `keep_probability`.

    Returns:
        (E, T) bool; False where the mask is not set.
    """
    probability = keep_probability(coverage, correct, mask, rule, speedups=speedups)
    drawn = torch.rand(probability.shape, generator=generator, device=generator.device, dtype=probability.dtype)
    return drawn.to(probability.device) < probability

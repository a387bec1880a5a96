"""What kind of arithmetic made an answer's errors: that of a precision tier, or something that is not rounding.

Rounding moves each element by about as much as the element depends on what was rounded, and to either side. So the
float64 twin of the reference runs again on operands that are moved by half a unit of the tier. That shows how large the
error of each element may be. A mistake of a kernel does not follow this pattern: it moves elements that rounding does
not move (a ReLU clamped at 0.01), or it moves all elements to one side (a bias, a factor). The size of all errors
together cannot distinguish the two.
"""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Iterator

import torch

from ...devices.base import Device
from ...shared import tree
from ...shared.enums import Precision
from ...shared.reference_failure import ReferenceFailure
from ...shared.running_problem import RunningProblem
from ..comparison.evidence import Mismatch
from ..comparison.rules import NOISE_FACTOR, relative_tolerance
from ..problems import trial
from ..problems.tiers import BITS, RECOGNISED, half_unit, of_dtype, recognise, rms
from ..problems.trial import Change, Trial
from ..runners.work import numbers

#: An error this many times the reference's own is examined further: it may come from coarser arithmetic.
_CONSPICUOUS = 4.0
#: The largest error may be this many times the largest error of a tier's rounding.
_EXCESS = 8.0
#: Number of float64 runs with moved operands that show how far rounding moves each element.
RUNS = 3
#: An element may be off by this many times the effect of rounding on it: a few sigma, intermediate results that are
#: also rounded, and hardware that truncates where this rounds.
_SPREAD = 16.0
#: Share of the elements that may be off by more, because intermediate results cancel or the few runs differ little.
_STRAY = 0.01
#: Errors up to this, relative to the element and the typical size, say nothing about the arithmetic: eight units of
#: float32.
_FINE = 2.0**-20
#: If errors in one direction exceed those in the other by this share of all, it is not by chance.
_ONE_SIDED = 0.8
#: Errors in one direction count only if rounding itself is no more one-sided than this, in each of this many runs.
_BALANCED, _SIDE_RUNS = 0.2, 8
#: With fewer errors than this, their direction is not examined.
_FEW = 64


def short_name(precision: Precision) -> str:
    """Return the name of a precision as people write it: "bf16"."""
    return precision.name.lower()


def observed(
    problem: RunningProblem,
    device: Device,
    current: Trial,
    slot: torch.Tensor,
    so_far: Precision = Precision.UNSPECIFIED,
) -> Precision:
    """Return the coarsest tier that the errors of an answer in `slot` look like, or `so_far` if that is coarser.

    The contract numbers the tiers from fine to coarse, so a larger number is a coarser tier.
    """
    current, views = _precisely_known(current, slot)
    found = so_far
    twins: dict[Precision, list[torch.Tensor]] = {}
    for index, (leaf, value) in enumerate(zip(current.expected.leaves, views, strict=True)):
        if not leaf.has_twin or not value.is_floating_point():
            continue  # no float64 twin
        stored = of_dtype(leaf.value.dtype)
        own = rms(leaf.value.double() - leaf.truth)
        error = rms(value.double() - leaf.truth)
        tier = stored
        if error > _CONSPICUOUS * own and stored in (Precision.FP64, Precision.FP32):
            tier = recognise(error, own, _errors(problem, device, current, index, twins), stored)
            # Rounding is about equally large everywhere. If an answer is far off in places, it is wrong in another way.
            if tier > max(found, stored) and (
                _largest(value, leaf.truth) > _EXCESS * _largest(twins[tier][index], leaf.truth)
                or _unlike(problem, device, current, tier, index, value, _FINE)
            ):
                tier = stored
        if tier > found:
            found = tier
    return found


def _errors(
    problem: RunningProblem,
    device: Device,
    current: Trial,
    index: int,
    twins: dict[Precision, list[torch.Tensor]],
) -> Iterator[tuple[Precision, float]]:
    """Yield the root mean square by which each tier's rounding moves one output. `twins` are reused between outputs."""
    for name in RECOGNISED:
        if name not in twins:
            twins[name] = _twin(problem, device, current, name)
        if twins[name]:
            yield name, rms(twins[name][index] - current.expected.leaves[index].truth)


def unlike_rounding(
    problem: RunningProblem, device: Device, current: Trial, slot: torch.Tensor, precision: Precision
) -> Mismatch | None:
    """Return a mismatch if rounding to `precision` does not explain the errors of an answer, else None."""
    current, views = _precisely_known(current, slot)
    for index, (leaf, value) in enumerate(zip(current.expected.leaves, views, strict=True)):
        if not leaf.has_twin or BITS[precision] >= BITS.get(of_dtype(value.dtype), 0):
            continue  # nothing coarser is allowed
        if rms(value.double() - leaf.truth) <= _CONSPICUOUS * rms(leaf.value.double() - leaf.truth):
            continue
        least = relative_tolerance(leaf.value.dtype)
        if said := _unlike(problem, device, current, precision, index, value, least):
            return Mismatch(current.expected.names[index], "precision", said)
    return None


def _precisely_known(current: Trial, slot: torch.Tensor) -> tuple[Trial, list[torch.Tensor]]:
    """Return the part of a trial that was also answered in float64, and the same part of the answer in `slot`."""
    views = tree.views(slot, [leaf.spec for leaf in current.expected.leaves])
    if current.block is None:
        return current, views
    return current.block.trial, [view.index_select(0, current.block.which) for view in views]


def _unlike(
    problem: RunningProblem,
    device: Device,
    current: Trial,
    precision: Precision,
    index: int,
    value: torch.Tensor,
    least: float,
) -> str:
    """Describe how the errors of one output differ from rounding to `precision`; "" if they do not.

    Errors up to `least`, relative to the element and the typical size, are no mistake.
    """
    leaf = current.expected.leaves[index]
    error = value.double() - leaf.truth
    off = _largest(leaf.value, leaf.truth)
    name = short_name(precision)
    if (most := limits(problem, device, current, precision, index, least, off)) is None:
        return ""
    stray = int(numbers((error.abs() > most).sum()))
    if stray > _STRAY * error.numel():
        return f"{stray} of {error.numel()} elements are off by more than rounding to {name} explains"
    sides = _sides(error, leaf.truth, off)
    if max(sides) >= _ONE_SIDED and _balanced(problem, device, current, precision, index, sides, off):
        return f"the errors go one way, away from zero, while the errors of rounding to {name} go both ways"
    return ""


def limits(
    problem: RunningProblem,
    device: Device,
    current: Trial,
    precision: Precision,
    index: int,
    least: float,
    off: float,
    *,
    runs: int = RUNS,
) -> torch.Tensor | None:
    """Return how far each element of an output may be off, shaped like it; None if that is unknown.

    `off` is the largest error of float32 arithmetic. `least` is the error that is always allowed, relative to the
    element and the typical size. `runs` is the number of random runs that show the effect of rounding.
    """
    leaf = current.expected.leaves[index]
    squares, count = torch.zeros_like(leaf.truth), 0
    for run in itertools.islice(_runs(problem, device, current, precision, index), runs):
        squares += (run - leaf.truth).square_()
        count += 1
    if not count:
        return None
    size = leaf.truth.abs()
    rounding = squares.div_(count).sqrt_().add_(size, alpha=half_unit(precision)).mul_(_SPREAD)
    return rounding.add_(size, alpha=least).add_(least * leaf.typical + NOISE_FACTOR * off)


def _balanced(
    problem: RunningProblem,
    device: Device,
    current: Trial,
    precision: Precision,
    index: int,
    sides: tuple[float, float],
    off: float,
) -> bool:
    """Return True if rounding to `precision` errs both ways on those `sides` where the answer's errors go one way."""
    truth = current.expected.leaves[index].truth
    of_interest = [at for at, side in enumerate(sides) if side >= _ONE_SIDED]
    # If truncated operands err away from zero, truncating hardware does so, too, and that is no mistake.
    cut = _twin(problem, device, current, precision, lambda tensor: tensor.double() * (1 - half_unit(precision)))
    if cut and any(_sides(cut[index] - truth, truth, off)[at] > _BALANCED for at in of_interest):
        return False
    runs = itertools.islice(_runs(problem, device, current, precision, index), _SIDE_RUNS)
    return all(abs(_sides(run - truth, truth, off)[at]) <= _BALANCED for run in runs for at in of_interest)


def _sides(error: torch.Tensor, truth: torch.Tensor, off: float) -> tuple[float, float]:
    """Return the share of errors away from zero minus that towards zero, for positive and for negative elements.

    Errors up to `off` do not count. The share is 0 if too few errors are left.
    """
    counts = error.abs() > off
    found = []
    for sign in (1.0, -1.0):
        directions = torch.sign(error[counts & (torch.sign(truth) == sign)]) * sign
        found.append(float(numbers(directions.mean())) if directions.numel() >= _FEW else 0.0)
    return found[0], found[1]


def _runs(
    problem: RunningProblem, device: Device, current: Trial, precision: Precision, index: int
) -> Iterator[torch.Tensor]:
    """Yield float64 answers, each for operands moved by new random parts of half a unit of `precision`."""
    half = half_unit(precision)
    # The generator is separate, because each run of the reference resets torch's generator to the same seed.
    generator = torch.Generator(device.torch_device).manual_seed(secrets.randbits(63))

    def move(tensor: torch.Tensor) -> torch.Tensor:
        parts = torch.rand(tensor.shape, dtype=torch.float64, device=tensor.device, generator=generator)
        return parts.mul_(2 * half).add_(1 - half).mul_(tensor)

    while moved := _twin(problem, device, current, precision, move):
        yield moved[index]


def _twin(
    problem: RunningProblem, device: Device, current: Trial, precision: Precision, change: Change | None = None
) -> list[torch.Tensor]:
    """Return the float64 answer for operands of a tier; empty if there is none, or if its shapes differ."""
    try:
        twin = trial.twin_at(problem, current, precision, change) or []
    except (ReferenceFailure, RuntimeError):  # the reference has no rounded form, so its tiers are unknown
        return []
    wanted = [leaf.spec.shape for leaf in current.expected.leaves]
    return twin if [tuple(each.shape) for each in twin] == [tuple(shape) for shape in wanted] else []


def _largest(value: torch.Tensor, truth: torch.Tensor) -> float:
    """Return the largest difference. It is 0 where both are NaN or the same infinity."""
    if not value.numel():
        return 0.0
    return float(numbers((value.double() - truth).abs_().nan_to_num_(0.0, math.inf).max()))

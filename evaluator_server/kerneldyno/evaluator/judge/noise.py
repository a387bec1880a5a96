"""How far the answer of a large problem may be off, where a float64 run of all of it would take too much.

Either from some rows, computed in float64 (`Block`), or from a second run of the reference on inputs that are moved by as
much as float32 arithmetic may be wrong: what differs then is rounding, the algorithm that a call goes by, and conditioning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .. import tree
from ..devices.base import Device
from ..precision import BITS, round_to
from ..toolkits import Problem
from .compare import Expected, Leaf, chunks, differences, expect_like
from .inputs import Inputs
from .pieces import pieces

#: Relative change of inputs that float32 arithmetic can be as wrong as: four units in the last place.
SHAKE = 2.0**-22
#: Outputs that move by more than this, relative to their size, have crossed a step: that is no conditioning.
STEP = 2.5e-3
#: A reference that differs by more than this from run to run, relative to its size, has no answer to compare with.
_MOST_RANDOM = 0.05
#: What one run shows is this much less than what others may show.
_UNSEEN = 2.0


def shake_(tensor: torch.Tensor) -> None:
    """Move each element, in place, by a random part of what float32 arithmetic can do to it."""
    if tensor.dtype.itemsize == 1:
        return  # eight bits: nothing so small changes them
    for part in pieces(tensor):
        wide = torch.promote_types(part.dtype, torch.float32)
        factor = torch.rand(part.shape, dtype=wide, device=part.device).mul_(2 * SHAKE).add_(1 - SHAKE)
        part.copy_(factor.mul_(part))


def from_rows(structure: object, values: Sequence[torch.Tensor], which: torch.Tensor, rows: Expected) -> Expected:
    """Make an Expected of the reference's answer and of what is known of its rows `which`."""
    leaves = []
    for value, leaf in zip(values, rows.leaves, strict=True):
        noise = leaf.noise
        if value.is_floating_point() and leaf.noise_known:
            # All of it at once may go by another algorithm than some rows do.
            noise = max(noise, differences(value.index_select(0, which), leaf.truth, leaf.typical)[0])
        leaves.append(
            expect_like(
                value,
                _UNSEEN * noise,
                relative_noise=leaf.relative_noise,
                rounding=leaf.rounding,
                noise_known=leaf.noise_known,
            )
        )
    return Expected(structure, leaves)


def from_another_run(
    structure: object,
    values: Sequence[torch.Tensor],
    problem: Problem,
    device: Device,
    number: int,
    inputs: Inputs,
    seed: int,
    allowed: str,
) -> Expected:
    """Make an Expected of the reference's answer and of another one, to inputs that are moved a little."""
    moved = _run(problem, device, number, inputs, seed, "")
    again: Sequence[torch.Tensor] | None = None
    coarse = _run(problem, device, number, inputs, seed, allowed) if allowed in BITS else []
    leaves: list[Leaf] = []
    for at, value in enumerate(values):
        if not value.is_floating_point() or at >= len(moved) or moved[at].shape != value.shape:
            leaves.append(expect_like(value))
            continue
        leaf = expect_like(value)
        noise, relative = differences(moved[at], value, leaf.typical)
        known = relative <= STEP
        if not known:  # a step was crossed, unless the reference differs by as much on the very same inputs
            again = again or _run(problem, device, number, inputs, seed, None)
            noise, relative = differences(again[at], value, leaf.typical)
            known = 0 < relative <= _MOST_RANDOM
        rounding = 0.0
        if at < len(coarse) and coarse[at].shape == value.shape:
            # Parameters are not rounded here, and would add as much again.
            largest, off = differences(coarse[at], value, leaf.typical)
            noise, relative = max(noise, _UNSEEN * largest), max(relative, off)
            rounding = _UNSEEN * _rms(coarse[at], value)
        noise = _UNSEEN * noise if known or rounding else 0.0
        leaves.append(
            expect_like(
                value, noise, relative_noise=relative, rounding=rounding, noise_known=known, typical=leaf.typical
            )
        )
    return Expected(structure, leaves)


def _run(
    problem: Problem, device: Device, number: int, inputs: Inputs, seed: int, change: str | None
) -> list[torch.Tensor]:
    """Run the reference again on inputs that are shaken (""), rounded to a precision, or the same (None)."""
    region = inputs.master.clone()
    if change is not None:
        for view in tree.views(region, inputs.specs):
            if view.is_floating_point():
                for part in pieces(view):
                    if change:
                        part.copy_(round_to(part, BITS[change]))
                    else:
                        shake_(part)
    _, values = tree.flatten(problem.expected(number, inputs.arguments(region, device), seed))
    return values


def _rms(one: torch.Tensor, other: torch.Tensor) -> float:
    total = 0.0
    for left, right in zip(chunks(one.reshape(-1)), chunks(other.reshape(-1)), strict=True):
        total += float((left - right).float().square_().sum(dtype=torch.float64))
    return math.sqrt(total / max(1, one.numel()))

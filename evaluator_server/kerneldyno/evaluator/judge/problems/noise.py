"""How far the answer of a large problem may be off, if a float64 run of all of it would take too much.

The noise comes either from some rows, computed in float64 (`Block`), or from a second run of the reference on inputs
that are moved by as much as float32 arithmetic may be wrong. The difference then shows rounding, the algorithm that a
call chooses, and conditioning.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...shared import tree
from ...shared.enums import Precision
from ...shared.pieces import pieces
from ...shared.precision import round_to
from ...shared.running_problem import Answering, Call
from ..comparison.compare import Expected, Leaf, chunks, differences, expect_like, is_measured
from ..comparison.structures import rerun_noise
from .inputs import Inputs
from .tiers import BITS

#: Relative change of inputs within the error of good arithmetic: four units in the last place, of float32 and float64.
_SHAKE, _SHAKE_DOUBLE = 2.0**-22, 2.0**-51
#: An output that moves by more than this, relative to its size, has crossed a step; that is not conditioning.
STEP = 2.5e-3
#: A reference that differs by more than this from run to run, relative to its size, has no answer to compare with.
_MOST_RANDOM = 0.05
#: Other runs may be off by this many times what one run shows.
_UNSEEN = 2.0


def shake_of(values: Sequence[torch.Tensor]) -> float:
    """Return the relative change of inputs that good arithmetic may cause, for a reference that returned `values`."""
    measured = [value for value in values if is_measured(value)]
    doubles = measured and all(value.dtype == torch.float64 for value in measured)
    return _SHAKE_DOUBLE if doubles else _SHAKE


def shaken(tensor: torch.Tensor, most: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return a tensor in `dtype` with each element moved at random by a relative change of at most `most`."""
    factor = torch.rand(tensor.shape, dtype=dtype, device=tensor.device).mul_(2 * most).add_(1 - most)
    return factor.mul_(tensor)


def from_rows(structure: object, values: Sequence[torch.Tensor], which: torch.Tensor, rows: Expected) -> Expected:
    """Make an Expected from the reference's answer and what is known about its rows `which`."""
    leaves = []
    for value, leaf in zip(values, rows.leaves, strict=True):
        noise = leaf.noise
        if is_measured(value) and leaf.noise_known:
            # A run on all rows may use another algorithm than a run on some rows.
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
    problem: Answering,
    number: int,
    inputs: Inputs,
    seed: int,
    allowed: Precision,
) -> Expected:
    """Make an Expected from the reference's answer and its answer to slightly moved inputs."""
    most = shake_of(values)
    least = torch.float32 if most == _SHAKE else torch.float64  # no wider than necessary: the inputs are large
    move = lambda part: shaken(part, most, torch.promote_types(part.dtype, least))  # noqa: E731
    moved_structure, moved = _run(problem, number, inputs, seed, move)
    again: Sequence[torch.Tensor] | None = None
    coarse_structure: Any = None
    coarse: Sequence[torch.Tensor] = []
    if allowed in BITS:
        coarse_structure, coarse = _run(problem, number, inputs, seed, lambda part: round_to(part, BITS[allowed]))
    leaves: list[Leaf] = []
    for at, value in enumerate(values):
        if not is_measured(value) or at >= len(moved) or moved[at].shape != value.shape:
            leaves.append(expect_like(value))
            continue
        leaf = expect_like(value)
        noise, relative = differences(moved[at], value, leaf.typical)
        known = relative <= STEP
        if not known:  # a step was crossed, unless the reference differs as much on the very same inputs
            if again is None:
                again = _run(problem, number, inputs, seed)[1]
            known = at < len(again) and again[at].shape == value.shape
            if known:
                noise, relative = differences(again[at], value, leaf.typical)
                known = 0 < relative <= _MOST_RANDOM
        rounding = 0.0
        if at < len(coarse) and coarse[at].shape == value.shape:
            # Parameters are not rounded here; rounding them would add as much again.
            largest, off = differences(coarse[at], value, leaf.typical)
            noise, relative = max(noise, _UNSEEN * largest), max(relative, off)
            rounding = _UNSEEN * _rms(coarse[at], value)
        noise = _UNSEEN * noise if known or rounding else 0.0
        leaves.append(
            expect_like(
                value, noise, relative_noise=relative, rounding=rounding, noise_known=known, typical=leaf.typical
            )
        )
    again_noise = rerun_noise(structure, moved_structure, STEP, _UNSEEN)
    coarse_noise = rerun_noise(structure, coarse_structure, math.inf, _UNSEEN)
    number_noise = [max(pair) for pair in itertools.zip_longest(again_noise, coarse_noise, fillvalue=0.0)]
    return Expected(structure, leaves, number_noise)


def _run(
    problem: Answering,
    number: int,
    inputs: Inputs,
    seed: int,
    change: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> tuple[Any, list[torch.Tensor]]:
    """Run the reference again, on changed inputs if `change` is given. Return the structure and the tensors."""
    region = inputs.master.clone()
    if change is not None:
        for view in tree.views(region, inputs.specs):
            if is_measured(view):
                for part in pieces(view):
                    part.copy_(change(part))
    returned = problem.answer(Call(number, inputs.structure, inputs.specs, region, seed))
    return returned.structure, returned.values


def _rms(one: torch.Tensor, other: torch.Tensor) -> float:
    total = 0.0
    for left, right in zip(chunks(one.reshape(-1)), chunks(other.reshape(-1)), strict=True):
        total += float((left - right).float().square_().sum(dtype=torch.float64))
    return math.sqrt(total / max(1, one.numel()))

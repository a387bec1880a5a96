"""Answers that are wrong on stress inputs in a few elements: whether honest arithmetic explains those.

Stress makes some elements depend on rounding far more than others of their size do: large terms that cancel out, a weight
that is nearly all of a sum. One tolerance for all of an output does not follow that. So the float64 twin is run again on
operands that are moved a little, which tells how far each element may be off (`arithmetic.limits`).
Stress also makes the terms of sums and products larger than any that the problem's own inputs lead to, and an honest kernel
may have other terms than its reference. It may overflow in a few elements, and it may round more coarsely there: a chunked
recurrence adds up the logarithms of its decays, and the difference of two large sums has few digits left. So the operands
are moved by half a unit of the next coarser arithmetic. Called by `correctness` for what failed on stress alone: the
problem's own inputs leave no such excuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from kerneldyno.v1 import evaluation_pb2 as pb

from ...devices.base import Device
from ...shared import tree
from ...shared.spec import EvalSpec
from ..comparison.compare import Expected, beyond, is_measured, relative_tolerance
from ..problems import trial
from ..problems.cache import BuiltProblem
from ..problems.tiers import of_dtype
from ..problems.trial import Trial
from . import arithmetic

#: Largest share of elements, or of rows, that are excused: a wrong kernel is wrong in more of them. Attention over two keys
#: that weigh nearly the same is off in all elements of a row at once. Of overflow only rows tell: a softmax without the
#: right maximum overflows in one element, of nearly every row.
_FEW = 1e-3
_FEW_ROWS = 1e-2
#: The arithmetic that terms which the reference does not have may be as coarse as.
_COARSER = {pb.PRECISION_FP64: pb.PRECISION_FP32, pb.PRECISION_FP32: pb.PRECISION_TF32}


def explained(
    built: BuiltProblem, spec: EvalSpec, device: Device, current: Trial, number: int, slot: torch.Tensor
) -> str:
    """Return what to say of an answer whose few wrong elements honest arithmetic explains; "" where it does not.

    Raises ReferenceFailure, OutOfMemoryError.
    """
    expected = current.expected
    views = tree.views(slot, [leaf.spec for leaf in expected.leaves])
    wrong = _wrong(expected, views, spec)
    total, few = sum(view.numel() for view in views), sum(int(each.sum()) for each in wrong)
    if not wrong or (few > _FEW * total and not all(map(_in_few_rows, wrong))):
        return ""
    if current.block is not None and (found := _rows(built, spec, device, current, number, views, wrong)) is not None:
        current, views = found
        wrong = _wrong(current.expected, views, spec)
    tier = built.method.allowed(spec, views)
    for index, (leaf, value, which) in enumerate(zip(current.expected.leaves, views, wrong, strict=True)):
        if not bool(which.any()):
            continue
        if not leaf.has_twin:
            return ""
        least = relative_tolerance(value.dtype)
        off = float((leaf.value.double() - leaf.truth).abs().max())
        precision = tier or of_dtype(value.dtype)
        coarser = _COARSER.get(precision, precision)
        most = arithmetic.limits(built.problem, device, current, coarser, index, least, off)
        if most is None or not bool(((value.double() - leaf.truth).abs() <= most)[which].all()):
            return ""
    return f"{few} of {total} elements are out of tolerance by no more than rounding does to them"


def overflown(spec: EvalSpec, current: Trial, slot: torch.Tensor) -> str:
    """Return what to say of an answer of which a few rows have elements that are not finite, and all others are right.

    "" of any other, and where more than a few rows of one output have, however small it is. That excuses it only where it
    is right on weaker stress of the same kind, which the caller finds out.
    """
    views = tree.views(slot, [leaf.spec for leaf in current.expected.leaves])
    said = []
    for wrong, view in zip(_wrong(current.expected, views, spec), views, strict=False):
        hit, rows = _rows_hit(wrong)
        if hit > _FEW_ROWS * rows or bool((wrong & view.isfinite()).any()):
            return ""
        if hit:
            said.append(f"{int(wrong.sum())} elements, in {hit} of {rows} rows,")
    return f"{' and '.join(said)} are not finite, and on weaker ones all are right" if said else ""


def _rows_hit(wrong: torch.Tensor) -> tuple[int, int]:
    """Return how many rows (vectors along the last dimension) have a wrong element, and how many rows there are."""
    by_row = wrong.reshape(-1, wrong.shape[-1] if wrong.dim() > 1 else 1)
    return int(by_row.any(1).sum()), len(by_row)


def _in_few_rows(wrong: torch.Tensor) -> bool:
    hit, rows = _rows_hit(wrong)
    return hit <= _FEW_ROWS * rows


def _wrong(expected: Expected, views: Sequence[torch.Tensor], spec: EvalSpec) -> list[torch.Tensor]:
    """Return which elements of each leaf are out of tolerance; nothing where a leaf is none of measurements."""
    if not all(is_measured(leaf.value) for leaf in expected.leaves):
        return []
    return [beyond(leaf, view, spec.tolerance) for leaf, view in zip(expected.leaves, views, strict=True)]


def _rows(
    built: BuiltProblem,
    spec: EvalSpec,
    device: Device,
    current: Trial,
    number: int,
    views: Sequence[torch.Tensor],
    wrong: Sequence[torch.Tensor],
) -> tuple[Trial, list[torch.Tensor]] | None:
    """Return the rows of a large problem that have wrong elements, answered in float64 as well, and the candidate's."""
    excerpt = built.method.excerpt
    if excerpt is None or not excerpt.separable:
        return None
    hit = torch.zeros(excerpt.of, dtype=torch.bool, device=device.torch_device)
    for each in wrong:
        hit |= each.reshape(excerpt.of, -1).any(1)
    which = hit.nonzero().flatten()
    if len(which) > excerpt.rows:
        return None
    picked = excerpt.pick(current.inputs, which, device)
    rows = trial.answer(built.problem, spec, device, number, picked, method=replace(built.method, excerpt=None))
    return rows, [view.index_select(0, which) for view in views]

"""Answers that are wrong on stress inputs in a few elements: decide whether honest arithmetic explains those.

Stress makes some elements depend on rounding far more than others of their size do: large terms cancel, or one weight
is nearly all of a sum. One tolerance for a whole output does not cover that. So the float64 twin runs again on operands
that are moved a little, which shows how far each element may be off (`arithmetic.limits`).

Stress also makes the terms of sums and products larger than any that the problem's own inputs lead to, and an honest
kernel may have other terms than its reference. It may overflow in a few elements, and it may round more coarsely there:
a chunked recurrence adds up the logarithms of its decays, and the difference of two large sums has few digits left. So
the operands are moved by half a unit of the next coarser arithmetic. `correctness` calls this only for answers that
failed on stress inputs: on the problem's own inputs there is no such excuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ...devices.base import Device
from ...shared import tree
from ...shared.enums import Precision
from ...shared.spec import EvalSpec
from ..comparison.compare import Expected, beyond, is_measured
from ..comparison.rules import relative_tolerance
from ..problems import trial
from ..problems.cache import BuiltProblem
from ..problems.tiers import of_dtype
from ..problems.trial import Trial
from . import arithmetic

#: Largest share of elements, or of rows, that is excused: a wrong kernel is wrong in more of them. Attention over two
#: keys of nearly equal weight is off in all elements of a row at once. For overflow only rows count: a softmax without
#: the right maximum overflows in one element of nearly every row.
_FEW = 1e-3
_FEW_ROWS = 1e-2
#: One row that overflows is few if an output has at least this many rows, although it is more than the share above.
_ROWS_FOR_ONE = 20
#: Runs that show the effect of rounding before an answer counts as wrong. Rounding seldom turns one key of attention
#: into another, and then by much: 3 runs missed that for 5 of 400 honest rows, 12 for 2 of 600.
_MORE_RUNS = 12
#: Terms that the reference does not have may be computed in this coarser arithmetic.
_COARSER = {Precision.FP64: Precision.FP32, Precision.FP32: Precision.TF32}


def explained(
    built: BuiltProblem, spec: EvalSpec, device: Device, current: Trial, number: int, slot: torch.Tensor
) -> str:
    """Describe an answer whose few wrong elements honest arithmetic explains; "" if it does not.

    Raises ReferenceFailure, OutOfMemoryError.
    """
    expected = current.expected
    views = tree.views(slot, [leaf.spec for leaf in expected.leaves])
    wrong = _wrong(expected, views, spec)
    total, few = sum(view.numel() for view in views), sum(int(each.sum()) for each in wrong)
    if not few or (few > _FEW * total and not all(map(_in_few_rows, wrong))):
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
        error = (value.double() - leaf.truth).abs()
        for runs in (arithmetic.RUNS, _MORE_RUNS):
            most = arithmetic.limits(built.problem, device, current, coarser, index, least, off, runs=runs)
            if most is not None and bool((error <= most)[which].all()):
                break
        else:
            return ""
    return f"{few} of {total} elements are out of tolerance by no more than rounding explains"


def overflown(spec: EvalSpec, current: Trial, slot: torch.Tensor) -> str:
    """Describe an answer in which a few rows have elements that are not finite, and all other elements are right.

    Return "" for any other answer, and also if more than a few rows of one output have such elements, however small it
    is. This excuses the answer only if it is right on weaker stress of the same kind; the caller checks that.
    """
    views = tree.views(slot, [leaf.spec for leaf in current.expected.leaves])
    said = []
    for wrong, view in zip(_wrong(current.expected, views, spec), views, strict=False):
        hit, rows = _rows_hit(wrong)
        least = 1 if rows >= _ROWS_FOR_ONE else 0
        if hit > max(_FEW_ROWS * rows, least) or bool((wrong & view.isfinite()).any()):
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
    """Return which elements of each leaf are out of tolerance; empty if a leaf's errors cannot be measured."""
    if not all(is_measured(leaf.value) for leaf in expected.leaves):
        return []
    return [beyond(leaf, view, spec.checks.rules.tolerance) for leaf, view in zip(expected.leaves, views, strict=True)]


def _rows(
    built: BuiltProblem,
    spec: EvalSpec,
    device: Device,
    current: Trial,
    number: int,
    views: Sequence[torch.Tensor],
    wrong: Sequence[torch.Tensor],
) -> tuple[Trial, list[torch.Tensor]] | None:
    """Return the rows of a large problem that have wrong elements, also answered in float64, and the candidate's rows.

    Return None if there are too many, or if rows are not independent.
    """
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

"""Tiers of arithmetic precision: the error that each tier causes in a problem, and the tier that an error looks like.

The float64 twin of the reference runs again on operands that are rounded to a tier's mantissa. The change of its output
is the error that arithmetic of this tier causes in this very problem; a table of constants could not know it. Half
precision and TensorFloat-32 both round operands to 11 significant bits and differ only in range, so only the output's
dtype tells them apart. The contract numbers the tiers from fine to coarse, so a larger number is a coarser tier.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch

from ...shared.enums import Precision
from ..runners.work import numbers

#: Explicit mantissa bits of each tier.
BITS: Mapping[Precision, int] = {
    Precision.FP64: 52,
    Precision.FP32: 23,
    Precision.TF32: 10,
    Precision.FP16: 10,
    Precision.BF16: 7,
    Precision.FP8: 3,
}
#: The tiers that errors can tell apart, from precise to coarse.
RECOGNISED = (Precision.TF32, Precision.BF16, Precision.FP8)
#: An error larger than a tier's error times this was not caused by rounding operands to that tier.
_BEYOND = 4.0
#: Errors tell two tiers apart when the ratio of the tiers' errors is larger than this.
_APART = 4.0
_OF_DTYPE = {
    torch.float64: Precision.FP64,
    torch.float32: Precision.FP32,
    torch.float16: Precision.FP16,
    torch.bfloat16: Precision.BF16,
}


def half_unit(precision: Precision) -> float:
    """Return the largest relative error of rounding to the nearest number of a tier."""
    return 2.0 ** -(BITS[precision] + 1)


def of_dtype(dtype: torch.dtype) -> Precision:
    """Return the tier that has the precision of `dtype`."""
    return _OF_DTYPE.get(dtype, Precision.UNSPECIFIED)


def coarser(precision: Precision, values: Sequence[torch.Tensor]) -> bool:
    """Return True if `precision` is coarser than the dtype of at least one of `values`."""
    if precision == Precision.UNSPECIFIED:
        return False
    return any(BITS[precision] < BITS.get(of_dtype(value.dtype), 0) for value in values)


def rms(tensor: torch.Tensor) -> float:
    """Return the root mean square of the finite elements, computed in float64."""
    wide = tensor.reshape(-1).double()
    square: float = numbers(torch.dot(wide, wide))
    if not math.isfinite(square):
        wide = wide[torch.isfinite(wide)]
        square = numbers(torch.dot(wide, wide))
    return math.sqrt(square / wide.numel()) if wide.numel() else 0.0


def recognise(error: float, own: float, tiers: Iterable[tuple[Precision, float]], stored: Precision) -> Precision:
    """Return the tier that caused an error, judging by its size.

    The result is a coarser tier only when the error is nearer (as a ratio) to that tier's error than to that of the
    tier before. An error far beyond that of the coarsest tier belongs to no tier: the output is simply wrong, and
    `stored` is returned.

    Args:
        error: The RMS error of the output.
        own: The reference's own RMS error.
        tiers: Tiers and their RMS errors, finest first. Only as many are consumed as needed.
        stored: The tier of the output's dtype.
    """
    best, floor = stored, max(own, 1e-300)
    for name, expected in tiers:
        if expected <= _APART * floor:  # this problem cannot tell these two tiers apart
            continue
        if error < math.sqrt(floor * expected):
            break
        best, floor = name, expected
        if error < math.sqrt(_APART) * floor:
            break  # a coarser tier that can be told apart is not nearer
    return best if best == stored or error <= _BEYOND * floor else stored

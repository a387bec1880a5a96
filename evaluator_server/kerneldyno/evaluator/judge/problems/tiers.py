"""Tiers of arithmetic precision: what operands rounded to fewer bits do to a problem's output, and what an error looks like.

The float64 twin of the reference is run again on operands rounded to a tier's mantissa. How far its output moves is what
arithmetic of that tier costs on this very problem; a table of constants could not know it. Half precision and TensorFloat-32
round operands to the same 11 significant bits and differ only in range, so they are told apart by the output's dtype alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch

from kerneldyno.v1 import evaluation_pb2 as pb

#: Explicit mantissa bits of each tier.
BITS: Mapping[pb.Precision.ValueType, int] = {
    pb.PRECISION_FP64: 52,
    pb.PRECISION_FP32: 23,
    pb.PRECISION_TF32: 10,
    pb.PRECISION_FP16: 10,
    pb.PRECISION_BF16: 7,
    pb.PRECISION_FP8: 3,
}
#: From precise to coarse, as far as errors can tell them apart.
RECOGNISED = (pb.PRECISION_TF32, pb.PRECISION_BF16, pb.PRECISION_FP8)
#: An error so many times that of a tier is not made by rounding operands to it.
_BEYOND = 4.0
#: Two tiers can be told apart where the errors of one are more than so many times those of the other.
_APART = 4.0
_OF_DTYPE = {
    torch.float64: pb.PRECISION_FP64,
    torch.float32: pb.PRECISION_FP32,
    torch.float16: pb.PRECISION_FP16,
    torch.bfloat16: pb.PRECISION_BF16,
}


def half_unit(precision: pb.Precision.ValueType) -> float:
    """Return the largest relative error of rounding to a tier, to nearest."""
    return 2.0 ** -(BITS[precision] + 1)


def of_dtype(dtype: torch.dtype) -> pb.Precision.ValueType:
    """Return the tier in which tensors of `dtype` are stored."""
    return _OF_DTYPE.get(dtype, pb.PRECISION_UNSPECIFIED)


def coarser(precision: pb.Precision.ValueType, values: Sequence[torch.Tensor]) -> bool:
    """Say whether `precision` allows less than the dtypes of `values` themselves do."""
    if precision == pb.PRECISION_UNSPECIFIED:
        return False
    return any(BITS[precision] < BITS.get(of_dtype(value.dtype), 0) for value in values)


def rms(tensor: torch.Tensor) -> float:
    """Root mean square of the finite elements, in float64."""
    wide = tensor.reshape(-1).double()
    square = float(torch.dot(wide, wide))
    if not math.isfinite(square):
        wide = wide[torch.isfinite(wide)]
        square = float(torch.dot(wide, wide))
    return math.sqrt(square / wide.numel()) if wide.numel() else 0.0


def recognise(
    error: float, own: float, tiers: Iterable[tuple[pb.Precision.ValueType, float]], stored: pb.Precision.ValueType
) -> pb.Precision.ValueType:
    """Return the tier that an RMS `error` looks like. `own` is the reference's own error, `tiers` those of each tier.

    An error is called that of a coarser tier only when it is nearer to it (in ratio) than to the tier before. One far
    beyond the coarsest is no tier's: it is simply wrong. Of `tiers`, finest first, no more are taken than it needs.
    """
    best, floor = stored, max(own, 1e-300)
    for name, expected in tiers:
        if expected <= _APART * floor:  # this problem cannot tell the two apart
            continue
        if error < math.sqrt(floor * expected):
            break
        best, floor = name, expected
        if error < math.sqrt(_APART) * floor:
            break  # a coarser one that can be told apart is no nearer
    return best if best == stored or error <= _BEYOND * floor else stored

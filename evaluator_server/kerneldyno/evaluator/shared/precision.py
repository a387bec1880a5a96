"""Tiers of arithmetic precision: what operands rounded to fewer bits do to a problem's output, and what an error looks like.

The float64 twin of the reference is run again on operands rounded to a tier's mantissa. How far its output moves is what
arithmetic of that tier costs on this very problem; a table of constants could not know it. Half precision and TensorFloat-32
round operands to the same 11 significant bits and differ only in range, so they are told apart by the output's dtype alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch

#: Explicit mantissa bits of each tier.
BITS = {
    "PRECISION_FP64": 52,
    "PRECISION_FP32": 23,
    "PRECISION_TF32": 10,
    "PRECISION_FP16": 10,
    "PRECISION_BF16": 7,
    "PRECISION_FP8": 3,
}
#: From precise to coarse, as far as errors can tell them apart.
RECOGNISED = ("PRECISION_TF32", "PRECISION_BF16", "PRECISION_FP8")
#: An error so many times that of a tier is not made by rounding operands to it.
_BEYOND = 4.0
#: Two tiers can be told apart where the errors of one are more than so many times those of the other.
_APART = 4.0
_OF_DTYPE = {
    torch.float64: "PRECISION_FP64",
    torch.float32: "PRECISION_FP32",
    torch.float16: "PRECISION_FP16",
    torch.bfloat16: "PRECISION_BF16",
}


def half_unit(precision: str) -> float:
    """Return the largest relative error of rounding to a tier, to nearest."""
    return 2.0 ** -(BITS[precision] + 1)


def of_dtype(dtype: torch.dtype) -> str:
    """Return the tier in which tensors of `dtype` are stored."""
    return _OF_DTYPE.get(dtype, "PRECISION_UNSPECIFIED")


def coarser(precision: str, values: Sequence[torch.Tensor]) -> bool:
    """Say whether `precision` allows less than the dtypes of `values` themselves do."""
    if precision == "PRECISION_UNSPECIFIED":
        return False
    return any(BITS[precision] < BITS.get(of_dtype(value.dtype), 0) for value in values)


def round_to(tensor: torch.Tensor, bits: int) -> torch.Tensor:
    """Round to `bits` explicit mantissa bits, to nearest even, in the tensor's own dtype; the range is not limited."""
    wide = tensor if tensor.dtype == torch.float64 else tensor.float()
    as_integer, stored = (torch.int64, 52) if wide.dtype == torch.float64 else (torch.int32, 23)
    surplus = stored - bits
    if surplus <= 0:
        return tensor
    pattern = wide.contiguous().view(as_integer)
    even = (pattern >> surplus) & 1
    rounded = (pattern + ((1 << (surplus - 1)) - 1) + even) & -(1 << surplus)
    return rounded.view(wide.dtype).to(tensor.dtype)


def rms(tensor: torch.Tensor) -> float:
    """Root mean square of the finite elements, in float64."""
    wide = tensor.reshape(-1).double()
    square = float(torch.dot(wide, wide))
    if not math.isfinite(square):
        wide = wide[torch.isfinite(wide)]
        square = float(torch.dot(wide, wide))
    return math.sqrt(square / wide.numel()) if wide.numel() else 0.0


def recognise(error: float, own: float, tiers: Iterable[tuple[str, float]], stored: str) -> str:
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

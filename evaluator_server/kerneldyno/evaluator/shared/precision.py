"""Rounding to fewer bits: for toolkits, and for the judge's tiers of precision (`judge/problems/tiers.py`)."""

from __future__ import annotations

import torch


def round_to(tensor: torch.Tensor, bits: int) -> torch.Tensor:
    """Round to `bits` explicit mantissa bits, to nearest even, keeping the tensor's dtype; do not limit the range."""
    wide = tensor if tensor.dtype == torch.float64 else tensor.float()
    as_integer, stored = (torch.int64, 52) if wide.dtype == torch.float64 else (torch.int32, 23)
    surplus = stored - bits
    if surplus <= 0:
        return tensor
    pattern = wide.contiguous().view(as_integer)
    even = (pattern >> surplus) & 1
    rounded = (pattern + ((1 << (surplus - 1)) - 1) + even) & -(1 << surplus)
    return rounded.view(wide.dtype).to(tensor.dtype)

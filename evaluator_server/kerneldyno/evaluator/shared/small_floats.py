"""Floating-point numbers of eight bits and fewer: torch stores them, and computes with hardly any of them.

So they are widened to float32 before anything is computed, and compared by their codes: how many numbers of the format lie
between two of them. https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf has the formats.
"""

from __future__ import annotations

import torch

#: Formats with a sign.
_SIGNED = {
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
    if hasattr(torch, name)
}
#: Powers of two, which scale blocks of others.
_SCALES = {getattr(torch, name) for name in ("float8_e8m0fnu",) if hasattr(torch, name)}
#: Two numbers in a byte, that of lower bits first. Not even copies of these are made.
_PAIRS = {getattr(torch, name) for name in ("float4_e2m1fn_x2",) if hasattr(torch, name)}
#: What a pair's three lower bits stand for.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
#: Place of what is no finite number, to which is added what it is.
_ODD = 10_000


def is_coded(dtype: torch.dtype) -> bool:
    """Say whether `dtype` is such a format."""
    return dtype in _SIGNED or dtype in _SCALES or dtype in _PAIRS


def can_vary(dtype: torch.dtype) -> bool:
    """Say whether numbers of a format stand for measurements, and not for scales or for packed ones."""
    return dtype in _SIGNED


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that can be copied: itself, or its bytes."""
    return tensor.view(torch.uint8) if tensor.dtype in _PAIRS else tensor


def cloned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of any tensor."""
    return raw(tensor).clone().view(tensor.dtype)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a coded tensor in float32, with twice as many columns where a byte holds two; others as they are."""
    if tensor.dtype in _PAIRS:
        codes = tensor.view(torch.uint8)
        table = torch.tensor([*_E2M1, *(-value for value in _E2M1)], device=tensor.device)
        return torch.stack((table[(codes & 15).long()], table[(codes >> 4).long()]), -1).flatten(-2)
    return tensor.float() if is_coded(tensor.dtype) else tensor


def narrowed(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in `dtype`; what a coded one does not reach becomes its largest number."""
    if dtype in _SIGNED:
        largest = torch.finfo(dtype).max
        tensor = tensor.clamp(-largest, largest)
    return tensor.to(dtype)


def codes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the place of each number among those of its format (int16); zeros of both signs have the same.

    What is no number has one of the largest places, far from every number.
    """
    bits = tensor.view(torch.uint8).to(torch.int16)
    if tensor.dtype in _PAIRS:
        bits = torch.stack((bits & 15, bits >> 4), -1).flatten(-2)
        return torch.where(bits < 8, bits, 8 - bits)
    places = bits if tensor.dtype in _SCALES else torch.where(bits < 128, bits, 128 - bits)
    return torch.where(torch.isfinite(tensor.float()), places, _ODD + _kind(tensor.float()))


def _kind(tensor: torch.Tensor) -> torch.Tensor:
    """Return 1000 for what is no number, 2000 and 3000 for the infinities."""
    kind = torch.where(tensor > 0, 2000, 3000)
    return torch.where(torch.isnan(tensor), 1000, kind).to(torch.int16)

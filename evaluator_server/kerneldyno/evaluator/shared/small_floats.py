"""Floating-point numbers of eight bits or fewer: torch stores them, but supports hardly any arithmetic on them.

So this module widens them to float32 before any computation, and compares them by their codes: how many numbers of the
format lie between two values. Formats:
https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf
"""

from __future__ import annotations

import torch

from .plain_tensors import resolved

#: Formats with a sign.
_SIGNED = {
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
    if hasattr(torch, name)
}
#: Formats of powers of two, which serve as scales for blocks of other numbers.
_SCALES = {getattr(torch, name) for name in ("float8_e8m0fnu",) if hasattr(torch, name)}
#: Formats with two numbers per byte, the first one in the lower bits. torch cannot even copy them.
_PAIRS = {getattr(torch, name) for name in ("float4_e2m1fn_x2",) if hasattr(torch, name)}
#: The values of a number's three lower bits.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
#: Codes of values that are not finite start above this.
_ODD = 10_000


def is_coded(dtype: torch.dtype) -> bool:
    """Return True if `dtype` is one of these formats."""
    return dtype in _SIGNED or dtype in _SCALES or dtype in _PAIRS


def can_vary(dtype: torch.dtype) -> bool:
    """Return True if numbers of this format hold data, and are neither scales nor packed pairs."""
    return dtype in _SIGNED


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that torch can copy: the tensor itself, or its bytes."""
    return tensor.view(torch.uint8) if tensor.dtype in _PAIRS else tensor


def cloned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of any tensor, also of formats that torch cannot copy. Its memory holds its values."""
    return resolved(raw(tensor).clone()).view(tensor.dtype)


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if all elements of two tensors of one dtype are equal; torch cannot compare some formats."""
    if one.is_complex():
        one, other = (torch.view_as_real(each.resolve_conj()) for each in (one, other))
    return bool(torch.equal(widened(one), widened(other)))


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of such a format in float32, and others unchanged. Packed pairs give twice as many columns."""
    if tensor.dtype in _PAIRS:
        codes = tensor.view(torch.uint8)
        table = torch.tensor([*_E2M1, *(-value for value in _E2M1)], device=tensor.device)
        return _in_turn(table[(codes & 15).long()], table[(codes >> 4).long()])
    return tensor.float() if is_coded(tensor.dtype) else tensor


def narrowed(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert a tensor to `dtype`. In signed formats, values beyond the range become the format's largest number."""
    if dtype in _SIGNED:
        largest = torch.finfo(dtype).max
        tensor = tensor.clamp(-largest, largest)
    return tensor.to(dtype)


def codes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the position of each number among the numbers of its format (int16). Both zeros have the same position.

    Values that are not finite get the largest positions, far from every number.
    """
    bits = tensor.view(torch.uint8).to(torch.int16)
    if tensor.dtype in _PAIRS:
        bits = _in_turn(bits & 15, bits >> 4)
        return torch.where(bits < 8, bits, 8 - bits)
    places = bits if tensor.dtype in _SCALES else torch.where(bits < 128, bits, 128 - bits)
    return torch.where(torch.isfinite(tensor.float()), places, _ODD + _kind(tensor.float()))


def _in_turn(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the elements of two tensors in turn, in twice as many columns; two elements for a single pair."""
    pairs = torch.stack((first, second), -1)
    return pairs.flatten(-2) if first.dim() else pairs


def _kind(tensor: torch.Tensor) -> torch.Tensor:
    """Return 1000 for NaN, 2000 for positive infinity, 3000 for negative infinity."""
    kind = torch.where(tensor > 0, 2000, 3000)
    return torch.where(torch.isnan(tensor), 1000, kind).to(torch.int16)

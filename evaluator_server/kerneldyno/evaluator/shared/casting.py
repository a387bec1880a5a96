"""Posing a problem in another precision: casting inputs, and the parameters and buffers of modules.

KernelBench's `precision` does the same with torch's dtypes. torch can hardly compute with numbers of eight bits, so FP8
means values that e4m3 can hold, times a power of two for each tensor, in bfloat16, which holds these exactly. A candidate
may convert them to e4m3 and back without losing anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from . import small_floats, tree
from .enums import Precision
from .pieces import pieces

_DTYPES: Mapping[int, torch.dtype] = {
    Precision.FP64: torch.float64,
    Precision.FP32: torch.float32,
    Precision.FP16: torch.float16,
    Precision.BF16: torch.bfloat16,
    Precision.FP8: torch.bfloat16,
}
_E4M3 = torch.float8_e4m3fn


def cast(value: Any, precision: int) -> Any:
    """Return `value` with every floating-point tensor in it cast. Tensors of eight bits or fewer stay as they are."""
    if not precision:
        return value
    return tree.mapped(value, lambda tensor: _cast(tensor, precision) if _is_cast(tensor) else tensor)


def cast_module(module: torch.nn.Module, precision: int) -> torch.nn.Module:
    """Cast the parameters and buffers of `module`, and return it. Those of lazy modules have no values to round yet."""
    if not precision:
        return module
    if any(tensor.is_complex() for tensor in (*module.parameters(), *module.buffers())):
        cast_each: Callable[..., Any] = module._apply  # `to` would cast complex numbers to real ones
        cast_each(lambda tensor: _cast(tensor, precision) if _is_cast(tensor) else tensor)
        return module
    exact = module.to(_DTYPES[precision])
    with torch.no_grad():
        round_(tuple(exact.parameters()) + tuple(exact.buffers()), precision)
    return exact


def round_(tensors: Iterable[torch.Tensor], precision: int) -> None:
    """Round tensors in place, which were cast and then changed, to values of the precision. Only FP8 needs this."""
    if precision == Precision.FP8:
        for tensor in tensors:
            if _is_cast(tensor):
                _round_to_e4m3(tensor)


def _is_cast(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and not is_lazy(tensor) and not small_floats.is_coded(tensor.dtype)


def _cast(tensor: torch.Tensor, precision: int) -> torch.Tensor:
    if precision == Precision.FP8:
        tensor = tensor.detach().clone()
        _round_to_e4m3(tensor)
    return tensor.to(_DTYPES[precision])


def _round_to_e4m3(tensor: torch.Tensor) -> None:
    """Round to values that e4m3 can hold, times the power of two that brings the largest one into its range."""
    if tensor.is_meta or not tensor.numel():
        return
    # Powers of two are exact in the tensor's own arithmetic: large tensors need no copy in float64.
    wide = torch.promote_types(tensor.dtype, torch.float32)
    largest = torch.stack(tensor.aminmax()).abs().max().to(wide)
    # frexp: largest = mantissa * 2^exponent with a mantissa from 0.5 to 1, and e4m3 ends at 448 = 0.875 * 2^9.
    mantissa, exponent = torch.frexp(largest)
    scale = torch.exp2((exponent - 9 + (mantissa > 0.875)).to(wide)).clamp(min=torch.finfo(torch.float32).tiny)
    scale = torch.where(torch.isfinite(largest) & (largest > 0), scale, torch.ones_like(scale))
    for piece in pieces(tensor):
        scaled = (piece.to(wide) / scale).float()
        piece.copy_(small_floats.narrowed(scaled, _E4M3).float() * scale.float())

"""Which tensors can pass between judge and runner: plain, dense ones, with memory of their own that torch can copy.

Every other tensor is refused by name, with what to do instead. It must be refused before anything uses it: torch reads
a quantised tensor, or one whose memory was released, at addresses that are not its own, and the process dies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Dtypes that torch can copy, or that have the size of one that it can copy (`small_floats.raw`).
DTYPES = frozenset(
    getattr(torch, name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
    )
    if hasattr(torch, name)
)
#: How torch's names of layouts begin, and what tensors of these layouts are.
_KINDS = (("torch.sparse", "sparse tensor"), ("torch._mkldnn", "oneDNN tensor"))
#: Sets of dispatch keys that only plain tensors have, as seen so far. Asking torch each question takes longer.
_seen: set[int] = set()

_keys: Callable[[torch.Tensor], Any] = torch._C._dispatch_keys
_is_transformed: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor
_is_functional: Callable[[torch.Tensor], bool] = torch._is_functional_tensor


class UnsupportedValueError(TypeError):
    """A value of a type that cannot pass between judge and runner."""


class NotPlainTensorError(UnsupportedValueError):
    """A tensor that may run code when it is used: of a subclass, or an instance with its own methods."""


def require_plain(tensor: torch.Tensor, *, is_sketch: bool = False) -> torch.Tensor:
    """Return `tensor`. Raises UnsupportedValueError if it cannot pass between judge and runner.

    With `is_sketch`, a tensor on the device "meta" passes: only its shape will be used.
    """
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise NotPlainTensorError(f"a tensor of class {type(tensor).__name__}; return plain tensors")
    if tensor.__dict__ and any(callable(value) for value in tensor.__dict__.values()):
        raise NotPlainTensorError("a tensor with methods of its own; return plain tensors")
    if is_sketch and tensor.is_meta:
        return tensor
    if said := _objection(tensor):
        raise UnsupportedValueError(said)
    return tensor


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose memory holds its values: torch conjugates and negates some only when it reads them."""
    return tensor.resolve_conj().resolve_neg()


def _objection(tensor: torch.Tensor) -> str:
    """Say why a tensor cannot pass; "" if it can."""
    keys: int = _keys(tensor).raw_repr()
    if keys not in _seen:
        if said := _unlike_plain(tensor):
            return said
        _seen.add(keys)
    if tensor.dtype not in DTYPES:
        return f"a tensor of dtype {tensor.dtype}, which torch cannot copy; use its bytes: call .view(torch.uint8)"
    return _lacks_memory(tensor)


def _unlike_plain(tensor: torch.Tensor) -> str:
    """Say what kind of tensor it is, if torch has other code for it than for plain ones; "" if it has not."""
    if _is_transformed(tensor) or _is_functional(tensor):
        return "a tensor inside of a function transform, which has ended (torch.func, torch.vmap); return its result"
    if tensor.layout is not torch.strided:
        kind = next((word for begin, word in _KINDS if str(tensor.layout).startswith(begin)), "tensor")
        return f"a {kind} (layout {tensor.layout}); use a dense one: call .to_dense()"
    if tensor.is_nested:
        return "a nested tensor; use a list of tensors: call .unbind()"
    if tensor.is_quantized:
        return f"a quantised tensor (dtype {tensor.dtype}); use numbers: call .dequantize() or .int_repr()"
    if tensor.is_meta:
        return 'a tensor on the device "meta", which has no values; make it on a device with memory'
    return ""


def _lacks_memory(tensor: torch.Tensor) -> str:
    """Say how the memory of a tensor is too small for its elements; "" if it is not."""
    if not tensor.numel():
        return ""
    try:
        held = tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError):
        return "a tensor that has no memory of its own; use a plain one: call .clone() where it is made"
    if tensor.is_contiguous():
        reach = tensor.numel()
    else:
        reach = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (tensor.storage_offset() + reach) * tensor.element_size()
    if needed <= held:
        return ""
    return f"a tensor whose memory was released: its elements need {needed} bytes, and {held} are left"

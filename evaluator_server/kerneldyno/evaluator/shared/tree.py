"""Arguments and results as JSON, with descriptions of tensors: values pass between judge and runner without pickle.

`flatten` splits a value into a JSON structure and its tensors (`values.py` says which values); `rebuild` reverses this.
`layout` computes the places of tensors in an arena, by the same rule on both sides. The judge compares structures from
a runner; it never rebuilds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .plain_tensors import NotPlainTensorError, UnsupportedValueError, require_plain, resolved
from .values import flatten, mapped, numbers, ordered, parts, rebuild

__all__ = [
    "ALIGNMENT",
    "NotPlainTensorError",
    "TensorSpec",
    "UnsupportedValueError",
    "checksum",
    "dense_state",
    "describe",
    "flatten",
    "is_dense",
    "layout",
    "mapped",
    "numbers",
    "ordered",
    "parts",
    "position",
    "rebuild",
    "require_plain",
    "resolved",
    "stacked",
    "views",
]

#: Alignment of each tensor in an arena, in bytes: the same as cudaMalloc's, so that kernels get the usual alignment.
ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The description of a tensor, without its values. `stride` is in elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    on_device: bool

    @property
    def torch_dtype(self) -> torch.dtype:
        """Return the dtype as PyTorch's object. Raises UnsupportedValueError for an unknown name."""
        dtype = getattr(torch, self.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise UnsupportedValueError(f"unknown dtype {self.dtype!r}")
        return dtype

    @property
    def layout(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return shape and stride."""
        return self.shape, self.stride

    @property
    def nbytes(self) -> int:
        """Return how many bytes its elements take without gaps."""
        count = 1
        for size in self.shape:
            count *= size
        return count * self.torch_dtype.itemsize

    def to_json(self) -> list[Any]:
        """Return the form that passes between judge and runner."""
        return [self.dtype, list(self.shape), list(self.stride), self.on_device]

    @classmethod
    def from_json(cls, value: Any) -> TensorSpec:
        """Read the output of `to_json`.

        Raises UnsupportedValueError for anything else, since a runner may have sent it.
        """
        match value:
            case [str(dtype), [*shape], [*stride], bool(on_device)] if (
                all(type(number) is int and 0 <= number < 1 << 48 for number in [*shape, *stride])
                and len(shape) == len(stride) <= 64
            ):
                return cls(dtype, tuple(shape), tuple(stride), on_device)
        raise UnsupportedValueError("not a tensor description")


def describe(tensor: torch.Tensor, *, keep_layout: bool = True) -> TensorSpec:
    """Describe `tensor`.

    Keep its strides if `keep_layout` and it is dense (not expanded, not sliced), else contiguous ones.
    """
    shape = tuple(tensor.shape)
    dense = keep_layout and _is_permuted(tensor)
    stride = tuple(tensor.stride()) if dense else _contiguous(shape)
    return TensorSpec(str(tensor.dtype).removeprefix("torch."), shape, stride, tensor.device.type != "cpu")


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor, in elements, as torch computes them."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _is_permuted(tensor: torch.Tensor) -> bool:
    if tensor.numel() == 0:
        return tensor.is_contiguous()
    return is_dense(tensor.shape, tensor.stride())


def is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return True if a tensor of this layout fills its memory without gaps, in any order of dimensions."""
    expected = 1
    for size, step in sorted(zip(shape, stride, strict=True), key=lambda pair: pair[1]):
        if size != 1:
            if step != expected:
                return False
            expected *= size
    return True


def position(flat: int, shape: Sequence[int]) -> list[int]:
    """Return the index of the element number `flat`. (torch.unravel_index imports sympy to compute this.)"""
    position: list[int] = []
    for size in reversed(shape):
        flat, index = divmod(flat, size)
        position.insert(0, index)
    return position


def dense_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a module's parameters and buffers by name, without sparse and quantised ones."""
    return {
        name: tensor
        for name, tensor in module.state_dict().items()
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and not tensor.is_quantized
    }


def checksum(tensor: torch.Tensor) -> int:
    """Return the sum of the bits of all elements; it does not depend on the order of the elements."""
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize]
    return int(tensor.detach().contiguous().view(whole).sum(dtype=torch.int64)) if tensor.numel() else 0


def layout(specs: Sequence[TensorSpec]) -> tuple[list[int], int]:
    """Return the offset of each tensor in a region, and the region's size, in bytes (never 0)."""
    offsets: list[int] = []
    position = 0
    for spec in specs:
        offsets.append(position)
        position += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, max(position, ALIGNMENT)


def views(region: torch.Tensor, specs: Sequence[TensorSpec]) -> list[torch.Tensor]:
    """Return tensors with these descriptions over the bytes of `region` (uint8, 1-D), at the places from `layout`."""
    offsets, _ = layout(specs)
    result = []
    for offset, spec in zip(offsets, specs, strict=True):
        flat = region[offset : offset + spec.nbytes].view(spec.torch_dtype)
        result.append(flat.as_strided(spec.shape, spec.stride, flat.storage_offset()))
    return result


def stacked(region: torch.Tensor, specs: Sequence[TensorSpec], count: int) -> list[torch.Tensor]:
    """Return views over `count` consecutive sets of tensors, each set laid out by `layout`.

    Returns:
        One tensor of shape (count, elements) per description.
    """
    offsets, size = layout(specs)
    result = []
    for offset, spec in zip(offsets, specs, strict=True):
        item = spec.torch_dtype.itemsize
        flat = region[offset : offset + spec.nbytes].view(spec.torch_dtype)
        result.append(flat.as_strided((count, spec.nbytes // item), (size // item, 1), flat.storage_offset()))
    return result

"""Modules between their construction and their first use: moved to the device, cast, dense, and materialised.

The toolkits and the candidate's runner do the same to both modules, so equal modules have equal parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from . import small_floats, tree
from .casting import cast_module


def placed(
    module: torch.nn.Module, device: torch.device, precision: int, blank: Callable[[], Sequence[Any]]
) -> torch.nn.Module:
    """Move a new module to a device and cast it. Call lazy modules (`torch.nn.LazyLinear`) once, for their parameters.

    Args:
        module: The module as it was constructed.
        device: The device.
        precision: See `casting`.
        blank: Returns the arguments of a call, with zeros for all values. It is called for lazy modules only, and may
            seed the generators from which they draw.

    Raises:
        ValueError: A call leaves parameters without a shape.
        Exception: Whatever the call raises.
    """
    module = module.to(device)
    _make_dense(module)
    module = cast_module(module, precision)
    if _lazy_names(module):
        _materialise(module, blank())
        cast_module(module, precision)
    return module


def blank(structure: Any, specs: Sequence[tree.TensorSpec], device: torch.device) -> list[Any]:
    """Return the arguments of a call with this structure and these tensors, with zeros for all values of tensors."""
    region = torch.zeros(tree.layout(specs)[1], dtype=torch.uint8, device=device)
    arguments: list[Any] = tree.rebuild(structure, tree.views(region, specs), device)
    return arguments


def _make_dense(module: torch.nn.Module) -> None:
    """Give expanded parameters and buffers an element of their own for each index, so that each can have a value.

    Moving a tensor to another device does the same; one that is there already would stay as it is.
    """
    dense: dict[int, torch.Tensor] = {}  # one buffer may have several names
    for owner in module.modules():
        for parameter in owner._parameters.values():
            if parameter is not None and _is_expanded(parameter):
                parameter.data = _cloned(parameter.data)
        for name, buffer in owner._buffers.items():
            if buffer is not None and _is_expanded(buffer):
                owner._buffers[name] = dense.setdefault(id(buffer), _cloned(buffer))


def _is_expanded(tensor: torch.Tensor) -> bool:
    if is_lazy(tensor) or tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    return any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _cloned(tensor: torch.Tensor) -> torch.Tensor:
    return small_floats.raw(tensor).clone(memory_format=torch.contiguous_format).view(tensor.dtype)


def _materialise(module: torch.nn.Module, arguments: Sequence[Any]) -> None:
    """Call a module, first in eval mode, in which running statistics stay as they are."""
    training = {owner: owner.training for owner in module.modules()}
    module.eval()
    try:
        module(*arguments)
    finally:
        for owner, was in training.items():
            owner.training = was
    if _lazy_names(module):
        module(*arguments)
    if names := _lazy_names(module):
        raise ValueError(f"{', '.join(names)} of a lazy module had no shape after a call; construct it with its sizes")


def _lazy_names(module: torch.nn.Module) -> list[str]:
    return [name for name, tensor in (*module.named_parameters(), *module.named_buffers()) if is_lazy(tensor)]

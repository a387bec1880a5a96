"""Modules in training or eval mode. In training mode a call also returns the buffers that it changes.

Every call begins with the values that the buffers have at the first call, so the answer to some inputs does not depend on
the calls before. The judge and both runners make the same call of this file, so all that it costs is in both times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import small_floats, tree
from .gradients import Differentiated, Gradients


def in_mode(module: Any, training: bool | None) -> Any:
    """Return a module after it was put into training mode or (False) into eval mode; anything else as it is."""
    if training is not None and isinstance(module, torch.nn.Module):
        module.train(training)
    return module


def whole_call(
    module: Any, gradients: Gradients | None, buffers: Sequence[str] | None, compiled: Any = None
) -> Callable[..., Any]:
    """Return what a problem calls.

    Args:
        module: A module or function.
        gradients: The gradients that are part of the answer; None if there are none.
        buffers: Names of the buffers that are part of the answer. Names that are added before the first call count.
        compiled: The compiled form of the module, which is called in its place.
    """
    call = module if compiled is None else compiled
    if gradients is not None:
        call = Differentiated(call, gradients, module)
    return call if buffers is None else WithBuffers(call, buffers, module)


class WithBuffers:
    """A call that returns buffers of a module beside its output, and then gives them their earlier values again."""

    def __init__(self, call: Callable[..., Any], names: Sequence[str], module: Any) -> None:
        """Prepare calls. The buffers `names` of `module` are looked up at the first call."""
        self._call = call
        self._names = names
        self._module = module
        self._places: list[_Place | None] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Return the `output`, gradients if the call makes them, and the `buffers` by name; None for a missing buffer.

        If there are no names, return what the call returns. Raises whatever the call raises.
        """
        if self._places is None:
            self._places = [_find(self._module, name) for name in self._names]
        if not self._places:
            return self._call(*arguments)
        try:
            result = self._call(*arguments)
            found = [place and place.value() for place in self._places]
            storages = {place.tensor.untyped_storage().data_ptr() for place in self._places if place is not None}
            result = _apart(result, storages)
        finally:
            for place in self._places:
                if place is not None:
                    place.restore()
        whole = result if isinstance(self._call, Differentiated) else {"output": result}
        return {**whole, "buffers": dict(zip(self._names, found, strict=True))}


def same_bytes(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    """Return True if two tensors have the same dtype, shape, device and bytes.

    NaN does not equal itself, but its bytes do.
    """
    if one is None or (one.dtype, one.shape, one.device) != (other.dtype, other.shape, other.device):
        return False
    plain = (tensor.detach().resolve_conj().resolve_neg() for tensor in (one, other))
    flat = (tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in plain)
    return torch.equal(*flat)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a module has a buffer, the buffer, and a copy of its value."""

    owner: torch.nn.Module
    attribute: str
    tensor: torch.Tensor
    copy: torch.Tensor

    def value(self) -> torch.Tensor | None:
        """Return a copy of the present value, which may be another tensor's."""
        now = getattr(self.owner, self.attribute, None)
        return small_floats.cloned(now.detach()) if isinstance(now, torch.Tensor) else None

    def restore(self) -> None:
        """Give the module its buffer with the earlier value."""
        with torch.no_grad():
            small_floats.raw(self.tensor).copy_(small_floats.raw(self.copy))
        if getattr(self.owner, self.attribute, None) is not self.tensor:
            setattr(self.owner, self.attribute, self.tensor)


def _find(module: Any, name: str) -> _Place | None:
    """Return the place of a buffer, or of a parameter or plain tensor of its name; None if there is none."""
    path, _, attribute = name.rpartition(".")
    try:
        owner = module.get_submodule(path)
    except AttributeError:  # it is a function, or it has no such part
        return None
    tensor = getattr(owner, attribute, None)
    if not isinstance(tensor, torch.Tensor):
        return None
    return _Place(owner, attribute, tensor, small_floats.cloned(tensor.detach()))


def _apart(value: Any, storages: set[int]) -> Any:
    """Return a value with copies of its tensors that lie in one of these storages, since that memory will change."""

    def apart(tensor: torch.Tensor) -> torch.Tensor:
        shares = tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() in storages
        return small_floats.cloned(tensor) if shares else tensor

    return tree.mapped(value, apart)

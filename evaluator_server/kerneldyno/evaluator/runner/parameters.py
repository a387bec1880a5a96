"""Making the candidate's instance, and giving it the values of the reference's secret parameters.

Values are assigned by name after construction. Since a candidate may rightly prepare what it needs in its constructor
(fold a normalisation into weights, say), PyTorch's own normalisation layers get theirs while they are constructed: the
instance is made twice, and the second time each layer is born with what the judge has sent for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..devices import filling, seeding
from ..shared import small_floats, tree

_LAYERS: tuple[type[torch.nn.Module], ...] = (
    torch.nn.modules.batchnorm._NormBase,
    torch.nn.LayerNorm,
    torch.nn.GroupNorm,
    torch.nn.RMSNorm,
)


class Construction:
    """How the candidate's instance is made. `make` first, `make_with` afterwards if there are values to give."""

    def __init__(self, target: Callable[..., Any], args: Any, kwargs: Any, seed: int, device: torch.device) -> None:
        self._target = target
        self._args = tree.rebuild(args, (), device)
        self._kwargs = tree.rebuild(kwargs, (), device)
        self._seed = seed
        self._device = device
        self._instance: Any = None
        self._layers: list[torch.nn.Module] = []

    def make(self) -> Any:
        """Construct the candidate under the reference's own seed, on the device."""
        with _watching(self._layers.append):
            return self._construct()

    def constants(self) -> list[list[Any]]:
        """Return [name, description] of the floating-point tensors whose elements are all equal, as constructed."""
        return [
            [name, tree.describe(tensor, keep_layout=False).to_json()]
            for name, tensor in self._state().items()
            if _is_constant(tensor)
        ]

    def listing(self) -> list[list[Any]]:
        """Return [name, description, checksum] of all tensors of the state dict."""
        return [
            [name, tree.describe(tensor, keep_layout=False).to_json(), tree.checksum(tensor)]
            for name, tensor in self._state().items()
        ]

    def assign(self, name: str, start: int, values: torch.Tensor) -> None:
        """Give a part of a tensor, elements in their logical order from `start` on, these values."""
        tensor = small_floats.raw(self._state()[name])
        whole = tensor.contiguous()
        whole.view(-1)[start : start + values.numel()] = values
        if whole.data_ptr() != tensor.data_ptr():
            tensor.copy_(whole)

    def _state(self) -> dict[str, torch.Tensor]:
        return tree.dense_state(self._instance) if isinstance(self._instance, torch.nn.Module) else {}

    def make_with(self, values: dict[str, torch.Tensor]) -> Any:
        """Construct again, with `values` (by name in the state dict) in place of the constants."""
        if not isinstance(self._instance, torch.nn.Module):
            return self._instance
        prefixes = {id(module): prefix for prefix, module in self._instance.named_modules()}
        born_as = [prefixes.get(id(layer)) for layer in self._layers]
        if any(prefix is not None and any(name.startswith(f"{prefix}.") for name in values) for prefix in born_as):
            waiting = iter(born_as)

            def give(layer: torch.nn.Module) -> None:
                prefix = next(waiting, None)
                for name, tensor in layer.state_dict().items():
                    if prefix is not None and f"{prefix}.{name}" in values:
                        tensor.copy_(values[f"{prefix}.{name}"])

            with _watching(give):
                self._construct()
        with torch.no_grad():
            for name, tensor in self._instance.state_dict().items():
                if name in values:
                    tensor.copy_(values[name])
        return self._instance

    def _construct(self) -> Any:
        seeding.seed(self._device, self._seed)
        with torch.no_grad(), filling.by_device(self._device):
            self._instance = self._target(*self._args, **self._kwargs)
            if isinstance(self._instance, torch.nn.Module):
                self._instance = self._instance.to(self._device)
        return self._instance


def _is_constant(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or small_floats.is_coded(tensor.dtype):
        return False
    return tensor.numel() >= 2 and bool((tensor == tensor.reshape(-1)[0]).all())


@contextlib.contextmanager
def _watching(born: Callable[[torch.nn.Module], None]) -> Iterator[None]:
    """Call `born` with each normalisation layer that is constructed in the body, when its values have been set."""
    originals = {layer: layer.reset_parameters for layer in _LAYERS}  # type: ignore[attr-defined]

    def wrap(original: Callable[[Any], None]) -> Callable[[Any], None]:
        def reset(self: torch.nn.Module) -> None:
            original(self)
            born(self)

        return reset

    for layer, original in originals.items():
        layer.reset_parameters = wrap(original)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for layer, original in originals.items():
            layer.reset_parameters = original  # type: ignore[attr-defined]

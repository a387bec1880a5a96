"""Constructing the candidate's instance, and giving it the values of the reference's secret parameters.

Values are assigned by name after construction. But a candidate may compute what it needs in its constructor (fold a
normalisation into weights, for example). Therefore the instance is constructed twice, and in the second construction
PyTorch's own normalisation layers get the judge's values immediately.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..devices import filling, seeding
from ..shared import small_floats, tree
from ..shared.modules import placed

_LAYERS: tuple[type[torch.nn.Module], ...] = (
    torch.nn.modules.batchnorm._NormBase,
    torch.nn.LayerNorm,
    torch.nn.GroupNorm,
    torch.nn.RMSNorm,
)


class Construction:
    """Constructs the candidate's instance: first `make`, then `make_with` if there are values to assign."""

    def __init__(
        self,
        target: Callable[..., Any],
        args: Any,
        kwargs: Any,
        seed: int,
        device: torch.device,
        precision: int = 0,
        blank: Callable[[], Sequence[Any]] = tuple,
    ) -> None:
        """Prepare constructions.

        Args:
            target: The candidate's class.
            args: The structure of its positional arguments (`tree.flatten`).
            kwargs: The same for its keyword arguments.
            seed: The seed under which the reference was constructed.
            device: The device.
            precision: See `casting`.
            blank: Returns the arguments of a call, with zeros for all values: lazy modules get their parameters then.
        """
        self._target = target
        self._precision = precision
        self._args, self._kwargs = args, kwargs
        self._seed = seed
        self._device = device
        self._blank = blank
        self._instance: Any = None
        self._layers: list[torch.nn.Module] = []

    def make(self) -> Any:
        """Construct the candidate on the device, under the reference's own seed."""
        with _watching(self._layers.append):
            return self._construct()

    def constants(self) -> list[list[Any]]:
        """Return [name, description] of each floating-point tensor whose elements are all equal after construction."""
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
        """Assign `values` to a part of a tensor: to its elements from number `start` on, in logical order."""
        tensor = small_floats.raw(self._state()[name])
        whole = tensor.contiguous()
        whole.view(-1)[start : start + values.numel()] = values
        if whole.data_ptr() != tensor.data_ptr():
            tensor.copy_(whole)

    def _state(self) -> dict[str, torch.Tensor]:
        return tree.dense_state(self._instance) if isinstance(self._instance, torch.nn.Module) else {}

    def make_with(self, values: dict[str, torch.Tensor]) -> Any:
        """Construct again, with `values` (by name in the state dict) instead of the constants."""
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
        args, kwargs = (tree.rebuild(each, (), self._device) for each in (self._args, self._kwargs))
        with torch.no_grad(), filling.by_device(self._device):
            self._instance = self._target(*args, **kwargs)
            if isinstance(self._instance, torch.nn.Module):
                self._instance = placed(self._instance, self._device, self._precision, self._seeded_blank)
        return self._instance

    def _seeded_blank(self) -> Sequence[Any]:
        blank = self._blank()
        seeding.seed(self._device, self._seed)
        return blank


def _is_constant(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or small_floats.is_coded(tensor.dtype):
        return False
    return tensor.numel() >= 2 and bool((tensor == tensor.reshape(-1)[0]).all())


@contextlib.contextmanager
def _watching(born: Callable[[torch.nn.Module], None]) -> Iterator[None]:
    """Call `born` with each normalisation layer that the body constructs, after the layer has set its values."""
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

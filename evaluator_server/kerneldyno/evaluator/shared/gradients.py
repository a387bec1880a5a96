"""Problems that ask for gradients: a call is a forward and a backward pass, and it returns the output and the gradients.

The gradients of the outputs ("cotangents") are inputs of the call like others, and secret like these: they are its last
positional arguments. The judge and both runners make the same call of this file, so all that it costs beside the two
passes is in both times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from . import tree

#: The parts of an answer that has more than the output.
_GRADIENTS = ["input_gradients", "parameter_gradients"]
_ANSWERS = (["output", *_GRADIENTS], ["output", "buffers"], ["output", *_GRADIENTS, "buffers"])


@dataclass(slots=True)
class Gradients:
    """Which gradients a problem asks for."""

    #: For each floating-point tensor among the inputs, in order, whether its gradient is asked for. Empty: all of them.
    wanted: list[bool] = field(default_factory=list)
    #: Names of the reference's parameters whose gradients are asked for.
    parameters: list[str] = field(default_factory=list)
    #: Number of floating-point tensors in the output. It is 0 until the first inputs have been drawn.
    outputs: int = 0

    def to_plain(self) -> list[Any]:
        """Return this as numbers, strings and lists."""
        return [self.wanted, self.parameters, self.outputs]

    @classmethod
    def from_plain(cls, plain: Any) -> Gradients | None:
        """Read the output of `to_plain`; None stands for itself."""
        return None if plain is None else cls(*plain)


class Differentiated:
    """A module or function whose call makes both passes."""

    def __init__(self, call: Callable[..., Any], gradients: Gradients, module: Any = None) -> None:
        """Prepare the calls of a module or function; `module` has its parameters, if it is not the call itself."""
        self._call = call
        self._gradients = gradients
        module = call if module is None else module
        own = dict(module.named_parameters()) if isinstance(module, torch.nn.Module) else {}
        kept = {name: own[name] for name in gradients.parameters if name in own and own[name].requires_grad}
        self._names, self._parameters = list(kept), list(kept.values())

    def __call__(self, *arguments: Any) -> dict[str, Any]:
        """Return the `output`, and the gradients for inputs and parameters; None where the output does not depend on one.

        Raises whatever the call, or its backward pass, raises.
        """
        count = len(arguments) - self._gradients.outputs
        leaves: list[torch.Tensor] = []
        with torch.enable_grad():
            given = [_as_leaves(value, self._gradients.wanted, leaves) for value in arguments[:count]]
            result = self._call(*given)
            outputs = floating(result)
            pairs = [pair for pair in zip(outputs, arguments[count:], strict=True) if pair[0].requires_grad]
            sources = [leaf for leaf in leaves if leaf.requires_grad] + self._parameters
            found: Sequence[torch.Tensor | None] = [None] * len(sources)
            if pairs and sources:
                ends, cotangents = zip(*pairs, strict=True)
                found = torch.autograd.grad(ends, sources, cotangents, allow_unused=True)
        inputs = len(sources) - len(self._parameters)
        of_parameters = dict.fromkeys(self._gradients.parameters)
        of_parameters.update(zip(self._names, found[inputs:], strict=True))
        return {
            "output": detached(result),
            "input_gradients": list(found[:inputs]),
            "parameter_gradients": of_parameters,
        }


def names(structure: Any) -> list[str]:
    """Return a name for each tensor in what a call returns, by its flattened structure (`tree.flatten`).

    Return nothing if the call returns neither gradients (`Differentiated`) nor buffers (`buffers.WithBuffers`).
    """
    match structure:
        case {"dict": pairs} if [title for title, _ in pairs] in _ANSWERS:
            named = sorted(each for title, part in pairs for each in _paths(title, part))
            return [name for _, name in named]
    return []


def _paths(name: str, structure: Any) -> list[tuple[int, str]]:
    """Return number and name of each tensor in a structure."""
    if isinstance(structure, list):
        return [path for at, part in enumerate(structure) for path in _paths(f"{name}[{at}]", part)]
    match structure:
        case {"tensor": number}:
            return [(number, name)]
        case {"tuple": parts}:
            return _paths(name, parts)
        case {"dict": pairs}:
            return [path for key, part in pairs for path in _paths(f"{name}[{key!r}]", part)]
        case {"namedtuple": [_, named]} | {"dataclass": [_, named]}:
            return [path for field, part in named for path in _paths(f"{name}.{field}", part)]
    return []


def floating(value: Any) -> list[torch.Tensor]:
    """Return the floating-point tensors in a value, in the order in which `tree.flatten` numbers them."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    return [tensor for part in tree.parts(value) for tensor in floating(part)]


def _as_leaves(value: Any, wanted: list[bool], leaves: list[torch.Tensor]) -> Any:
    """Return `value` with new leaves of the graph for its floating-point tensors, and add these to `leaves`."""

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        at = len(leaves)
        leaves.append(tensor.detach().requires_grad_(not wanted or (at < len(wanted) and wanted[at])))
        return leaves[-1]

    return tree.mapped(value, leaf)


def detached(value: Any) -> Any:
    """Return a value with its tensors outside of any graph."""
    return tree.mapped(value, torch.Tensor.detach)

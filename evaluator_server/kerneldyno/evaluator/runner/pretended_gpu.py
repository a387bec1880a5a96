"""A GPU that is not there, for scouts and rehearsals: tensors on it have shapes and no memory, and say "cuda:0".

Candidates often build native code only if there is a GPU, or if their inputs are on one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..shared import tree
from ..shared.buffers import in_mode
from ..shared.casting import cast_module

_META = torch.device("meta")
_GPU = torch.device("cuda", 0)
#: What a candidate is told about the device besides its architecture. If it writes one of these into a source, the
#: runner finds another source, and builds it itself.
_PROPERTIES = {"name": "NVIDIA GPU", "multi_processor_count": 132, "total_memory": 80 << 30, "warp_size": 32}
#: Other answers of torch.cuda that may differ from those of the GPU.
_GUESSED = ("get_device_name", "get_device_properties")


@dataclass(slots=True)
class Asked:
    """What a candidate has asked of the GPU that is not there."""

    #: It was asked anything at all.
    anything: bool = False
    #: An answer was a guess, which the GPU may not give: a value, a property, or a failure.
    guesses: bool = False

    def guess(self) -> None:
        """Note that an answer is a guess."""
        self.anything = self.guesses = True


#: What was asked in this process. A process has one candidate.
asked = Asked()

#: What the value of a tensor without memory is taken to be.
_VALUES = {
    torch.Tensor.item: 1.0,
    torch.Tensor.__bool__: True,
    torch.Tensor.__float__: 1.0,
    torch.Tensor.__int__: 1,
    torch.Tensor.__index__: 1,
}


#: Where a tensor is. `cuda` returns the tensor itself.
_PLACES = {
    torch.Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    torch.Tensor.device.__get__: _GPU,
    torch.Tensor.get_device: 0,
    torch.Tensor.cuda: None,
}


class PretendedGpu(TorchFunctionMode):
    """While it is entered, devices called "cuda" are the device "meta", and tensors claim to be on the GPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Answer for `func`, or call it with devices replaced."""
        if func in _PLACES:
            asked.anything = True
            return args[0] if func == torch.Tensor.cuda else _PLACES[func]
        if func in _VALUES and args[0].is_meta:
            asked.guess()
            return _VALUES[func]
        replaced = {name: _replaced(value) for name, value in (kwargs or {}).items()}
        try:
            return func(*map(_replaced, args), **replaced)
        except BaseException:
            asked.guess()  # tensors with memory may not fail there
            raise


def _replaced(value: Any) -> Any:
    named = value.type if isinstance(value, torch.device) else value.partition(":")[0] if isinstance(value, str) else ""
    if named != "cuda":
        return value
    asked.anything = True
    return _META


def install(architecture: str) -> None:
    """Make torch.cuda answer what candidates ask before they build. `architecture` is like "9.0a"."""
    digits = "".join(each for each in architecture.partition(";")[0] if each.isdigit() or each == ".") or "9.0"
    major, _, minor = digits.partition(".")
    properties = SimpleNamespace(**_PROPERTIES, major=int(major), minor=int(minor or 0))
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": properties.name,
        "get_device_capability": (properties.major, properties.minor),
        "get_device_properties": properties,
        "current_stream": SimpleNamespace(cuda_stream=0),
        "default_stream": SimpleNamespace(cuda_stream=0),
        **dict.fromkeys(("synchronize", "set_device", "init", "empty_cache", "manual_seed", "manual_seed_all")),
    }
    for name, value in list(vars(torch.cuda).items()):
        if name.startswith("_"):
            continue
        if name in answers:
            setattr(torch.cuda, name, _answering(answers[name], guessed=name in _GUESSED))
        elif isinstance(value, FunctionType):
            setattr(torch.cuda, name, _guessing(value))
        elif isinstance(value, type) and isinstance(vars(value).get("__new__"), staticmethod):
            value.__new__ = _guessing(value.__new__)  # type: ignore[method-assign]


def _answering(answer: Any, *, guessed: bool) -> Any:
    def function(*_: Any, **__: Any) -> Any:
        asked.anything = True
        asked.guesses |= guessed
        return answer

    return function


def _guessing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, which fails without a GPU, such that its calls are noted."""

    @functools.wraps(function)
    def noting(*args: Any, **kwargs: Any) -> Any:
        asked.guess()
        return function(*args, **kwargs)

    return noting


def construct_and_call(module: ModuleType, symbol: str, sketch: dict[str, Any]) -> None:
    """Construct a candidate's class and call it, or call its function, on tensors without memory.

    Args:
        module: The imported candidate.
        symbol: Name of the class or function.
        sketch: The constructor's arguments (`args`, `kwargs`), and the call's (`inputs`, `specs`), as `sketch` makes them;
            the `precision` to which the instance is cast; whether it is put into `training` mode; and the number of
            `cotangents`, the last inputs, which only a backward pass needs.

    Raises:
        BaseException: Whatever the candidate raises.
    """
    target = getattr(module, symbol)
    with torch.no_grad(), _META:
        if isinstance(target, type):
            target = target(*tree.rebuild(sketch["args"], [], _META), **tree.rebuild(sketch["kwargs"], [], _META))
            if isinstance(target, torch.nn.Module):
                target = in_mode(cast_module(target, sketch["precision"]), sketch["training"])
        specs = [tree.TensorSpec.from_json(spec) for spec in sketch["specs"]]
        inputs = [torch.empty_strided(spec.shape, spec.stride, dtype=spec.torch_dtype) for spec in specs]
        arguments = tree.rebuild(sketch["inputs"], inputs, _META)
        target(*arguments[: len(arguments) - sketch["cotangents"]])

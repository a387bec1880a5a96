"""A GPU that is not there, for scouts: tensors on it have shapes and no memory, and say that they are on "cuda:0".

Candidates often build native code only if there is a GPU, or if their inputs are on one.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_META = torch.device("meta")
_GPU = torch.device("cuda", 0)
#: What a candidate is told about the device besides its architecture. If it writes one of these into a source, the
#: runner finds another source, and builds it itself.
_PROPERTIES = {"name": "NVIDIA GPU", "multi_processor_count": 132, "total_memory": 80 << 30, "warp_size": 32}
#: What the value of a tensor without memory is taken to be.
_VALUES = {
    torch.Tensor.item: 1.0,
    torch.Tensor.__bool__: True,
    torch.Tensor.__float__: 1.0,
    torch.Tensor.__int__: 1,
    torch.Tensor.__index__: 1,
}


class PretendedGpu(TorchFunctionMode):
    """While it is entered, devices called "cuda" are the device "meta", and tensors claim to be on the GPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Answer for `func`, or call it with devices replaced."""
        if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return True
        if func == torch.Tensor.device.__get__:
            return _GPU
        if func == torch.Tensor.get_device:
            return 0
        if func == torch.Tensor.cuda:
            return args[0]
        if func in _VALUES and args[0].is_meta:
            return _VALUES[func]
        replaced = {name: _replaced(value) for name, value in (kwargs or {}).items()}
        return func(*map(_replaced, args), **replaced)


def _replaced(value: Any) -> Any:
    if isinstance(value, torch.device):
        return _META if value.type == "cuda" else value
    return _META if isinstance(value, str) and value.partition(":")[0] == "cuda" else value


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
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_, _answer=answer, **__: _answer)

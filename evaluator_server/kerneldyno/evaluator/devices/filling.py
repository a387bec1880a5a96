"""Random parameters of models, drawn on a GPU: the host needs eight seconds for 4 GiB of them, a GPU half a second.

PyTorch fills a host tensor with one thread, because its generator is one sequence. Inside `by_device`, large host
tensors get numbers from the GPU's generator instead. Reference and candidate are both constructed in this way and under
the same seed, so the same draws give the same parameters on both sides. The toolkits and `runner/parameters` use it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

#: Number of elements from which the device fills a tensor. The host fills smaller ones, as usual, within 40 ms.
_LARGE = 1 << 22
#: Number of elements that are drawn and copied at a time. They pass through pinned memory, which takes a quarter of the
#: time: 0.12 s for 1 GiB on an H200.
_CHUNK = 1 << 23
_METHODS = ("uniform_", "normal_")


@contextlib.contextmanager
def by_device(device: torch.device) -> Iterator[None]:
    """Make `Tensor.uniform_` and `Tensor.normal_` of large host tensors draw on `device` if that is a GPU."""
    if device.type != "cuda":
        yield
        return
    originals = {name: getattr(torch.Tensor, name) for name in _METHODS}
    for name, original in originals.items():
        setattr(torch.Tensor, name, _filling(original, device))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch.Tensor, name, original)


def _filling(original: Callable[..., torch.Tensor], device: torch.device) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def fill(
        tensor: torch.Tensor, *bounds: Any, generator: torch.Generator | None = None, **named: Any
    ) -> torch.Tensor:
        if generator is not None or not _is_eligible(tensor):
            return original(tensor, *bounds, generator=generator, **named)
        with torch.no_grad():
            flat = tensor.view(-1)
            drawn = torch.empty(min(_CHUNK, len(flat)), dtype=tensor.dtype, device=device)
            between = _reachable(drawn)
            for start in range(0, len(flat), _CHUNK):
                part = flat[start : start + _CHUNK]
                between.copy_(original(drawn, *bounds, **named))
                part.copy_(between[: len(part)])
        return tensor

    return fill


def _reachable(like: torch.Tensor) -> torch.Tensor:
    """Return host memory that the device reaches directly (pinned), if that is allowed."""
    if like.is_cuda:
        with contextlib.suppress(RuntimeError):
            return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)
    return torch.empty(like.shape, dtype=like.dtype)


def _is_eligible(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and tensor.numel() >= _LARGE
        and tensor.is_contiguous()
        and not (tensor.requires_grad and torch.is_grad_enabled())
    )

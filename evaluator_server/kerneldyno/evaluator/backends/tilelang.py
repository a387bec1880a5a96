"""Candidates in TileLang. Its package, `tilelang`, compiles with nvcc in the candidate's own sandbox."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from .base import Launches
from .launch_points import Wrapper, add_one
from .tile_language import TileLanguage

#: A kernel's definition or declaration in the CUDA source that TileLang generates.
_KERNEL = re.compile(r"__global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(")


class TilelangBackend(TileLanguage):
    """TileLang.

    A launch is a call of a compiled function (JITKernel), which may launch several kernels and allocate its outputs.
    """

    name = "tilelang"
    cache_variable = "TILELANG_CACHE_DIR"

    def _set_up(self) -> None:
        import tilelang  # noqa: F401

    def _launch_points(self) -> list[tuple[Any, str]]:
        from tilelang.jit import JITKernel

        return [(JITKernel, "__call__")]

    def _wrapper(self, launches: Launches, *, launch: bool) -> Wrapper:
        def wrap(original: Any) -> Any:
            def counted(kernel: Any, *args: Any, **kwargs: Any) -> Any:
                run = original if launch else _without_effect(original)
                result = run(kernel, *args, **kwargs)
                add_one(launches)
                self._add_names(_KERNEL.findall(kernel.get_kernel_source()))
                return result

            return counted

        return wrap


def _without_effect(original: Any) -> Any:
    """Return a call that changes no argument and returns zeros.

    The caller wants outputs of the right shapes, and only the kernel knows them. So it runs, on copies.
    """

    def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        copies = [_changed(torch.clone, value) for value in args]
        named = {name: _changed(torch.clone, value) for name, value in kwargs.items()}
        return _changed(torch.zeros_like, original(kernel, *copies, **named))

    return run


def _changed(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """Return `value` with `change` applied if it is a tensor, or to the tensors in it if it is a list."""
    if isinstance(value, list | tuple):
        return [_changed(change, one) for one in value]
    return change(value) if isinstance(value, torch.Tensor) else value


BACKEND = TilelangBackend()

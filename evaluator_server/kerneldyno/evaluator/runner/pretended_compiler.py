"""Triton's compiler without a GPU: only its first stage, from Python to Triton's own intermediate code, for rehearsals.

That stage finds the mistakes that models make in the language, and takes a few milliseconds. The stages after it take
most of the time. What a kernel does when it is launched is not known here: launches do nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import triton.compiler
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource
from triton.runtime import driver

from .pretended_gpu import asked

#: Threads of a warp.
_WARP = 32


class _EnoughError(BaseException):
    """The first stage has succeeded."""


class FirstStage:
    """Replaces Triton's compiler and driver in this process."""

    def __init__(self, architecture: str) -> None:
        """Replace them. `architecture` is like "9.0"."""
        #: What the compiler has raised, except while something else that had failed was handled.
        self.raised: list[BaseException] = []
        self._compile: Callable[..., Any] = triton.compiler.compile
        make = ASTSource.make_ir

        def make_only(*args: Any, **kwargs: Any) -> Any:
            make(*args, **kwargs)
            raise _EnoughError

        ASTSource.make_ir = make_only
        triton.compiler.compile = self._first_stage
        driver.set_active(_Driver(int(architecture.replace(".", ""))))

    def _first_stage(self, *args: Any, **kwargs: Any) -> _Kernel:
        handled, guesses = sys.exc_info()[1], asked.guesses
        try:
            self._compile(*args, **kwargs)
        except _EnoughError:
            pass
        except Exception as error:
            if handled is None:
                self.raised.append(error)
            raise
        finally:
            asked.guesses = guesses  # the compiler asks its own programs, and guesses nothing
        return _Kernel()


class _Kernel:
    """Stands for a compiled kernel that can only be launched."""

    function = 0
    packed_metadata = ()

    def run(self, *_: Any, **__: Any) -> None:
        """Launch nothing."""

    def launch_metadata(self, *_: Any, **__: Any) -> None:
        """Return nothing about a launch."""

    def __getattr__(self, name: str) -> Any:
        asked.guess()
        raise AttributeError(name)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self.run


class _Driver:
    """What Triton and candidates ask of the driver before a launch."""

    def __init__(self, architecture: int) -> None:
        self._target = GPUTarget("cuda", architecture, _WARP)

    def get_current_target(self) -> GPUTarget:
        asked.anything = True
        return self._target

    def get_current_device(self) -> int:
        asked.anything = True
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        asked.anything = True
        return 0

    def get_active_torch_device(self) -> torch.device:
        asked.anything = True
        return torch.device("cuda", 0)

    def get_benchmarker(self) -> Callable[..., list[float]]:
        asked.anything = True

        def bench(kernel: Callable[[], Any], quantiles: Any = (0.5,), **_: Any) -> list[float]:
            kernel()
            return [1.0] * len(quantiles or (0.5,))

        return bench

    def __getattr__(self, name: str) -> Any:
        asked.guess()
        raise AttributeError(name)

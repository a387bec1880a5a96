"""Triton candidates: compiled on a GPU, interpreted on the CPU device."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import triton
from triton.runtime import driver

from ..devices.base import Device
from .base import Backend, Launches


class TritonBackend(Backend):
    """Counts launches through Triton's own launch hook, and through the interpreter's executor on the CPU."""

    name = "triton"
    must_launch = True

    def warm_up(self, device: Device) -> None:
        if device.kind == "cuda":
            # Builds and loads Triton's helper library (about a second of C compiler) while nobody waits for it.
            driver.active.get_current_target()
        else:
            driver.set_active(_InterpreterDriver())

    @contextlib.contextmanager
    def count_launches(self, device: Device) -> Iterator[Launches]:
        launches = Launches(0)

        def count(*_: Any, **__: Any) -> None:
            assert launches.count is not None
            launches.count += 1

        if device.kind == "cuda":
            hooks = triton.knobs.runtime.launch_enter_hook
            hooks.add(count)
            try:
                yield launches
            finally:
                hooks.remove(count)
            return
        from triton.runtime.interpreter import GridExecutor

        original = GridExecutor.__call__

        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            count()
            return original(self, *args, **kwargs)

        GridExecutor.__call__ = counted
        try:
            yield launches
        finally:
            GridExecutor.__call__ = original


class _InterpreterDriver:
    """The little that autotuned kernels ask of a driver, for the interpreter, which has none."""

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        """Return Triton's `do_bench` for interpreted kernels: one call by the host's clock, in milliseconds."""

        def bench(kernel: Callable[[], Any], quantiles: Sequence[float] = (0.5,), **_: Any) -> list[float]:
            begin = time.perf_counter()
            kernel()
            return [1000 * (time.perf_counter() - begin)] * len(quantiles)

        return bench

    def get_current_target(self) -> Any:
        """Interpreted kernels have no target; candidates that ask see the kind of device they run on."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self) -> Any:
        """The device of tensors that Triton makes itself."""
        import torch

        return torch.device("cpu")


BACKEND = TritonBackend()

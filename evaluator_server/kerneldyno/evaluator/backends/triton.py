"""Triton candidates. They are compiled on a GPU and interpreted on the CPU device."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import triton
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from ..devices.base import Device
from .base import Backend, Launches


class TritonBackend(Backend):
    """Triton. It counts or suppresses launches where all of them pass: in JITFunction, or in the CPU's interpreter."""

    name = "triton"
    must_launch = True

    def preload(self, kind: str) -> None:
        if kind == "cuda":
            _preload_compiler()

    def warm_up(self, device: Device) -> None:
        if device.kind == "cuda":
            driver.active.get_current_target()
        else:
            driver.set_active(_InterpreterDriver())

    @contextlib.contextmanager
    def count_launches(self, device: Device) -> Iterator[Launches]:
        launches = Launches(0)
        watching = _hooked(launches) if device.kind == "cuda" else _replaced(device, _counting(launches))
        with watching, _graphs(launches, replay=True):
            yield launches

    @contextlib.contextmanager
    def suppress_launches(self, device: Device) -> Iterator[Launches]:
        launches = Launches(0)
        passed = Launches(0)
        watching = _hooked(passed) if device.kind == "cuda" else contextlib.nullcontext()
        with _replaced(device, _counting(launches, launch=False)), _graphs(launches, replay=False), watching:
            yield launches
        if passed.count:
            launches.count = None


def _preload_compiler() -> None:
    """Build and load Triton's helper library, and hash its files.

    Otherwise each process's first launch would do this, which takes most of a second.
    """
    try:
        from triton.backends.nvidia.driver import CudaDriver
        from triton.runtime.cache import triton_key
    except ImportError:  # another version of Triton: each runner does it itself
        return
    before = os.environ.get("TRITON_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="kerneldyno-triton-") as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        try:
            driver.set_active(CudaDriver())
            triton_key()
        except Exception as error:  # for example no compiler: each runner will report it
            sys.stderr.write(f"Triton's helper library could not be built in advance: {error}\n")
        finally:
            if before is None:
                del os.environ["TRITON_CACHE_DIR"]
            else:
                os.environ["TRITON_CACHE_DIR"] = before


@contextlib.contextmanager
def _hooked(launches: Launches) -> Iterator[None]:
    """Count by Triton's launch hook, which also sees compiled kernels that are launched directly."""

    def count(metadata: Any) -> None:
        assert launches.count is not None
        launches.count += 1
        launches.names.add(str(metadata.get().get("name", "")))

    hooks = triton.knobs.runtime.launch_enter_hook
    hooks.add(count)
    try:
        yield
    finally:
        hooks.remove(count)


def _counting(launches: Launches, *, launch: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            assert launches.count is not None
            result = original(self, *args, **kwargs) if launch else None
            launches.count += 1  # a launch that fails does not count
            return result

        return counted

    return wrap


@contextlib.contextmanager
def _replaced(device: Device, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Replace the function that every launch calls: JITFunction.run, or the interpreter's executor on the CPU."""
    if device.kind == "cuda":
        owner: Any = JITFunction
        name = "run"
    else:
        from triton.runtime.interpreter import GridExecutor

        owner, name = GridExecutor, "__call__"
    original = getattr(owner, name)
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextlib.contextmanager
def _graphs(launches: Launches, *, replay: bool) -> Iterator[None]:
    """Count replays of CUDA graphs, which may contain the candidate's launches.

    If `replay` is false, they do nothing.
    """
    original = torch.cuda.CUDAGraph.replay

    def counted(self: Any) -> None:
        assert launches.count is not None
        launches.count += 1
        if replay:
            original(self)

    torch.cuda.CUDAGraph.replay = counted  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.cuda.CUDAGraph.replay = original  # type: ignore[method-assign]


class _InterpreterDriver:
    """The functions of a driver that autotuned kernels need, for the interpreter, which has no driver."""

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        """Return Triton's `do_bench` for interpreted kernels: one call by the host's clock, in milliseconds."""

        def bench(kernel: Callable[[], Any], quantiles: Sequence[float] = (0.5,), **_: Any) -> list[float]:
            begin = time.perf_counter()
            kernel()
            return [1000 * (time.perf_counter() - begin)] * len(quantiles)

        return bench

    def get_current_target(self) -> Any:
        """Return a target that names the kind of device. Interpreted kernels have none, but candidates may ask."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self) -> Any:
        """Return the device of tensors that Triton creates itself."""
        import torch

        return torch.device("cpu")


BACKEND = TritonBackend()

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
from triton.compiler import CompiledKernel
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from ..devices.base import Device
from .base import Backend, Compiled, Launches
from .launch_points import add_one, counting, graph_replays, replaced


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
        watching = _hooked(launches) if device.kind == "cuda" else replaced(*_launch_point(device), counting(launches))
        with watching, graph_replays(launches):
            yield launches

    @contextlib.contextmanager
    def suppress_launches(self, device: Device) -> Iterator[Launches]:
        launches = Launches(0)
        passed = Launches(0)
        watching = _hooked(passed) if device.kind == "cuda" else contextlib.nullcontext()
        nothing = counting(launches, launch=False)
        with replaced(*_launch_point(device), nothing), graph_replays(launches, launch=False), watching:
            yield launches
        if passed.count:
            launches.count = None

    def describe(self, kernel: Any) -> Compiled:
        """Describe a CompiledKernel. Triton counts spills in words of 4 bytes: all of a thread's local memory."""
        return Compiled(
            name=str(kernel.name),
            registers=int(kernel.n_regs),
            spill_bytes=4 * int(kernel.n_spills),
            shared_memory_bytes=int(kernel.metadata.shared),
            warps=int(kernel.metadata.num_warps),
            ptx=str(kernel.asm.get("ptx", "")),
            binary=bytes(kernel.asm.get("cubin", b"")),
        )


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
            triton_key()
            driver.set_active(CudaDriver())
        except Exception as error:  # for example no compiler: each runner will report it
            sys.stderr.write(f"Triton's helper library could not be built in advance: {error}\n")
        finally:
            if before is None:
                del os.environ["TRITON_CACHE_DIR"]
            else:
                os.environ["TRITON_CACHE_DIR"] = before


@contextlib.contextmanager
def _hooked(launches: Launches) -> Iterator[None]:
    """Count by Triton's launch hook, which also sees compiled kernels that are launched directly.

    Each launch first asks its compiled kernel for what the hook gets, so the kernel itself is known there.
    """

    def count(metadata: Any) -> None:
        add_one(launches)
        launches.names.add(str(metadata.get().get("name", "")))

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def launch_metadata(kernel: Any, *args: Any) -> Any:
            launches.kernels[id(kernel)] = kernel
            return original(kernel, *args)

        return launch_metadata

    hooks = triton.knobs.runtime.launch_enter_hook
    hooks.add(count)
    try:
        with replaced(CompiledKernel, "launch_metadata", noting):
            yield
    finally:
        hooks.remove(count)


def _launch_point(device: Device) -> tuple[Any, str]:
    """Return the function that every launch calls: JITFunction.run, or the interpreter's executor on the CPU."""
    if device.kind == "cuda":
        return JITFunction, "run"
    from triton.runtime.interpreter import GridExecutor

    return GridExecutor, "__call__"


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

        return torch.device("cpu")


BACKEND = TritonBackend()

"""Candidates in CuTe DSL, the Python of CUTLASS. The package, `nvidia-cutlass-dsl`, compiles without nvcc."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from typing import Any

from .tile_language import TileLanguage

#: Functions that are compiled with `--enable-tvm-ffi` are called through these classes; they need apache-tvm-ffi.
_TVM_FFI = "cutlass.cutlass_dsl.tvm_ffi_provider"
_TVM_FFI_CLASSES = ("TVMFFIJitCompiledFunction", "TVMFFIJitCompiledFunctionWithKwargs")


class CuteBackend(TileLanguage):
    """CuTe DSL.

    A launch is a call of a compiled host function (`cute.jit`), which may launch several kernels in native code.
    """

    name = "cute"
    cache_variable = "CUTE_DSL_CACHE_DIR"

    def _set_up(self) -> None:
        import cutlass.cute  # noqa: F401  (imports the executor with it)
        from cutlass.base_dsl.jit_executor import JitCompiledFunction

        with contextlib.suppress(ImportError):
            importlib.import_module(_TVM_FFI)
        if hasattr(JitCompiledFunction.__init__, "__wrapped__"):
            return
        original = JitCompiledFunction.__init__

        @functools.wraps(original)
        def noting(function: Any, *args: Any, **kwargs: Any) -> None:
            original(function, *args, **kwargs)
            self._add_names(list(function.kernel_info))

        JitCompiledFunction.__init__ = noting

    def _launch_points(self) -> list[tuple[Any, str]]:
        from cutlass.base_dsl.jit_executor import JitExecutor

        through_ffi = sys.modules.get(_TVM_FFI)
        classes = [getattr(through_ffi, name) for name in _TVM_FFI_CLASSES] if through_ffi else []
        return [(JitExecutor, "run_compiled_program"), *((each, "__call__") for each in classes)]


BACKEND = CuteBackend()

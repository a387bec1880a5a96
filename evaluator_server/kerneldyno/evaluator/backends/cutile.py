"""Candidates in cuTile Python. Its package, `cuda-tile`, compiles with `tileiras`, which has sm_90 from 13.3 on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .tile_language import TileLanguage


class CutileBackend(TileLanguage):
    """cuTile.

    All launches pass `cuda.tile.launch`, a function of C. A candidate may take it with `from cuda.tile import launch`,
    so it is replaced before the candidate is imported, and for good. This costs a candidate 0.1 us for each launch.
    """

    name = "cutile"
    cache_variable = "CUDA_TILE_CACHE_DIR"

    _launch: Callable[..., Any] | None = None

    def _set_up(self) -> None:
        import cuda.tile

        if self._launch is not None:
            return
        original, compiling = cuda.tile.launch, cuda.tile.kernel._compile
        self._launch = original

        @functools.wraps(original)
        def launch(*args: Any, **kwargs: Any) -> Any:
            assert self._launch is not None
            return self._launch(*args, **kwargs)

        @functools.wraps(compiling)
        def noting(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            made = compiling(kernel, *args, **kwargs)
            self._add_names([made[1]])  # (cubin, symbol, ...)
            return made

        cuda.tile.launch, cuda.tile.kernel._compile = launch, noting

    def _launch_points(self) -> list[tuple[Any, str]]:
        return [(self, "_launch")]


BACKEND = CutileBackend()

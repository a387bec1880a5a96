"""Backends: the languages of candidates. A plug-in adds one under the entry point group `kerneldyno.backends`."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata

from .base import Backend, Compiled, Launches

__all__ = ["Backend", "Compiled", "Launches", "backends"]

#: Built-in names, for when the distribution's metadata is not installed: sources may run from PYTHONPATH.
_BUILT_IN = ("triton", "cuda", "torch", "cute", "cutile", "tilelang")


@functools.cache
def backends() -> dict[str, Backend]:
    """Return all backends by name, the built-in ones first. Raises what a broken plug-in raises on import."""
    found = {name: _load(name) for name in _BUILT_IN}
    for point in importlib.metadata.entry_points(group="kerneldyno.backends"):
        if point.name not in found:
            found[point.name] = point.load()
    return found


def _load(name: str) -> Backend:
    backend: Backend = importlib.import_module(f"{__name__}.{name}").BACKEND
    return backend

"""Backends: what a candidate is written in. A plug-in adds its own under the entry point group `kerneldyno.backends`."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata

from .base import Backend, Launches

__all__ = ["Backend", "Launches", "backends"]

#: Used when the distribution's metadata is not installed, as when the sources are run from PYTHONPATH.
_BUILT_IN = ("triton", "cuda", "torch")


@functools.cache
def backends() -> dict[str, Backend]:
    """Return all backends by name; the built-in ones first. Raises whatever a broken plug-in raises on import."""
    found = {name: _load(name) for name in _BUILT_IN}
    for point in importlib.metadata.entry_points(group="kerneldyno.backends"):
        if point.name not in found:
            found[point.name] = point.load()
    return found


def _load(name: str) -> Backend:
    backend: Backend = importlib.import_module(f"{__name__}.{name}").BACKEND
    return backend

"""Toolkits: how a reference and a candidate are put to work. A plug-in adds its own under `kerneldyno.toolkits`."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata

from ..shared.precision import round_to
from ..shared.spec import EvalSpec
from .base import Problem, ReferenceFailure, Toolkit

__all__ = ["EvalSpec", "Problem", "ReferenceFailure", "Toolkit", "round_to", "toolkits"]

#: Used when the distribution's metadata is not installed, as when the sources are run from PYTHONPATH.
_BUILT_IN = ("kernelbench", "kernel_simple")


@functools.cache
def toolkits() -> dict[str, Toolkit]:
    """Return all toolkits by name; the built-in ones first. Raises whatever a broken plug-in raises on import."""
    found = {name: _load(name) for name in _BUILT_IN}
    for point in importlib.metadata.entry_points(group="kerneldyno.toolkits"):
        if point.name not in found:
            found[point.name] = point.load()
    return found


def _load(name: str) -> Toolkit:
    toolkit: Toolkit = importlib.import_module(f"{__name__}.{name}").TOOLKIT
    return toolkit

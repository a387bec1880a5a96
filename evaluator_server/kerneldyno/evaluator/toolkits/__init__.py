"""Toolkits: how a reference and a candidate are used. A plug-in adds one under the group `kerneldyno.toolkits`."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata

from ..shared.precision import round_to
from ..shared.spec import ProblemSpec, TimedForm
from .base import Problem, ReferenceFailure, Toolkit

#: The old name of what a toolkit gets.
EvalSpec = ProblemSpec

__all__ = ["EvalSpec", "Problem", "ProblemSpec", "ReferenceFailure", "TimedForm", "Toolkit", "round_to", "toolkits"]

#: Built-in names, for when the distribution's metadata is not installed: sources may run from PYTHONPATH.
_BUILT_IN = ("kernelbench", "kernel_simple")


@functools.cache
def toolkits() -> dict[str, Toolkit]:
    """Return all toolkits by name, the built-in ones first. Raises what a broken plug-in raises on import."""
    found = {name: _load(name) for name in _BUILT_IN}
    for point in importlib.metadata.entry_points(group="kerneldyno.toolkits"):
        if point.name not in found:
            found[point.name] = point.load()
    return found


def _load(name: str) -> Toolkit:
    toolkit: Toolkit = importlib.import_module(f"{__name__}.{name}").TOOLKIT
    return toolkit

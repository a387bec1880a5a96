"""Names of the backends and toolkits that are installed, found without importing any of them.

The server reports these names and checks requests against them. Only judges and runners import the plug-ins, because a
plug-in may import torch.
"""

from __future__ import annotations

import importlib.metadata

#: Built-in names, for when the distribution's metadata is missing: sources may run from PYTHONPATH.
_BUILT_IN = {
    "kerneldyno.backends": ("triton", "cuda", "torch"),
    "kerneldyno.toolkits": ("kernelbench", "kernel_simple"),
}


def backend_names() -> tuple[str, ...]:
    """Return the names of all backends, the built-in ones first."""
    return _names("kerneldyno.backends")


def toolkit_names() -> tuple[str, ...]:
    """Return the names of all toolkits, the built-in ones first."""
    return _names("kerneldyno.toolkits")


def _names(group: str) -> tuple[str, ...]:
    found = {point.name for point in importlib.metadata.entry_points(group=group)}
    return (*_BUILT_IN[group], *sorted(found.difference(_BUILT_IN[group])))

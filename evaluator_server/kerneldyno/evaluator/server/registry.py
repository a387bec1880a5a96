"""Names of the backends and toolkits that are installed, found without importing any of them.

The server reports these names and checks requests against them. Only judges and runners import the plug-ins, because a
plug-in may import torch.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util

#: Built-in names, for when the distribution's metadata is missing: sources may run from PYTHONPATH.
_BUILT_IN = {
    "kerneldyno.backends": ("triton", "cuda", "torch", "cute", "cutile", "tilelang"),
    "kerneldyno.toolkits": ("kernelbench", "kernel_simple"),
}
#: Backends that are offered only where their package is installed, and the name by which Python finds it.
_OPTIONAL = {"cute": "nvidia_cutlass_dsl", "cutile": "cuda.tile", "tilelang": "tilelang"}


def backend_names() -> tuple[str, ...]:
    """Return the names of all backends whose packages are installed, the built-in ones first."""
    return tuple(name for name in _names("kerneldyno.backends") if _installed(_OPTIONAL.get(name)))


def toolkit_names() -> tuple[str, ...]:
    """Return the names of all toolkits, the built-in ones first."""
    return _names("kerneldyno.toolkits")


def _names(group: str) -> tuple[str, ...]:
    found = {point.name for point in importlib.metadata.entry_points(group=group)}
    return (*_BUILT_IN[group], *sorted(found.difference(_BUILT_IN[group])))


def _installed(package: str | None) -> bool:
    """Return True if Python finds the package, which is not imported. Its parent is, if it has one: `cuda` is empty."""
    try:
        return package is None or importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # no parent
        return False

"""The version of the installed distribution, for capabilities, environments and metrics."""

from __future__ import annotations

from importlib import metadata


def _version() -> str:
    try:
        return metadata.version("kerneldyno")
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        return "0+source"


VERSION = _version()

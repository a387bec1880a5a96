"""A directory of caches for one run of the tests: build caches of services are there, and not the user's."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

#: Services find their caches by this variable (XDG base directories).
_VARIABLE = "XDG_CACHE_HOME"
#: KernelDyno's folder in such a directory.
_OURS = "kerneldyno"
#: Start of the names of directories that this module makes.
_PREFIX = "kerneldyno-test-caches-"


def use(config: pytest.Config) -> None:
    """Give all services that this run starts a new build cache, which is removed in the end.

    Workers of xdist inherit that of the run. Other programs (pip, matplotlib, ...) find the user's caches as before.
    """
    users = Path(os.environ.get(_VARIABLE) or Path.home() / ".cache")
    if users.name.startswith(_PREFIX):
        return
    own = Path(tempfile.mkdtemp(prefix=_PREFIX))
    config.add_cleanup(lambda: shutil.rmtree(own, ignore_errors=True))
    if users.is_dir():
        for cache in users.iterdir():
            if cache.name != _OURS:
                (own / cache.name).symlink_to(cache)
    os.environ[_VARIABLE] = str(own)

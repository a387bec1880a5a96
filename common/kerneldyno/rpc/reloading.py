"""Watch files that may change while a server runs: renewed certificates and tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence

_Stamp = tuple[int, int, int] | None


class WatchedFiles:
    """Tell whether any of some files has changed. Symbolic links are followed, as Kubernetes secrets require."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._seen = self._stamps()

    def changed(self) -> bool:
        """Return True if any has changed since the last call, or since construction."""
        before, self._seen = self._seen, self._stamps()
        return self._seen != before

    def _stamps(self) -> list[_Stamp]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: str) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino

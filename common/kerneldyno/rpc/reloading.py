"""Files that may change while a server runs: certificates and tokens that are renewed."""

from __future__ import annotations

import os
from collections.abc import Sequence

_Stamp = tuple[int, int, int] | None


class WatchedFiles:
    """Tells when one of some files is another than it was. Symbolic links are followed, as Kubernetes' secrets need it."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._seen = self._stamps()

    def changed(self) -> bool:
        """Say whether one has changed since the last call, or since the beginning."""
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

"""The libraries that builders have built for one candidate, as the judge hands them to its runner: copies, by digest."""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...shared import library_file

_log = logging.getLogger("kerneldyno.judge")

#: Most bytes of all libraries of one candidate; in a frame they take a third more.
_MOST_BYTES = 46 << 20


@dataclass(frozen=True, slots=True)
class Libraries:
    """Entries of the build cache: digest of the build, key, file. What cannot be read is built by the runner."""

    entries: tuple[tuple[str, str, Path], ...] = ()
    #: By digest of a build, the compilers' messages, if it has failed.
    failures: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, said: Any) -> Libraries:
        """Read what the server sent."""
        entries = tuple((str(digest), str(key), Path(path)) for digest, key, path in said.get("built", []))
        return cls(entries, {str(digest): str(log) for digest, log in said.get("failures", {}).items()})

    def read(self) -> dict[str, str]:
        """Return the libraries by the digest of their build, in base64."""
        found: dict[str, str] = {}
        size = 0
        for digest, key, path in self.entries:
            try:
                content = library_file.read(path, key).content
            except (OSError, ValueError) as error:
                _log.info("event=library_missing key=%s reason=%r", key[:16], str(error))
                continue
            size += len(content)
            if size <= _MOST_BYTES:
                found[digest] = base64.b64encode(content).decode()
        return found


#: Of a candidate for which nothing was built.
NONE = Libraries()

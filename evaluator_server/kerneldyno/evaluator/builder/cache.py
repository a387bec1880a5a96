"""The build cache: libraries by the key of their build, in files that survive restarts and that only the builder writes.

A key is the digest of everything that goes into a build (`toolchain`). An entry is added only with what a compiler
process returned for exactly that key, so a build can spoil no other build. An entry names its key and the SHA-256 of
its library; one that does not match is deleted, never used. Candidates and compilers cannot see the directory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
import time
from pathlib import Path

from ..shared import library_file
from ..shared.library_file import Library

_log = logging.getLogger("kerneldyno.builder")

_UNFINISHED = ".part"
#: An unfinished file is this old (seconds) only if nobody writes it any more.
_ABANDONED_SECONDS = 3600.0


class CacheError(OSError):
    """The directory cannot be used; the message says why and what to do."""


class BuildCache:
    """A directory of libraries with a limit of bytes. Beyond it, those go first that were used longest ago."""

    def __init__(self, directory: Path, limit: int) -> None:
        """Open or create the directory.

        Args:
            directory: The directory; its parents are created.
            limit: Most bytes of all entries together.

        Raises:
            CacheError: It cannot be created, or others could write to it.
        """
        self.directory = directory
        self._limit = limit
        self.evictions = 0
        #: Bytes of all entries together, and their number, as last seen.
        self.size = self.entries = 0
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = directory.stat()
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
                raise CacheError(
                    f"others can write to the build cache {directory}; "
                    "make it yours alone (chmod 700), or set --build-cache"
                )
            for left in directory.glob(f"*{_UNFINISHED}"):
                with contextlib.suppress(FileNotFoundError):  # another evaluator may share the directory
                    if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:  # of a builder that was killed
                        left.unlink()
            self._make_room(0)
        except CacheError:
            raise
        except OSError as error:
            raise CacheError(
                f"the build cache {directory} cannot be used: {error.strerror}; set --build-cache"
            ) from error

    def path(self, key: str) -> Path:
        """Return where the entry of a key is, or would be."""
        return library_file.place(self.directory, key)

    def find(self, key: str) -> Library | None:
        """Return the library of a key, and note that it was used."""
        path = self.path(key)
        try:
            found = library_file.read(path, key)
            os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("event=build_cache_entry_deleted key=%s reason=%r", key[:16], str(error))
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        return found

    def add(self, library: Library) -> None:
        """Add a library. If the disk is full, or it alone exceeds the limit, it is not added."""
        path = self.path(library.key)
        content = library.encode()
        if len(content) > self._limit:
            return
        part = ""
        try:
            self._make_room(len(content))
            handle, part = tempfile.mkstemp(dir=self.directory, suffix=_UNFINISHED)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(part, path)
            self._make_room(0)  # counts them again; another evaluator may have added one, too
        except OSError as error:
            _log.warning("event=build_cache_write_failed detail=%r", str(error))
            with contextlib.suppress(OSError):
                os.unlink(part)

    def _make_room(self, size: int) -> None:
        """Count the entries, and delete those used longest ago until `size` bytes more fit. Raises OSError."""
        found = []
        for path in self.directory.glob(f"*{library_file.SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):  # another evaluator may share the directory
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        found.sort()
        self.size = sum(nbytes for _, nbytes, _ in found)
        self.entries = len(found)
        for _, nbytes, path in found:
            if self.size + size <= self._limit:
                return
            path.unlink(missing_ok=True)
            self.size -= nbytes
            self.entries -= 1
            self.evictions += 1

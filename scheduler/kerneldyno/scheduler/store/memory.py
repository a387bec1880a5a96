"""A store without a file: the tables of `sqlite` in memory, for tests and for work that may be lost."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from kerneldyno.scheduler.model import Key
from kerneldyno.scheduler.store import schema
from kerneldyno.scheduler.store.base import CachedResult, Filter, Record, StoredEvaluation
from kerneldyno.scheduler.store.known import Known
from kerneldyno.scheduler.store.sqlite import SqliteStore


class MemoryStore(SqliteStore):
    """What SqliteStore is, until this process ends. Reads wait for a write under way: microseconds, without a disk."""

    name = "memory"

    def __init__(self) -> None:
        connection = schema.connect(":memory:")
        schema.prepare(connection, "memory")
        self._path = "memory"
        self._writer = self._reader = self._lister = connection
        self._last_evaluation = self._last_result = 0
        self._known = Known(connection)
        self._listing = threading.Lock()
        self._whole = threading.Lock()  # one connection shows its own unfinished writes to every thread

    def write(self, records: Sequence[Record]) -> None:
        """Apply `records`, all or none."""
        with self._whole:
            super().write(records)

    def find(self, key: Key) -> StoredEvaluation | None:
        """Return an evaluation, or None."""
        with self._whole:
            return super().find(key)

    def cached(self, digest: bytes, environments: Collection[bytes]) -> CachedResult | None:
        """Return the newest cacheable result, or None."""
        with self._whole:
            return super().cached(digest, environments)

    def list(self, which: Filter, before: int | None, limit: int) -> list[StoredEvaluation]:
        """Return evaluations, newest first."""
        with self._whole:
            return super().list(which, before, limit)

    def trim(self, *, max_results: int, max_bytes: int, older_than_wall: float) -> int:
        """Forget some finished evaluations."""
        with self._whole:
            return super().trim(max_results=max_results, max_bytes=max_bytes, older_than_wall=older_than_wall)

    def close(self) -> None:
        """Forget everything."""
        self._writer.close()

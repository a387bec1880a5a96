"""A store without a file: the tables of the SQLite store in memory, for tests and for work that may be lost."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from kerneldyno.scheduler.core.model import Key
from kerneldyno.scheduler.core.ports import Filter
from kerneldyno.scheduler.core.records import CachedResult, Record, StoredEvaluation
from kerneldyno.scheduler.store import schema
from kerneldyno.scheduler.store.membership import MembershipFilter
from kerneldyno.scheduler.store.sqlite import SqliteStore


class MemoryStore(SqliteStore):
    """A SqliteStore that lasts as long as this process. Reads wait for a write in progress, which takes microseconds."""

    name = "memory"

    def __init__(self) -> None:
        connection = schema.connect(":memory:")
        schema.prepare(connection, "memory")
        self._path = "memory"
        self._writer = self._reader = self._lister = connection
        self._last_evaluation = self._last_result = 0
        self._membership = MembershipFilter([])
        self._listing = threading.Lock()
        self._exclusive = threading.Lock()  # all threads share one connection, which would show them unfinished writes

    def write(self, records: Sequence[Record]) -> None:
        """Apply `records`, all or none."""
        with self._exclusive:
            super().write(records)

    def find(self, key: Key) -> StoredEvaluation | None:
        """Return an evaluation, or None."""
        with self._exclusive:
            return super().find(key)

    def cached(self, digest: bytes, environments: Collection[bytes]) -> CachedResult | None:
        """Return the newest cacheable result, or None."""
        with self._exclusive:
            return super().cached(digest, environments)

    def list(self, which: Filter, before: int | None, limit: int) -> list[StoredEvaluation]:
        """Return evaluations, newest first."""
        with self._exclusive:
            return super().list(which, before, limit)

    def trim(self, *, max_results: int, max_bytes: int, older_than_wall: float) -> int:
        """Delete some finished evaluations."""
        with self._exclusive:
            return super().trim(max_results=max_results, max_bytes=max_bytes, older_than_wall=older_than_wall)

    def close(self) -> None:
        """Delete everything."""
        self._writer.close()

"""What the store has at all, by hash: most submits are new, and need no look into the file to learn that.

A look costs the event loop a read transaction, several times what a set does. Hashes of 64 bits stand for keys and digests,
some 100 bytes each in memory; one that is there by chance only costs a look.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from kerneldyno.scheduler.model import Key


class Known:
    """Keys and digests of the evaluations in the store. The writing thread keeps it, after each commit; any may ask."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._keys: set[int] = set()
        self._digests: set[int] = set()
        self.add(db.execute("SELECT client_id, id, digest FROM evaluations"))

    def add(self, rows: Iterable[tuple[str, str, bytes]]) -> None:
        """Take note of evaluations: client id, id, digest."""
        for client_id, own_id, digest in rows:
            self._keys.add(hash((client_id, own_id)))
            self._digests.add(hash(digest))

    def remove(self, db: sqlite3.Connection, rows: Iterable[tuple[str, str, bytes]]) -> None:
        """Forget evaluations that are no longer in `db`; a digest only if no other has it."""
        for client_id, own_id, digest in rows:
            self._keys.discard(hash((client_id, own_id)))
            if db.execute("SELECT 1 FROM evaluations WHERE digest = ? LIMIT 1", (digest,)).fetchone() is None:
                self._digests.discard(hash(digest))

    def may_have(self, key: Key) -> bool:
        """Say whether an evaluation of this key may be in the store."""
        return hash((key.client_id, key.id)) in self._keys

    def may_have_work(self, digest: bytes) -> bool:
        """Say whether an evaluation of this digest may be in the store."""
        return hash(digest) in self._digests

"""An in-memory membership filter of the store: which keys and digests it may contain.

Most submitted requests are new, and the filter saves the event loop a read transaction for each. It keeps 64-bit hashes,
about 100 bytes of memory each. A collision of hashes only costs an unneeded read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kerneldyno.scheduler.core.model import Key


class MembershipFilter:
    """Hashes of the keys and digests in the store. The writing thread updates it; any thread may ask."""

    def __init__(self, rows: Iterable[tuple[str, str, bytes]]) -> None:
        """Create the filter of a store with these evaluations, given as (client id, id, digest)."""
        self._keys: set[int] = set()
        self._digests: set[int] = set()
        self.add(rows)

    def add(self, rows: Iterable[tuple[str, str, bytes]]) -> None:
        """Add evaluations."""
        for client_id, own_id, digest in rows:
            self._keys.add(hash((client_id, own_id)))
            self._digests.add(hash(digest))

    def remove(self, rows: Iterable[tuple[str, str, bytes]], kept: Collection[bytes]) -> None:
        """Remove evaluations that were deleted from the store; not the digests in `kept`, which other evaluations have."""
        for client_id, own_id, digest in rows:
            self._keys.discard(hash((client_id, own_id)))
            if digest not in kept:
                self._digests.discard(hash(digest))

    def may_have_key(self, key: Key) -> bool:
        """Return False if the store certainly has no evaluation with this key."""
        return hash((key.client_id, key.id)) in self._keys

    def may_have_digest(self, digest: bytes) -> bool:
        """Return False if the store certainly has no evaluation with this digest."""
        return hash(digest) in self._digests

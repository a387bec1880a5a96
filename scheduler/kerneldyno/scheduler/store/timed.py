"""A store that reports how long each operation took."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from kerneldyno.scheduler.clock import Clock
from kerneldyno.scheduler.core.model import Key
from kerneldyno.scheduler.core.ports import Filter, Store
from kerneldyno.scheduler.core.records import CachedResult, Record, Recovered, StoredEvaluation

Result = TypeVar("Result")


class TimedStore:
    """Forwards each call to another store. Implements Store."""

    def __init__(self, store: Store, clock: Clock, observe: Callable[[str, float], None]) -> None:
        """Wrap a store.

        Args:
            store: The store.
            clock: Its monotonic time is used.
            observe: Called with the name of the operation and its seconds, in any thread, also when it failed.
        """
        self.inner = store
        self.name = store.name
        self._clock = clock
        self._observe = observe

    def recover(self) -> Recovered:
        """Return what was unfinished."""
        return self._timed("recover", self.inner.recover)

    def write(self, records: Sequence[Record]) -> None:
        """Apply `records`, all or none."""
        self._timed("write", lambda: self.inner.write(records))

    def find(self, key: Key) -> StoredEvaluation | None:
        """Return an evaluation, or None."""
        return self._timed("find", lambda: self.inner.find(key))

    def cached(self, digest: bytes, environments: Collection[bytes]) -> CachedResult | None:
        """Return the newest cacheable result, or None."""
        return self._timed("cached", lambda: self.inner.cached(digest, environments))

    def list(self, which: Filter, before: int | None, limit: int) -> list[StoredEvaluation]:
        """Return evaluations, newest first."""
        return self._timed("list", lambda: self.inner.list(which, before, limit))

    def trim(self, *, max_results: int, max_bytes: int, older_than_wall: float) -> int:
        """Delete some finished evaluations."""
        return self._timed(
            "trim",
            lambda: self.inner.trim(max_results=max_results, max_bytes=max_bytes, older_than_wall=older_than_wall),
        )

    def close(self) -> None:
        """Release all resources."""
        self.inner.close()

    def _timed(self, operation: str, call: Callable[[], Result]) -> Result:
        began = self._clock.monotonic()
        try:
            return call()
        finally:
            self._observe(operation, self._clock.monotonic() - began)

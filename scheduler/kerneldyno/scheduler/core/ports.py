"""What the state machine needs from outside: a store, a journal in front of it, and an observer of the journal.

The state machine decides in memory and appends a record for each decision. A store applies batches of records, each batch
completely or not at all, and durably when `write` returns. At a start it returns what was unfinished. One process writes;
other threads may read at the same time and see a whole number of batches.

A store that several schedulers share provides more: batches that are durable on a majority of replicas, a fencing epoch of
the writer that is checked in the same transaction as each write, and reads that see the scheduler's own latest writes.
docs/scaling.md has the details.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from kerneldyno.scheduler.core.model import Key
from kerneldyno.scheduler.core.records import CachedResult, Record, Recovered, StoredEvaluation


class StoreError(Exception):
    """The store cannot be opened or read. The message says why, and what to do."""


class StoreUnreachableError(OSError):
    """The store does not answer at the moment. The same call may succeed later."""


class RoleLostError(StoreError):
    """Another scheduler has taken over the store: this one may write nothing more, and must not tell anybody anything."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects evaluations to list. None and empty values select all."""

    client_id: str = ""
    share: str = ""
    """Select only clients of this share (Key.share)."""
    outcomes: frozenset[str] = frozenset()
    unfinished: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    accepted_from_wall: float | None = None
    accepted_before_wall: float | None = None
    digest: bytes = b""


class Store(Protocol):
    """The durable memory of one scheduler."""

    name: str
    """The name that GetCapabilities reports, for example "sqlite"."""

    def recover(self) -> Recovered:
        """Return what was unfinished. Called once, before all other methods.

        Raises:
            StoreError: The store cannot be read.
        """

    def write(self, records: Sequence[Record]) -> None:
        """Apply `records` in order, all or none. They are durable when this returns. Called from one thread.

        Raises:
            OSError, sqlite3.Error: The caller tries the same batch again. Nothing was applied, or the store recognises the
                batch when it comes again: then give it the same sequence.
            RoleLostError: Nothing was applied, and nothing ever will be.
        """

    def find(self, key: Key) -> StoredEvaluation | None:
        """Return the evaluation with this key, or None if it is unknown or was deleted. Raises StoreUnreachableError."""

    def cached(self, digest: bytes, environments: Collection[bytes]) -> CachedResult | None:
        """Return the newest cacheable result of `digest` from one of `environments`, or None.

        Raises:
            StoreUnreachableError: The store does not answer.
        """

    def list(self, which: Filter, before: int | None, limit: int) -> list[StoredEvaluation]:
        """Return up to `limit` evaluations, newest first, with numbers below `before`. Verdicts include their payload."""

    def trim(self, *, max_results: int, max_bytes: int, older_than_wall: float) -> int:
        """Delete some finished evaluations; unfinished ones are kept. Called from the writing thread, now and then.

        Args:
            max_results: Number of finished evaluations to keep; the oldest beyond it are deleted.
            max_bytes: The same bound in bytes of result.
            older_than_wall: Delete what finished before this time, in seconds since the epoch.

        Returns:
            The number of deleted evaluations; 0 when all bounds are kept.
        """

    def close(self) -> None:
        """Release all resources."""


class Journal(Protocol):
    """Accepts the records of the state machine, and calls back when they are durable."""

    def append(self, record: Record) -> None:
        """Write `record` after all records before it."""

    def after_commit(self, call: Callable[[], None]) -> None:
        """Make `call` once all records that were appended so far are durable."""

    def has_room(self) -> bool:
        """Return True if the writer keeps up with the records."""


class ServedJournal(Journal, Protocol):
    """A journal as the gRPC edge and the metrics use it: it can also be waited for, and tells its state."""

    @property
    def stalled(self) -> str | None:
        """The reason why records cannot be written at the moment; None when they can."""

    @property
    def pending(self) -> int:
        """The number of records that are not known to be durable."""

    async def committed(self) -> None:
        """Return once all records that were appended so far are durable."""


class JournalObserver:
    """Receives events of the journal, in the event loop. Override what matters."""

    def batch_committed(self, records: int, seconds: float) -> None:
        """Called when a batch of `records` became durable, `seconds` after its transaction began."""

    def batch_failed(self, reason: str) -> None:
        """Called when a batch could not be written. It will be tried again."""

"""The journal with group commit: makes the records of the state machine durable, and then calls back.

The event loop appends records. One thread takes all pending records, writes them as one batch, and reports back to the event
loop. Meanwhile the next batch grows, so batches are larger when the scheduler is busier.

A batch that cannot be written, for example because the disk is full, is kept and tried again, in order. Until that succeeds,
`stalled` has the reason and no callbacks are made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kerneldyno.scheduler.clock import Clock, SystemClock
from kerneldyno.scheduler.core.ports import JournalObserver, RoleLostError, Store
from kerneldyno.scheduler.core.records import Record
from kerneldyno.scheduler.failpoints import failpoint

_log = logging.getLogger(__name__)

#: Number of pending records from which on `has_room` returns False: several seconds of a busy scheduler.
MAX_PENDING = 20_000
#: Maximum number of records in one batch. Larger batches take longer without costing less for each record.
MAX_BATCH = 2_000
#: Pause in seconds before a failed batch is tried again.
RETRY_SECONDS = 0.5
#: Seconds between two attempts to trim the store, when the last one found nothing to delete.
TRIM_SECONDS = 1.0
#: Seconds for which `close` waits for pending records. Nobody was told of these, so losing them is allowed.
CLOSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Bounds of the finished evaluations that are kept: their number, the bytes of their results, and their age."""

    max_results: int
    max_bytes: int
    max_seconds: float


class GroupCommitJournal:
    """Writes records to a store in a thread of its own. Call all methods in the thread of the event loop."""

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        *,
        retention: Retention | None = None,
        clock: Clock | None = None,
        observer: JournalObserver | None = None,
    ) -> None:
        self.stalled: str | None = None
        """The reason why records cannot be written at the moment; None when they can."""
        self.observer = observer or JournalObserver()
        self._store = store
        self._loop = loop
        self._retention = retention
        self._clock = clock or SystemClock()
        self._pending: deque[Record] = deque()  # the loop appends and the thread pops; a deque allows both at once
        self._appended = 0
        self._committed = 0
        # Callbacks, each with the number of records that must be durable before it.
        self._calls: deque[tuple[int, Callable[[], None]]] = deque()
        self._calling = False
        self._waking = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._ended = asyncio.Event()  # set when another scheduler has taken over the store
        self._trim_at = 0.0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    # In the event loop

    @property
    def pending(self) -> int:
        """The number of records that are not known to be durable."""
        return self._appended - self._committed

    def append(self, record: Record) -> None:
        """Write `record` after all records before it."""
        self._pending.append(record)
        self._appended += 1
        if not self._waking:
            # Wait two turns of the loop, so that a job that is accepted in this turn and placed in the next is one batch.
            self._waking = True
            self._loop.call_soon(self._loop.call_soon, self._wake_writer)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Make `call` in the event loop once all records that were appended so far are durable; now if they are.

        Calls are made in the order in which they were given. An exception in a call is logged and does not stop the others.
        """
        self._calls.append((self._appended, call))
        self._make_calls()

    async def committed(self) -> None:
        """Return once all records that were appended so far are durable."""
        done = self._loop.create_future()
        self.after_commit(lambda: None if done.done() else done.set_result(None))
        await done

    def has_room(self) -> bool:
        """Return True if the disk keeps up with the records."""
        return self._appended - self._committed < MAX_PENDING

    async def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Write pending records and stop the thread. Return False if they could not be written in `timeout` seconds."""
        written = asyncio.ensure_future(self.committed())
        ended = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait((written, ended), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for waiting in (written, ended):
            waiting.cancel()
        if self.pending:
            reason = self.stalled or "the store is too slow"
            _log.error("event=journal_records_lost records=%d reason=%r", self.pending, reason)
        self._closing.set()
        self._wake.put(None)
        await asyncio.to_thread(self._thread.join)
        return not self.pending

    def _wake_writer(self) -> None:
        self._waking = False
        self._wake.put(None)

    def _on_committed(self, records: int, seconds: float) -> None:
        self.stalled = None
        self._committed += records
        _guarded(partial(self.observer.batch_committed, records, seconds))
        self._make_calls()

    def _on_failed(self, reason: str) -> None:
        if self.stalled != reason:
            _log.error("event=journal_stalled retry_seconds=%g reason=%r", RETRY_SECONDS, reason)
        self.stalled = reason
        self.observer.batch_failed(reason)

    def _on_lost(self, reason: str) -> None:
        """Note that no record will be written any more. Nobody was told of those that are pending, and nobody will be."""
        self._on_failed(reason)
        self._ended.set()

    def _make_calls(self) -> None:
        if self._calling:
            return  # called from within a call: the loop below makes the new call in its turn
        self._calling = True
        try:
            while self._calls and self._calls[0][0] <= self._committed:
                _, call = self._calls.popleft()
                _guarded(call)
        finally:
            self._calling = False

    # In the writing thread

    def _run(self) -> None:
        trimmed = False
        while not self._closing.is_set():
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=0.01 if trimmed else TRIM_SECONDS)
            while self._pending and not self._closing.is_set():
                self._write(self._take())
            trimmed = self._trim()

    def _take(self) -> list[Record]:
        size = min(len(self._pending), MAX_BATCH)
        return [self._pending.popleft() for _ in range(size)]

    def _write(self, batch: list[Record]) -> None:
        """Write `batch`, and try again until it succeeds or the journal is closed."""
        while True:
            begun = self._clock.monotonic()
            try:
                failpoint("before_commit")
                self._store.write(batch)
            except RoleLostError as error:
                self._closing.set()
                self._tell(self._on_lost, str(error))
                return
            except (OSError, sqlite3.OperationalError) as error:
                self._tell(self._on_failed, f"the store cannot be written: {error}")
            except Exception as error:
                _log.exception("event=journal_batch_refused records=%d", len(batch))
                self._tell(self._on_failed, f"the store refuses a record: {error!r}")
            else:
                with contextlib.suppress(OSError):
                    failpoint("after_commit")
                self._tell(self._on_committed, len(batch), self._clock.monotonic() - begun)
                return
            if self._closing.wait(RETRY_SECONDS):
                return

    def _trim(self) -> bool:
        """Delete some old results if it is time, and return True if there may be more to delete."""
        keep, now = self._retention, self._clock.monotonic()
        if keep is None or now < self._trim_at:
            return False
        try:
            deleted = self._store.trim(
                max_results=keep.max_results,
                max_bytes=keep.max_bytes,
                older_than_wall=self._clock.wall() - keep.max_seconds,
            )
        except Exception as error:
            _log.warning("event=trim_failed reason=%r", error)
            deleted = 0
        self._trim_at = now if deleted else now + TRIM_SECONDS
        return deleted > 0

    def _tell(self, call: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            self._closing.set()  # the loop is closed, so no caller is left


class ImmediateJournal:
    """A journal without a thread: each record is written before `append` returns, and none is ever pending."""

    stalled: str | None = None
    pending = 0

    def __init__(self, store: Store) -> None:
        self._store = store

    def append(self, record: Record) -> None:
        """Write `record`. Raises what the store raises."""
        self._store.write([record])

    def after_commit(self, call: Callable[[], None]) -> None:
        """Make `call` now."""
        _guarded(call)

    async def committed(self) -> None:
        """Return at once, because everything is written."""

    def has_room(self) -> bool:
        """Return True."""
        return True

    async def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Do nothing."""
        return True


def _guarded(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        _log.exception("event=journal_callback_failed call=%r", call)

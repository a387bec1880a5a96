"""Group commit: what the state machine writes down becomes durable, and only then is anybody told.

The event loop appends records; one thread takes whatever is pending, writes it as one batch, and reports back with one call
into the loop. While a batch is being written the next one gathers, so the busier the scheduler, the larger the batches.

A batch that cannot be written (the disk is full, or fails) is kept and tried again, in order; `stalled` says why until it
works, and nobody is told of anything in the meantime.
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
from kerneldyno.scheduler.failpoints import failpoint
from kerneldyno.scheduler.store.base import Record, Store

log = logging.getLogger(__name__)

#: Records that may wait to be written before `has_room` says no: several seconds of a busy scheduler.
MAX_PENDING = 20_000
#: Records of one batch: beyond it a batch takes longer without costing less for each.
MAX_BATCH = 2_000
RETRY_SECONDS = 0.5
#: How often the store is asked to forget what is too old or too much, when the last time there was nothing.
TRIM_SECONDS = 1.0
#: How long `close` waits for what is pending: nobody was told of it, so it may be lost.
CLOSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How many finished evaluations are kept, how many bytes of result, and for how long."""

    max_results: int
    max_bytes: int
    max_seconds: float


class JournalObserver:
    """What metrics want to know, told in the event loop; override what matters."""

    def batch_committed(self, records: int, seconds: float) -> None:
        """So many records took so long to become durable, from the start of their transaction."""

    def batch_failed(self, reason: str) -> None:
        """A batch could not be written; it will be tried again."""


class Journal:
    """Writes records to a store. All methods belong to one event loop's thread."""

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
        """Why nothing can be written at the moment; None when all is well."""
        self.observer = observer or JournalObserver()
        self._store = store
        self._loop = loop
        self._retention = retention
        self._clock = clock or SystemClock()
        self._pending: deque[Record] = deque()  # the loop appends, the thread takes: both at once is safe
        self._appended = 0
        self._committed = 0
        self._calls: deque[tuple[int, Callable[[], None]]] = deque()  # each with the count of records that it waits for
        self._calling = False
        self._waking = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._trim_at = 0.0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    # The event loop's side

    @property
    def pending(self) -> int:
        """Records that are not known to be durable."""
        return self._appended - self._committed

    def append(self, record: Record) -> None:
        """Have `record` written, after all before it."""
        self._pending.append(record)
        self._appended += 1
        if not self._waking:
            # What this turn of the loop appends goes into the same batch, and what follows from it in the next turn: a job
            # that was accepted is placed there.
            self._waking = True
            self._loop.call_soon(self._loop.call_soon, self._wake_writer)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call `call` in the event loop once all that was appended so far is durable: at once if it is.

        Calls are made in the order in which they were given; one that raises is logged and does not stop the others.
        """
        self._calls.append((self._appended, call))
        self._make_calls()

    async def committed(self) -> None:
        """Return once all that was appended so far is durable."""
        done = self._loop.create_future()
        self.after_commit(lambda: None if done.done() else done.set_result(None))
        await done

    def has_room(self) -> bool:
        """Say whether the disk keeps up."""
        return self._appended - self._committed < MAX_PENDING

    async def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Write what is pending and stop; False when that could not be written in `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self.committed()
        except TimeoutError:
            log.error("journal: %d records were not written: %s", self.pending, self.stalled or "the store is too slow")
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
            log.error("journal: cannot write, and will try again: %s", reason)
        self.stalled = reason
        self.observer.batch_failed(reason)

    def _make_calls(self) -> None:
        if self._calling:
            return  # a call asked for another: it comes after those before it
        self._calling = True
        try:
            while self._calls and self._calls[0][0] <= self._committed:
                _, call = self._calls.popleft()
                _guarded(call)
        finally:
            self._calling = False

    # The writing thread

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
        """Write `batch`, however often it takes."""
        while True:
            begun = self._clock.monotonic()
            try:
                failpoint("before_commit")
                self._store.write(batch)
            except (OSError, sqlite3.OperationalError) as error:
                self._tell(self._on_failed, f"the store cannot be written: {error}")
            except Exception as error:
                log.exception("journal: a batch of %d records cannot be written", len(batch))
                self._tell(self._on_failed, f"the store refuses a record: {error!r}")
            else:
                with contextlib.suppress(OSError):
                    failpoint("after_commit")
                self._tell(self._on_committed, len(batch), self._clock.monotonic() - begun)
                return
            if self._closing.wait(RETRY_SECONDS):
                return

    def _trim(self) -> bool:
        """Have the store forget a little, if it is time; True when there may be more."""
        keep, now = self._retention, self._clock.monotonic()
        if keep is None or now < self._trim_at:
            return False
        try:
            forgotten = self._store.trim(
                max_results=keep.max_results,
                max_bytes=keep.max_bytes,
                older_than_wall=self._clock.wall() - keep.max_seconds,
            )
        except Exception as error:
            log.warning("journal: cannot forget old results now: %r", error)
            forgotten = 0
        self._trim_at = now if forgotten else now + TRIM_SECONDS
        return forgotten > 0

    def _tell(self, call: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            self._closing.set()  # the loop is closed: there is nobody left to tell


class ImmediateJournal:
    """A journal without a loop or a thread: each record is written before `append` returns, and nothing is ever pending."""

    stalled: str | None = None
    pending = 0

    def __init__(self, store: Store) -> None:
        self._store = store

    def append(self, record: Record) -> None:
        """Write `record`. Raises what the store raises."""
        self._store.write([record])

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call `call` now."""
        _guarded(call)

    async def committed(self) -> None:
        """Return: everything is written."""

    def has_room(self) -> bool:
        """Say yes."""
        return True

    async def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Do nothing."""
        return True


def _guarded(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        log.exception("journal: %r failed", call)

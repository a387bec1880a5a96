"""One call: takes items from a source, keeps a window of them at the scheduler, yields their answers.

Items are requests and answers are results for evaluate(), turns and rewards for rewards(); the Ledger knows which.
Three activities share it: the pump takes items from the caller while the window has room, the writer sends what the ledger
wants sent, the reader brings answers back. When the stream breaks, reader and writer start again on a new one and the
ledger says what has to be said again; the pump does not notice.
It knows nothing of addresses and channels' making, and holds no answer longer than the caller takes to fetch it: a
place in the window becomes free when the caller takes the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import grpc.aio
from kerneldyno.client.backoff import Backoff
from kerneldyno.client.errors import (
    ClientClosedError,
    KernelDynoError,
    UnavailableError,
    away,
    check_loop,
    from_call,
    is_passing,
)
from kerneldyno.client.item_spans import ItemSpans
from kerneldyno.client.ledger import MAX_ITEM_BYTES, Item, Ledger
from kerneldyno.rpc.credentials import Credentials

Answer = TypeVar("Answer")
Up = TypeVar("Up")
Down = TypeVar("Down")

#: How long a call that is given up waits for the scheduler to confirm the cancellations, in seconds.
CANCEL_SECONDS = 3.0
#: A stream that held this long was a connection, even if nothing was said, in seconds.
_SETTLED_SECONDS = 1.0
#: How long a call that cannot connect may take to say why, in seconds. It fails at once, or while it is being tried.
_REASON_SECONDS = 5.0
#: Items taken from the source before other tasks of the event loop get a turn.
_TURN = 8


@dataclass(frozen=True, slots=True)
class Terms:
    """What a call was asked to keep to."""

    address: str  # of the scheduler, for messages
    credentials: Credentials  # the same
    window: int  # items taken from the source whose answers the caller has not taken yet
    reconnect_seconds: float  # longest time without the scheduler
    timeout: float | None  # for the whole call, in seconds
    finite: bool  # the source is a collection: at the deadline the rest of it is answered too
    on_stalled: Callable[[str], None]  # is told why the scheduler cannot go on, and "" when it can again


class Session(Generic[Item, Answer, Up, Down]):
    """The life of one call. Iterate results() once; close() ends it early.

    `open_stream` makes a stream on `channel`, which lives in `loop`.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        loop: asyncio.AbstractEventLoop | None,
        open_stream: Callable[[], grpc.aio.StreamStreamCall[Up, Down]],
        ledger: Ledger[Item, Answer, Up, Down],
        source: AsyncIterator[Item],
        terms: Terms,
        spans: ItemSpans,
    ) -> None:
        self._channel = channel
        self._loop = loop
        self._open_stream = open_stream
        self._source = source
        self._terms = terms
        self._ledger = ledger
        self._spans: Any = spans  # of EvalRequest or Turn, as the ledger's items are
        self._slots = asyncio.Semaphore(terms.window)
        # Never more than the window's worth of answers, and None when there will be no more.
        self._results: asyncio.Queue[Answer | None] = asyncio.Queue()
        self._changed = asyncio.Event()  # the ledger may want something sent
        self._drained = False  # the pump has ended
        self._expired = False
        self._ended = False
        self._call: grpc.aio.StreamStreamCall[Up, Down] | None = None  # the present stream
        self._heard = False  # anything on the present stream
        self._stalled = False  # the scheduler said last that it stands still
        self._failure: Exception | None = None
        self._pumping: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None

    async def results(self) -> AsyncGenerator[Answer, None]:
        """Yields each answer as it comes. Ending the iteration early cancels what is outstanding."""
        check_loop("client", self._loop)
        self._running = asyncio.create_task(self._run(), name="kerneldyno-session")
        try:
            while (result := await self._results.get()) is not None:
                self._slots.release()
                yield result
            if self._failure is not None:
                raise self._failure
        finally:
            await self.close()

    def cancel(self, id: str) -> None:
        """Gives up one item that was taken from the source; no answer will come of it."""
        if self._ledger.cancel(id):
            self._spans.drop(id)
            self._slots.release()
            self._settle()

    async def close(self) -> None:
        """Cancels what is outstanding, gives the scheduler a moment to confirm it, and ends all activity."""
        if self._running is None:
            return
        if not self._ended:
            self._failure = ClientClosedError("the call was ended before all its results were in")
        self._stop_pump()
        self._give_up()
        self._spans.close(type(self._failure).__name__ if self._failure is not None else "CANCELLED")
        self._settle()
        owed = self._call is not None or not self._ledger.idle
        try:
            await asyncio.wait({self._running}, timeout=CANCEL_SECONDS if owed else 0)
        finally:
            self._running.cancel()
            await asyncio.wait({self._running})
        if not self._running.cancelled() and (error := self._running.exception()) is not None:
            raise error  # a defect of this module, never of the call

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._pumping = group.create_task(self._pump())
                expiry = group.create_task(self._expire())
                await self._converse()
                expiry.cancel()
                if not self._expired:
                    self._stop_pump()
        finally:
            self._end()

    # The pump.

    async def _pump(self) -> None:
        taken = 0
        try:
            while True:
                await self._slots.acquire()
                try:
                    item = await anext(self._source)
                except StopAsyncIteration:
                    return
                if self._expired:
                    self._results.put_nowait(self._ledger.expired(item, self._terms.timeout or 0.0))
                elif item.ByteSize() > MAX_ITEM_BYTES:
                    self._results.put_nowait(self._ledger.oversize(item))
                else:
                    self._spans.begin(item)
                    self._ledger.add(item)
                    self._changed.set()
                taken += 1
                if taken % _TURN == 0:
                    await asyncio.sleep(0)
        except Exception as error:  # the caller's own iterator failed: the caller shall see just that
            self._fail(error)
        finally:
            self._drained = True
            self._settle()
            await _close_source(self._source)

    def _stop_pump(self) -> None:
        if self._pumping is not None:
            self._pumping.cancel()

    async def _expire(self) -> None:
        if self._terms.timeout is None:
            return
        await asyncio.sleep(self._terms.timeout)
        self._expired = True
        for item in self._give_up():
            self._answer(self._ledger.expired(item, self._terms.timeout))
        if not self._terms.finite:
            self._stop_pump()
        self._settle()

    # The stream.

    async def _converse(self) -> None:
        backoff = Backoff()
        lost_at = 0.0
        while True:
            if self._ledger.idle:
                if not await self._something_to_do():
                    return
                lost_at = time.monotonic()
            try:
                await self._connected(lost_at)
            except UnavailableError as error:
                return self._lose(error)
            opened_at, self._heard = time.monotonic(), False
            broken = await self._talk()
            refusal = None if broken is None else from_call(broken, self._terms.address, self._terms.credentials)
            told = None if refusal is None else refusal.retry_seconds
            now = time.monotonic()
            # A scheduler that says when to come back is not away, however often it says so.
            if self._heard or told is not None or now - opened_at > _SETTLED_SECONDS:
                lost_at = now
                backoff.reset()
            if self._ledger.idle:
                continue
            if broken is not None and refusal is not None:
                if not is_passing(broken):
                    return self._lose(refusal)
                if now - lost_at > self._terms.reconnect_seconds:
                    return self._lose(self._unavailable(broken.details() or broken.code().name))
            await asyncio.sleep(backoff.pause(told))
            self._ledger.reconnected()

    async def _something_to_do(self) -> bool:
        """Waits until there is something to talk about. False when the call is over."""
        while self._ledger.idle:
            if self._drained:
                return False
            self._changed.clear()
            await self._changed.wait()
        return True

    async def _connected(self, lost_at: float) -> None:
        remaining = self._terms.reconnect_seconds - (time.monotonic() - lost_at)
        try:
            async with asyncio.timeout(max(0.0, remaining)):
                await self._channel.channel_ready()
        except TimeoutError:
            raise self._unavailable(await self._why_not_connected()) from None

    async def _why_not_connected(self) -> str:
        """Returns gRPC's reason: a channel does not tell it, a call on it does."""
        call = self._open_stream()
        try:
            async with asyncio.timeout(_REASON_SECONDS):
                await call.code()
                return await call.details() or "no connection"
        except TimeoutError:
            return "no connection"
        finally:
            call.cancel()

    async def _talk(self) -> grpc.aio.AioRpcError | None:
        """Holds one stream until it ends. Returns the error that broke it, or None when the server ended it well."""
        broken: grpc.aio.AioRpcError | None = None
        call = self._call = self._open_stream()
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write(call))
                await self._read(call)
                writer.cancel()
        except* grpc.aio.AioRpcError as errors:
            broken = next(error for error in errors.exceptions if isinstance(error, grpc.aio.AioRpcError))
        finally:
            self._call = None
            call.cancel()
        return broken

    async def _read(self, call: grpc.aio.StreamStreamCall[Up, Down]) -> None:
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                self._heard = True
                notice = cast(Any, response)
                self._note_stall(notice.journal_stalled if notice.HasField("journal_stalled") else "")
                if (answer := self._ledger.receive(cast(Down, response))) is not None:
                    self._answer(answer)
                self._settle()
            self._ledger.ended()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Not this task was cancelled but the call, by _give_up().

    def _note_stall(self, why: str) -> None:
        """Tells that the scheduler stands still, and once that it goes on: with any other message, that is."""
        if why or self._stalled:
            self._terms.on_stalled(why)
        self._stalled = bool(why)

    async def _write(self, call: grpc.aio.StreamStreamCall[Up, Down]) -> None:
        try:
            while not (self._drained and self._ledger.finished):
                if (message := self._ledger.next_message()) is not None:
                    await call.write(message)
                else:
                    self._changed.clear()
                    await self._changed.wait()
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the stream is broken; the reader sees its status

    # Ends.

    def _answer(self, answer: Answer) -> None:
        self._spans.end(answer)
        self._results.put_nowait(answer)

    def _settle(self) -> None:
        """Wakes whoever may have to go on, and ends the results when there can be no more."""
        self._changed.set()
        if self._drained and self._ledger.answered:
            self._end()

    def _lose(self, error: KernelDynoError) -> None:
        # After the deadline the scheduler is owed only cancellations, and the caller has every result already.
        if not self._expired:
            self._fail(error)

    def _give_up(self) -> list[Item]:
        """Has everything unanswered cancelled. Returns it."""
        given_up = self._ledger.abandon()
        if self._call is not None and not self._ledger.idle:
            # On this stream the cancellations might wait behind requests that wait for room in the scheduler's queue.
            self._call.cancel()
        return given_up

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._give_up()
        self._end()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._results.put_nowait(None)

    def _unavailable(self, detail: str) -> UnavailableError:
        terms = self._terms
        return away(terms.address, terms.credentials, terms.reconnect_seconds, detail, self._ledger.waiting)


async def _close_source(source: AsyncIterator[Item]) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()

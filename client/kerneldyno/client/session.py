"""One call: take items from a source, keep a window of them at the scheduler, yield their answers.

For evaluate() items are requests and answers are results; for rewards() they are turns and rewards. The Ledger knows
which. Three tasks share the session: the pump takes items from the caller while the window has room, the writer sends
the ledger's messages, and the reader receives answers. When the stream breaks, reader and writer start again on a new
one and the ledger decides what is sent again; the pump does not notice.

A session does not deal with addresses or with making channels: if the channel has several addresses, it decides where
the next stream goes. A place in the window becomes free when the caller takes
the answer, so a session never holds more answers than the window has places.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import grpc.aio

from kerneldyno.client.errors import (
    ClientClosedError,
    KernelDynoError,
    UnavailableError,
    check_loop,
    from_call,
    is_temporary,
    unreachable_for,
)
from kerneldyno.client.item_spans import ItemSpans
from kerneldyno.client.ledger import MAX_ITEM_BYTES, Item, Ledger
from kerneldyno.rpc.backoff import Backoff
from kerneldyno.rpc.credentials import Credentials
from kerneldyno.rpc.failover import FailoverChannel

Answer = TypeVar("Answer")
Up = TypeVar("Up")
Down = TypeVar("Down")

#: Seconds that a call waits, when it is given up, for the scheduler to confirm the cancellations.
CANCEL_SECONDS = 3.0
#: Seconds after which a stream counts as a working connection, even if no message arrived.
_SETTLED_SECONDS = 1.0
#: Seconds that a call on a broken channel may take to report why it cannot connect. It fails at once or on the next
#: attempt.
_REASON_SECONDS = 5.0
#: Items taken from the source before other tasks of the event loop get to run.
_TURN = 8


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings of one call."""

    address: str  # of the scheduler or schedulers, for messages
    credentials: Credentials  # for messages too
    window: int  # most items taken from the source whose answers the caller has not taken yet
    reconnect_seconds: float  # longest time without the scheduler
    timeout: float | None  # of the whole call, in seconds
    finite: bool  # the source is a collection: at the deadline the rest of it is answered too
    on_stalled: Callable[[str], None]  # receives the reason why the scheduler cannot go on, and "" when it can again


class Session(Generic[Item, Answer, Up, Down]):
    """One call. Iterate results() once; close() ends it early.

    `open_stream` makes a stream on `channel`, which belongs to `loop`.
    """

    def __init__(
        self,
        channel: FailoverChannel,
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
        # At most as many answers as the window has places, and None when there will be no more.
        self._results: asyncio.Queue[Answer | None] = asyncio.Queue()
        self._changed = asyncio.Event()  # the ledger may have something to send
        self._drained = False  # the pump has ended
        self._expired = False
        self._ended = False
        self._call: grpc.aio.StreamStreamCall[Up, Down] | None = None  # the present stream
        self._received = False  # whether any message arrived on the present stream
        self._stalled = False  # the scheduler's last message said that it cannot go on
        self._failure: Exception | None = None
        self._pumping: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None

    async def results(self) -> AsyncGenerator[Answer, None]:
        """Yield each answer as it arrives. Ending the iteration early cancels all outstanding items."""
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
        """Give up one item that was taken from the source; it gets no answer."""
        if self._ledger.cancel(id):
            self._spans.drop(id)
            self._slots.release()
            self._settle()

    async def close(self) -> None:
        """Cancel all outstanding items, wait briefly for the scheduler to confirm it, and end all tasks."""
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
            raise error  # a defect of this module, not of the call

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._pumping = group.create_task(self._pump())
                expiry = group.create_task(self._expire())
                await self._keep_streaming()
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
        except Exception as error:  # the caller's own iterator failed: the caller shall see that same error
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

    async def _keep_streaming(self) -> None:
        backoff = Backoff()
        lost_at = 0.0
        while True:
            if self._ledger.idle:
                if not await self._wait_for_work():
                    return
                lost_at = time.monotonic()
            try:
                await self._connected(lost_at)
            except UnavailableError as error:
                return self._fail_unavailable(error)
            opened_at, self._received = time.monotonic(), False
            broken = await self._run_stream()
            refusal = None if broken is None else from_call(broken, self._terms.address, self._terms.credentials)
            told = None if refusal is None else refusal.retry_seconds
            now = time.monotonic()
            # A scheduler that says when to retry is reachable, however often it says so.
            if self._received or told is not None or now - opened_at > _SETTLED_SECONDS:
                lost_at = now
                backoff.reset()
            if self._ledger.idle:
                continue
            if broken is not None and refusal is not None:
                if not is_temporary(broken):
                    return self._fail_unavailable(refusal)
                if now - lost_at > self._terms.reconnect_seconds:
                    return self._fail_unavailable(self._unavailable(broken.details() or broken.code().name))
            await asyncio.sleep(backoff.pause(told))
            self._ledger.reconnected()

    async def _wait_for_work(self) -> bool:
        """Wait until there is something to send. Return False if the call is over."""
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
        """Return gRPC's reason: a channel to one address does not report it, but a call on it does."""
        if self._channel.report():
            return ""
        call = self._open_stream()
        try:
            async with asyncio.timeout(_REASON_SECONDS):
                await call.code()
                return await call.details() or "no connection"
        except TimeoutError:
            return "no connection"
        finally:
            call.cancel()

    async def _run_stream(self) -> grpc.aio.AioRpcError | None:
        """Run one stream until it ends. Return the error that broke it, or None if the server ended it without one."""
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
                self._received = True
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
            # The call was cancelled by _give_up(), not this task.

    def _note_stall(self, why: str) -> None:
        """Report that the scheduler cannot go on, and once that it can again, which any other message shows."""
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
        """Wake all waiting tasks, and end the results when there can be no more."""
        self._changed.set()
        if self._drained and self._ledger.answered:
            self._end()

    def _fail_unavailable(self, error: KernelDynoError) -> None:
        # After the deadline only cancellations are outstanding, and the caller already has every result.
        if not self._expired:
            self._fail(error)

    def _give_up(self) -> list[Item]:
        """Cancel everything unanswered, and return it."""
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
        return unreachable_for(
            *(terms.address, terms.credentials, terms.reconnect_seconds, detail, self._ledger.waiting),
            report=self._channel.report(),
        )


async def _close_source(source: AsyncIterator[Item]) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()

"""Sources of the items of one call: a collection, an iterable, an async iterable, or a thread.

Each becomes an async iterator from which the session takes one item at a time, only while its window has room. Every
item is copied here (a caller may reuse its message) and given an id, and ids that are used twice are found. Items are
the requests of evaluate() or the turns of rewards().
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Iterable, Iterator
from typing import TypeVar

from kerneldyno.client.errors import DuplicateIdError
from kerneldyno.rpc.turns import turn_id
from kerneldyno.v1.evaluation_pb2 import EvalRequest
from kerneldyno.v1.reward_service_pb2 import Turn

T = TypeVar("T")
Item = TypeVar("Item", EvalRequest, Turn)

#: Seconds that a request with a random id continues at the scheduler without this client. It must exceed the time to
#: reconnect; it is short, because no other client can ask for such a result.
RANDOM_ID_GRACE_SECONDS = 10

Requests = Iterable[EvalRequest] | AsyncIterable[EvalRequest]
Turns = Iterable[Turn] | AsyncIterable[Turn]


def open_source(requests: Requests) -> AsyncIterator[EvalRequest]:
    """Return an iterator of prepared requests. A collection that uses an id twice is refused before any is sent."""
    if isinstance(requests, Collection):
        _refuse_duplicates(request.id for request in requests)
    return _named(_prepared(in_turn(requests), _copied, lambda request: request.id))


def open_turns(turns: Turns) -> AsyncIterator[Turn]:
    """Return an iterator of prepared turns. A collection that uses an id twice is refused before any is sent."""
    if isinstance(turns, Collection):
        _refuse_duplicates(turn.request.id for turn in turns)
    return _prepared(in_turn(turns), prepared_turn, lambda turn: turn.request.id)


def prepared_turn(turn: Turn) -> Turn:
    """Return a copy of `turn` with an id: its own, or one derived from its contents."""
    copy = Turn()
    copy.CopyFrom(turn)  # raises TypeError for anything but a Turn
    copy.request.id = turn_id(copy)
    return copy


def _copied(request: EvalRequest) -> EvalRequest:
    copy = EvalRequest()
    copy.CopyFrom(request)  # raises TypeError for anything but an EvalRequest
    return copy


async def _named(requests: AsyncIterator[EvalRequest]) -> AsyncIterator[EvalRequest]:
    """Give requests without an id a random one, which need not be remembered, and a short grace."""
    async for request in requests:
        if not request.id:
            request.id = uuid.uuid4().hex
            if not request.HasField("client_grace"):
                request.client_grace.FromSeconds(RANDOM_ID_GRACE_SECONDS)
        yield request


def _refuse_duplicates(ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for id in ids:
        if id in seen:
            raise DuplicateIdError(id)
        if id:
            seen.add(id)


async def _prepared(
    items: AsyncIterator[Item], prepare: Callable[[Item], Item], id_of: Callable[[Item], str]
) -> AsyncIterator[Item]:
    seen: set[str] = set()
    async for item in items:
        copy = prepare(item)
        if (id := id_of(copy)) in seen:
            raise DuplicateIdError(id)
        if id:
            seen.add(id)
        yield copy


async def in_turn(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """Iterate either kind of iterable, and let other tasks run after each item."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
        return
    eager = isinstance(items, Collection)
    for item in items:
        yield item
        if not eager:
            # A generator may need time for each item; let the items so far be sent meanwhile.
            await asyncio.sleep(0)


async def in_thread(items: Iterable[T]) -> AsyncIterator[T]:
    """Iterate a caller's iterable in its own thread, so that one that blocks does not block the event loop."""
    loop = asyncio.get_running_loop()
    answers: asyncio.Queue[T | BaseException | None] = asyncio.Queue()
    wanted = threading.Semaphore(0)
    stopped = threading.Event()

    def answer(item: T | BaseException | None) -> None:
        if not stopped.is_set():
            loop.call_soon_threadsafe(answers.put_nowait, item)

    def pull(iterator: Iterator[T]) -> None:
        while True:
            wanted.acquire()
            if stopped.is_set():
                close = getattr(iterator, "close", None)  # a generator's own clean-up runs in the thread that ran it
                if close is not None:
                    close()
                return
            try:
                answer(next(iterator))
            except StopIteration:
                answer(None)
                return
            except BaseException as error:
                answer(error)
                return

    # A daemon thread: a source that blocks for ever must not keep the program from ending.
    threading.Thread(target=pull, args=(iter(items),), name="kerneldyno-requests", daemon=True).start()
    try:
        while True:
            wanted.release()
            item = await answers.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        wanted.release()

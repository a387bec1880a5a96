"""Where the requests of one evaluate() call come from: a collection, an iterable, an async iterable, or a thread.

Each becomes an async iterator that the session pulls from one request at a time, only while its window has room. Here
every request is copied (a caller may reuse its message) and given an id, and ids used twice are found.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Iterator

from kerneldyno.client.errors import DuplicateIdError
from kerneldyno.v1.evaluation_pb2 import EvalRequest

Requests = Iterable[EvalRequest] | AsyncIterable[EvalRequest]


def open_source(requests: Requests) -> AsyncIterator[EvalRequest]:
    """Returns an iterator of prepared requests. A collection that uses an id twice is refused before any is sent."""
    if isinstance(requests, AsyncIterable):
        return _prepared(requests)
    if isinstance(requests, Collection):
        Preparer().refuse_duplicates(requests)
    return _prepared(_from_iterable(requests))


class Preparer:
    """Copies requests, fills in missing ids, and remembers the ids that the caller chose."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def prepare(self, request: EvalRequest) -> EvalRequest:
        """Returns a copy of `request` with an id that no other request of this call has."""
        copy = EvalRequest()
        copy.CopyFrom(request)  # raises TypeError for anything but an EvalRequest
        if copy.id:
            self._remember(copy.id)
        else:
            copy.id = uuid.uuid4().hex
        return copy

    def refuse_duplicates(self, requests: Iterable[EvalRequest]) -> None:
        """Raises DuplicateIdError when two requests have the same id."""
        for request in requests:
            if request.id:
                self._remember(request.id)

    def _remember(self, id: str) -> None:
        if id in self._seen:
            raise DuplicateIdError(id)
        self._seen.add(id)


async def _prepared(requests: AsyncIterable[EvalRequest]) -> AsyncIterator[EvalRequest]:
    preparer = Preparer()
    async for request in requests:
        yield preparer.prepare(request)


async def _from_iterable(requests: Iterable[EvalRequest]) -> AsyncIterator[EvalRequest]:
    eager = isinstance(requests, Collection)
    for request in requests:
        yield request
        if not eager:
            # A generator may take its time for each request; let what it has given be sent meanwhile.
            await asyncio.sleep(0)


async def in_thread(requests: Iterable[EvalRequest]) -> AsyncIterator[EvalRequest]:
    """Iterates a caller's iterable in a thread of its own, so that one that blocks holds up nothing but itself."""
    loop = asyncio.get_running_loop()
    answers: asyncio.Queue[EvalRequest | BaseException | None] = asyncio.Queue()
    wanted = threading.Semaphore(0)
    stopped = threading.Event()

    def answer(item: EvalRequest | BaseException | None) -> None:
        if not stopped.is_set():
            loop.call_soon_threadsafe(answers.put_nowait, item)

    def pull(iterator: Iterator[EvalRequest]) -> None:
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

    # A daemon: a source that blocks for ever must not keep the program from ending.
    threading.Thread(target=pull, args=(iter(requests),), name="kerneldyno-requests", daemon=True).start()
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

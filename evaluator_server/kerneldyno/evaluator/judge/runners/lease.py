"""The timing lease: while one candidate is timed, nothing else of this device runs.

`exclusive` stops every other runner (its warden sends SIGSTOP to the whole tree) and resumes them afterwards. The
judge's own work on the device runs under `work`, any number of pieces side by side, and never during a timing. A runner
counts the time for which it was stopped, so that its limits do not run meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Collection, Coroutine
from typing import Any, TypeVar

from .handle import Runner

T = TypeVar("T")

#: True in the lane that has the device to itself, and in what it waits for.
_is_timed: contextvars.ContextVar[bool] = contextvars.ContextVar("is_timed", default=False)


def is_timed() -> bool:
    """Return True if the caller has the device to itself."""
    return _is_timed.get()


class Lease:
    """The one lease of a device."""

    def __init__(self, runners: Collection[Runner]) -> None:
        self._runners = runners
        #: Held by whoever is timed, or is next.
        self._timing = asyncio.Lock()
        #: Number of pieces of the judge's work that are under way, and set while there is none.
        self._pieces = 0
        self._idle = asyncio.Event()
        self._idle.set()
        #: Set while nobody is timed, or waits for the work that is under way.
        self._quiet = asyncio.Event()
        self._quiet.set()
        #: The runner that is being timed.
        self._holder: Runner | None = None

    async def quiet(self) -> None:
        """Wait until nobody is being timed."""
        while not self._quiet.is_set():  # the next one may have begun before this wakes
            await self._quiet.wait()

    def alone(self, holder: Runner) -> bool:
        """Return True if no other runner has a candidate that could have left work on the device."""
        return not any(runner.has_candidate for runner in self._runners if runner is not holder)

    @contextlib.asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """Do a piece of the judge's own work, never during a timing."""
        await self._begin_piece()
        try:
            yield
        finally:
            self._end_piece()

    @contextlib.asynccontextmanager
    async def away(self, problem: Runner | None) -> AsyncIterator[None]:
        """Interrupt a piece of work for the body, in which the caller waits for a problem; a timing may come between.

        `problem` is the process that it waits for, if there is one. Who is timed interrupts nothing: the process works
        while the side that is timed is stopped.
        """
        if _is_timed.get():
            assert problem is not None
            async with self._in_place_of_the_holder(problem):
                yield
            return
        self._end_piece()
        try:
            if problem is not None and problem.parked:
                problem.parked = False
                problem.resume()
            yield
        finally:
            await uninterrupted(self._begin_piece())

    async def _begin_piece(self) -> None:
        await self.quiet()
        self._pieces += 1
        self._idle.clear()

    def _end_piece(self) -> None:
        self._pieces -= 1
        if not self._pieces:
            self._idle.set()

    @contextlib.asynccontextmanager
    async def _in_place_of_the_holder(self, problem: Runner) -> AsyncIterator[None]:
        holder = self._holder if self._holder is not None and not self._holder.stands_still else None
        if holder is not None:
            await holder.stop()
        problem.resume()
        try:
            yield
        finally:
            await problem.stop()
            if holder is not None:
                holder.resume()

    @contextlib.asynccontextmanager
    async def exclusive(
        self, holder: Runner | None, taking: contextlib.AbstractAsyncContextManager[None] | None = None
    ) -> AsyncIterator[None]:
        """Hold the device for the body. All runners except `holder` are stopped.

        `taking` is entered when nobody else can be timed any more, but everything still runs: it may wait for lanes that
        have work to do.
        """
        async with self._timing, taking or contextlib.nullcontext():
            self._quiet.clear()
            try:
                await self._idle.wait()
                async with self._alone_with(holder):
                    yield
            finally:
                self._quiet.set()

    @contextlib.asynccontextmanager
    async def _alone_with(self, holder: Runner | None) -> AsyncIterator[None]:
        self._holder = holder
        token = _is_timed.set(True)
        others = [runner for runner in self._runners if runner is not holder and not runner.parked]
        try:
            await asyncio.gather(*(runner.stop() for runner in others))
            yield
        finally:
            for runner in others:
                if runner.role == "problem" and not runner.is_asked:
                    runner.parked = True  # until the next order: it has nothing to do before
                else:
                    runner.resume()
            _is_timed.reset(token)
            self._holder = None


async def uninterrupted(wait: Coroutine[Any, Any, T]) -> T:
    """Wait for something to the end, also if the caller is cancelled meanwhile, and return its result."""
    waiting = asyncio.ensure_future(wait)
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.wait({waiting})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not waiting.cancelled():
            waiting.exception()  # it was looked at
        raise cancelled
    return waiting.result()

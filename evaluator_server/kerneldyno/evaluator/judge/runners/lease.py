"""The timing lease: while one candidate is timed, nothing else of this device runs.

`exclusive` stops every other runner (its warden sends SIGSTOP to the whole tree) and resumes them afterwards. The
judge's own work on the device runs under `work`, one piece at a time and never during a timing. A runner counts the
time for which it was stopped, so that its limits do not run meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Collection, Coroutine
from typing import Any

from .handle import Runner

#: True in the lane that has the device to itself, and in what it waits for.
_is_timed: contextvars.ContextVar[bool] = contextvars.ContextVar("is_timed", default=False)


def is_timed() -> bool:
    """Return True if the caller has the device to itself."""
    return _is_timed.get()


class Lease:
    """The one lease of a device."""

    def __init__(self, runners: Collection[Runner]) -> None:
        self._runners = runners
        #: Held by whoever is timed, and the judge's turn on the device, which that one holds as well.
        self._timing = asyncio.Lock()
        self._lock = asyncio.Lock()
        self._quiet = asyncio.Event()
        self._quiet.set()
        #: The runner that is being timed.
        self._holder: Runner | None = None

    async def quiet(self) -> None:
        """Wait until nobody is being timed."""
        await self._quiet.wait()

    def alone(self, holder: Runner) -> bool:
        """Return True if no other runner has a candidate that could have left work on the device."""
        return not any(runner.has_candidate for runner in self._runners if runner is not holder)

    @contextlib.asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """Do a piece of the judge's own work, never during a timing or beside another piece."""
        async with self._lock:
            yield

    @contextlib.asynccontextmanager
    async def away(self, problem: Runner | None) -> AsyncIterator[None]:
        """Give up the turn for the body, in which the caller waits for a problem; then take it again.

        `problem` is the process that it waits for, if there is one. Who is timed does not give the turn up: the process
        works while the side that is timed is stopped.
        """
        if _is_timed.get():
            assert problem is not None
            async with self._in_place_of_the_holder(problem):
                yield
            return
        self._lock.release()
        try:
            if problem is not None and problem.parked:
                problem.parked = False
                problem.resume()
            yield
        finally:
            await _uninterrupted(self._lock.acquire())

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
        need the judge's turn.
        """
        async with self._timing, taking or contextlib.nullcontext(), self._lock:
            self._quiet.clear()
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
                self._quiet.set()


async def _uninterrupted(wait: Coroutine[Any, Any, Any]) -> None:
    """Wait for something to the end, also if the caller is cancelled meanwhile."""
    waiting = asyncio.ensure_future(wait)
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled

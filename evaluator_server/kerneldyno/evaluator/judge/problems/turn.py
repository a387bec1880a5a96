"""Whose turn it is to ask a problem: one lane's, for one question or for as long as it is timed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from ..runners.lease import Lease, is_timed
from ..runners.work import wait


class Turn:
    """The turn to ask one problem. A question may take several orders, and lanes must not mix theirs."""

    def __init__(self, lease: Lease) -> None:
        """Create it; it is nobody's."""
        self._lease = lease
        self._lock = asyncio.Lock()
        self._waiting = 0
        #: True while it belongs to a lane for more than a question.
        self._is_kept = False

    @property
    def is_wanted(self) -> bool:
        """True if it is somebody's, or somebody waits for it."""
        return self._lock.locked() or self._waiting > 0

    @contextlib.contextmanager
    def question(self) -> Iterator[None]:
        """Have it for one question, in a piece of work."""
        if is_timed():  # the lane has it already: it cannot wait for others, which all stand still
            assert self._is_kept
            yield
            return
        wait(self._begin_question())
        try:
            yield
        finally:
            self._lock.release()

    async def _begin_question(self) -> None:
        if not self.is_wanted:
            await self._take()  # at once
            return
        has_it = False
        try:
            async with self._lease.away(None):
                await self._take()
                has_it = True
        except BaseException:  # cancelled, perhaps while somebody was timed after its turn had come
            if has_it:
                self._lock.release()
            raise

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep it for the body, in which the lane is timed."""
        await self._take()
        self._is_kept = True
        try:
            yield
        finally:
            self._is_kept = False
            self._lock.release()

    async def _take(self) -> None:
        self._waiting += 1  # also while the lock is free and its next owner has not woken yet
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1

"""Asking problems from asyncio: whatever asks one waits for the answer in a thread of its own.

The judge's arithmetic on inputs and answers is ordinary code that asks a problem in its midst, often many times. In a
thread it may wait while the event loop goes on, and with it all other lanes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")

#: More threads than lanes: each lane asks one question at a time.
_MOST_THREADS = 64
_threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="asking")


class AskProblem(Protocol):
    """Runs work that asks a problem, at a time when it may, and returns what it returns."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run `work` in a thread. Raises what it raises."""


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread, and return what it returns. Raises what it raises.

    A thread cannot be interrupted. If the caller is cancelled, this still waits until the work has ended: nobody else may
    use the device before.
    """
    running = asyncio.get_running_loop().run_in_executor(_threads, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # it was looked at
        raise

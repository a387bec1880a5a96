"""Asking problems from asyncio: whatever asks one waits for the answer in a thread of its own.

The judge's arithmetic on inputs and answers is ordinary code that asks a problem in its midst, often many times. In a
thread it may wait while the event loop goes on, and with it all other lanes.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from ...devices.base import Device

T = TypeVar("T")

#: More threads than lanes: each lane asks one question at a time.
_MOST_THREADS = 64
_threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="asking")


#: Set in a thread whose caller has been cancelled.
_given_up: contextvars.ContextVar[threading.Event] = contextvars.ContextVar("given_up")


class GivenUpError(Exception):
    """Nobody waits for this work any more."""


def require_caller() -> None:
    """Raise GivenUpError if this is the thread of a caller that was cancelled, and RuntimeError if it is no such thread.

    Who asked in the event loop would wait for ever: the answer comes in that loop.
    """
    event = _given_up.get(None)
    if event is None:
        raise RuntimeError("a problem may be asked in a thread of in_thread() only")
    if event.is_set():
        raise GivenUpError


class AskProblem(Protocol):
    """Runs work that asks a problem, at a time when it may, and returns what it returns."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run `work` in a thread. Raises what it raises."""


async def in_thread(device: Device, work: Callable[[], T]) -> T:
    """Run `work`, which uses `device`, in a thread, and return what it returns. Raises what it raises.

    A thread cannot be interrupted. If the caller is cancelled, the work may ask no further question, and this still waits
    until it has ended: nobody else may use the device before.
    """
    given_up = threading.Event()

    def run() -> T:
        _given_up.set(given_up)
        device.attach_thread()
        return work()

    running = asyncio.get_running_loop().run_in_executor(_threads, contextvars.copy_context().run, run)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        given_up.set()
        while not running.done():
            await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # it was looked at
        raise

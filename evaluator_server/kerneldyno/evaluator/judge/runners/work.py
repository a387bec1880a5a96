"""The judge's own work on the device: ordinary code that may wait in its midst, on the event loop's own thread.

The judge's arithmetic on inputs and answers asks a problem many times, and waits for each answer. A piece of such work
is a greenlet: where it waits, the lane that ordered it awaits the answer, and all other lanes go on meanwhile. Threads
would switch in the midst of anything, pass Python's lock around at every operation of torch, and could not be cancelled.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, cast

from greenlet import getcurrent, greenlet

from .lease import Lease

T = TypeVar("T")


class Execute(Protocol):
    """Executes a piece of work at a time when it may use the device, and returns what it returns."""

    def __call__(self, piece: Callable[[], T], /) -> Awaitable[T]:
        """Execute `piece`. Raises what it raises."""


class _Piece(greenlet):
    """A greenlet that switches back to the lane that ordered it with whatever it waits for."""


async def execute(lease: Lease, piece: Callable[[], T]) -> T:
    """Execute a piece of the judge's own work, never during a timing. Raises what it raises."""
    async with lease.work():
        return await run(piece)


async def run(piece: Callable[[], T]) -> T:
    """Execute `piece`, which may `wait`, at once. Raises what it raises.

    If the caller is cancelled, the piece ends with that exception where it waits.
    """
    running = _Piece(piece)
    running.gr_context = getcurrent().gr_context  # the lane's own: it says whether the lane is timed
    given = running.switch()
    while not running.dead:
        try:
            found = await given
        except BaseException:
            given = running.throw(*sys.exc_info())
        else:
            given = running.switch(found)
    return cast(T, given)


def wait(awaited: Awaitable[T]) -> T:
    """Wait for something in a piece of work, and return its result. Raises what it raises."""
    piece = getcurrent()
    if not isinstance(piece, _Piece):
        if hasattr(awaited, "close"):
            awaited.close()
        raise RuntimeError("only a piece of work may wait: see run()")
    assert piece.parent is not None
    return cast(T, cast(Any, piece.parent).switch(awaited))

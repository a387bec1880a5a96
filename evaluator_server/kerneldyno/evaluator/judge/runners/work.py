"""The judge's own work on the device: ordinary code that may wait in its midst, on the event loop's own thread.

The judge's arithmetic on inputs and answers asks a problem many times, and waits for each answer. A piece of such work
is a greenlet: where it waits, the lane that ordered it awaits the answer, and all other lanes go on meanwhile. Threads
would switch in the midst of anything, pass Python's lock around at every operation of torch, and could not be cancelled.

The device is waited for in the same way (`settle`, `numbers`): many processes share it, so a kernel of microseconds may
be done after milliseconds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, cast

import torch
from greenlet import getcurrent, greenlet

from ...devices.base import Device
from .lease import Lease, is_timed

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
        waiting, awaited = given
        try:
            found = await awaited
        except BaseException:
            given = waiting.throw(*sys.exc_info())
        else:
            given = waiting.switch(found)
    return cast(T, given)


def wait(awaited: Awaitable[T]) -> T:
    """Wait for something in a piece of work, and return its result. Raises what it raises."""
    if (piece := _piece()) is None:
        if hasattr(awaited, "close"):
            awaited.close()
        raise RuntimeError("only a piece of work may wait: see run()")
    assert piece.parent is not None
    return cast(T, cast(Any, piece.parent).switch((getcurrent(), awaited)))


def settle(device: Device) -> None:
    """Wait until the judge's work on the device is done. Raises the errors that the device reports."""
    if _piece() is None or is_timed():
        device.synchronize()
    else:
        _wait_until(device.milestone())


def numbers(tensor: torch.Tensor) -> Any:
    """Return the elements of a small tensor, as `tolist` does, once the device has computed them."""
    if not tensor.is_cuda or _piece() is None or is_timed():
        return tensor.tolist()
    found = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
    _wait_until(torch.cuda.current_stream(tensor.device).record_event().query)
    return found.tolist()


def _wait_until(is_done: Callable[[], bool]) -> None:
    if not is_done():
        wait(_done(is_done))


async def _done(is_done: Callable[[], bool]) -> None:
    while not is_done():  # noqa: ASYNC110  (a device cannot set an Event)
        await asyncio.sleep(0)


def _piece() -> _Piece | None:
    """Return the piece of work that the caller is in; None outside. Greenlets in its midst belong to it."""
    at: Any = getcurrent()
    while at is not None and not isinstance(at, _Piece):
        at = at.parent
    return at

"""Functions that wait until a condition holds, and free ports."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

#: Default time limit: far longer than anything takes. Only a test that fails waits this long.
SECONDS = 60.0


async def eventually(met: Callable[[], object], seconds: float = SECONDS, what: str = "what is waited for") -> None:
    """Wait until `met()` is true. Raise TimeoutError, with `what` in its message, after `seconds`."""
    end = time.monotonic() + seconds
    while not met():
        _check(end, seconds, what)
        await asyncio.sleep(0.02)


def wait_until(met: Callable[[], object], what: str = "what is waited for", seconds: float = SECONDS) -> None:
    """Do the same as `eventually`, without an event loop."""
    end = time.monotonic() + seconds
    while not met():
        _check(end, seconds, what)
        time.sleep(0.02)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _check(end: float, seconds: float, what: str) -> None:
    if time.monotonic() > end:
        raise TimeoutError(f"{what}: not within {seconds:g} s")

"""Waiting for what a test has set going, and ports that nobody listens on yet."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

#: Far longer than anything takes: a test that is going to fail waits so long, any other no longer than it must.
SECONDS = 60.0


async def eventually(met: Callable[[], object], seconds: float = SECONDS, what: str = "what is waited for") -> None:
    """Wait until `met()`. Raises TimeoutError, naming `what`."""
    end = time.monotonic() + seconds
    while not met():
        _check(end, seconds, what)
        await asyncio.sleep(0.02)


def wait_until(met: Callable[[], object], what: str = "what is waited for", seconds: float = SECONDS) -> None:
    """The same without an event loop."""
    end = time.monotonic() + seconds
    while not met():
        _check(end, seconds, what)
        time.sleep(0.02)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _check(end: float, seconds: float, what: str) -> None:
    if time.monotonic() > end:
        raise TimeoutError(f"{what}: not within {seconds:g} s")

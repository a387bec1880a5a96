"""SIGTERM and SIGHUP end a command as Ctrl-C does: it cancels its work in progress, and says how to continue."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kerneldyno.cli.common import INTERRUPTED

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupting() -> Iterator[None]:
    """Have SIGTERM and SIGHUP interrupt the block as SIGINT does. The exit status is then 128 plus the signal's number.

    An ignored signal stays ignored: `nohup` ignores SIGHUP, and a shell ignores SIGINT for its background jobs. Outside
    the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        handler = signal.getsignal(signal.SIGINT)  # asyncio's own while it runs a command
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *_SIGNALS)}
    for number in _SIGNALS:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    deaf = before[signal.SIGINT] is signal.SIG_IGN
    if deaf:
        # asyncio cancels in order only if SIGINT has its default handler. While blocked, that handler does nothing.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except SystemExit as end:
        if received and end.code == INTERRUPTED:
            sys.exit(128 + received[0])
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if deaf:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

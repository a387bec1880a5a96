"""SIGTERM and SIGHUP end a command as Ctrl-C does: it cancels what it has under way, and says how to go on."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kerneldyno.client.cli.common import INTERRUPTED

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupting() -> Iterator[None]:
    """Have SIGTERM and SIGHUP interrupt the block as SIGINT does. The exit status is then 128 and the signal's number.

    A signal that is ignored stays so: `nohup` ignores SIGHUP, and a shell ignores SIGINT for what it runs in the
    background. Outside the main thread nothing changes.
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
        # asyncio cancels in order only where SIGINT has its default handler. Blocked, it still does nothing by itself.
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

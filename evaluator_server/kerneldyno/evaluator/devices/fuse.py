"""A fuse: opens a gate after a while, whatever the rest of this process is stuck in.

Behind a closed gate a launch may wait in the driver for room in the queue, and torch's `Event.record` waits there with the
interpreter's lock: then no thread of Python can open the gate any more. A POSIX timer has a thread of libc's own
(SIGEV_THREAD, timer_create(2)), and the one thing that it has to do, adding 1 to a word, is what `sem_post` of glibc does
with the low half of a semaphore that nobody waits for.
"""

from __future__ import annotations

import ctypes
import weakref

_SIGEV_THREAD = 2
_CLOCK_MONOTONIC = 1


class _Event(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("padding", ctypes.c_byte * 32),
    )


class _Interval(ctypes.Structure):
    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


class Fuse:
    """Adds 1 to the 32-bit word at `address`; the word behind it must be 0, and both aligned to 8 bytes."""

    def __init__(self, address: int) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        adding = ctypes.cast(self._libc.sem_post, ctypes.c_void_p).value
        event = _Event(value=address, notify=_SIGEV_THREAD, function=adding)
        self._timer = ctypes.c_void_p()
        if self._libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)):
            raise OSError(ctypes.get_errno(), "timer_create")
        weakref.finalize(self, self._libc.timer_delete, self._timer)

    def light(self, seconds: float) -> None:
        """Add 1 after `seconds`, unless it is put out before."""
        whole, rest = divmod(round(seconds * 1e9), 10**9)
        self._set(_Interval(0, 0, whole, rest))

    def put_out(self) -> None:
        """Add nothing any more; who is late by a hair finds that it did."""
        self._set(_Interval())

    def _set(self, interval: _Interval) -> None:
        if self._libc.timer_settime(self._timer, 0, ctypes.byref(interval), None):
            raise OSError(ctypes.get_errno(), "timer_settime")

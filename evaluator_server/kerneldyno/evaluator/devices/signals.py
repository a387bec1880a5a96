"""Signals: a page of host memory through which the judge and one runner pace each other, call by call.

A word written by one process is seen by another within a microsecond, where a message through a socket takes 20 to
200. That is what makes the judge's own clock fine enough to time single calls. Words count up and nothing is ever
reset, so a signal that comes twice or late does no harm. Whatever a runner writes here, it can only delay itself or
claim to be ready.
"""

from __future__ import annotations

import fcntl
import mmap
import os

#: Where the words lie, in words of 4 bytes: one cache line each, so that writing one does not disturb a reader of
#: another. The first two are the gate's (`base.Gate`); the device itself reads and writes them.
OPENED, FINISHED = 0, 32
#: Runner: which step it is ready for, and which it has done. Judge: which it has released.
READY, DONE, RELEASED = 64, 96, 128


def new_page() -> int:
    """Return the descriptor of a fresh page; the caller closes it."""
    page = os.memfd_create("kerneldyno-signals", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(page, mmap.PAGESIZE)
    # A runner that shrank the file would kill the judge with SIGBUS.
    fcntl.fcntl(page, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return page


class Signals:
    """One side's view of the page."""

    def __init__(self, descriptor: int) -> None:
        self.memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        self._words = memoryview(self.memory).cast("i")

    def tell(self, word: int, value: int) -> None:
        """Write a word."""
        self._words[word] = value

    def has(self, word: int, value: int) -> bool:
        """Say whether a word has reached `value`."""
        return self._words[word] >= value

    def wait(self, word: int, value: int) -> None:
        """Runner: return as soon as a word has reached `value`; spins, since to sleep and be woken takes 50 us."""
        words = self._words
        while words[word] < value:
            pass

"""Signals: a page of host memory through which judge and runner synchronise, call by call.

A process sees a word that another process wrote within a microsecond, while a message through a socket takes 20 to 200.
This makes the judge's own clock precise enough to time single calls. Words count up and are never reset, so repeated or
late signals do no harm. Whatever a runner writes here, it can only delay itself or claim to be ready.
"""

from __future__ import annotations

import fcntl
import mmap
import os

#: Positions of the words, in units of 4 bytes. Each has its own cache line, so that writing one does not disturb
#: readers of another. The first two belong to the gate (`base.Gate`); the device itself reads and writes them.
OPENED, FINISHED = 0, 32
#: Written by the runner: the step that it is ready for, and the last step that it has done. By the judge: the last step
#: that it has released.
READY, DONE, RELEASED = 64, 96, 128


def new_page() -> int:
    """Return the descriptor of a new page. The caller closes it."""
    page = os.memfd_create("kerneldyno-signals", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(page, mmap.PAGESIZE)
    # The seals keep a runner from shrinking the file, which would kill the judge with SIGBUS.
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
        """Return True if a word has reached `value`."""
        return self._words[word] >= value

    def wait(self, word: int, value: int) -> None:
        """Runner: return as soon as a word has reached `value`. This spins, because sleeping and waking takes 50 us."""
        words = self._words
        while words[word] < value:
            pass

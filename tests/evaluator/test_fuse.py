"""The fuse burns while Python stands still, once, and not when it was put out."""

from __future__ import annotations

import ctypes
import time

import numpy
from kerneldyno.evaluator.devices.fuse import Fuse

WORDS = numpy.zeros(2, dtype=numpy.int32)


def test_it_burns_while_the_interpreter_is_locked() -> None:
    words = WORDS.copy()
    words[0] = 6
    fuse = Fuse(words.ctypes.data)
    fuse.light(0.02)
    ctypes.PyDLL(None).usleep(300_000)  # with the interpreter's lock
    fuse.put_out()
    assert words.tolist() == [7, 0]


def test_it_does_not_burn_when_it_was_put_out_and_can_be_lit_again() -> None:
    words = WORDS.copy()
    fuse = Fuse(words.ctypes.data)
    fuse.light(0.05)
    fuse.put_out()
    time.sleep(0.15)
    assert words[0] == 0
    fuse.light(0.01)
    time.sleep(0.3)
    assert words.tolist() == [1, 0]

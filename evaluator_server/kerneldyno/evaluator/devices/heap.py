"""The heap of a process of the CPU device: made alike in all processes before anything is timed there.

glibc serves a block from whatever hole an earlier life of the process has left, in turn where several fit, else from
the top of the heap where that has room, else from the system; and a freed block that was aligned is a little too small
for the next one of its size. So one and the same call writes over memory that it has just used in one process, over
two blocks by turns in another, and over pages that are faulted in anew in a third, for as long as each of them lives:
a ReLU of 4 MiB took 0.30 or 0.45 ms, eight operations on 256 KiB 0.33 or 0.42. Here blocks from 64 KiB on are the
system's, new ones in every call, and for smaller ones there are no holes to begin with.

Sources: glibc's manual, "Malloc Tunable Parameters" and "Statistics for Memory Allocation with malloc"
(https://sourceware.org/glibc/manual/latest/html_node/The-GNU-Allocator.html). With another C library nothing happens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_PERTURB, _MMAP_THRESHOLD, _TOP_PAD, _TRIM_THRESHOLD = -6, -3, -2, -1
#: What is allocated is filled with the complement of this byte: 0xFE, a huge negative number as a float.
_SOILED = 0x01
#: From here on a block is the system's, in bytes, unless a hole or the top has room for it.
_LARGE = 64 << 10
_NEVER = 1 << 30
#: Blocks with which holes are plugged, in bytes. What is smaller is served last in, first out, in any process.
_LARGEST_PLUG, _SMALLEST_PLUG = 8 << 20, 1 << 10


class _Statistics(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def _library() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None)
    if not all(hasattr(library, name) for name in ("mallopt", "malloc_trim", "mallinfo2")):
        return None
    library.mallinfo2.restype = _Statistics
    for function in (library.malloc, library.sbrk):
        function.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.sbrk.argtypes = [ctypes.c_ssize_t]
    library.free.argtypes = [ctypes.c_void_p]
    return library


_libc = _library()


def divide() -> None:
    """Have large blocks be the system's and small ones be kept, in this process from now on.

    By default what counts as large moves with what the process has freed before.
    """
    if _libc is not None:
        _libc.mallopt(_MMAP_THRESHOLD, _LARGE)
        _libc.mallopt(_TOP_PAD, 0)
        _libc.mallopt(_TRIM_THRESHOLD, _NEVER)


def give_back() -> None:
    """Give back all pages that hold nothing; what is allocated next has other ones."""
    if _libc is not None:
        _libc.malloc_trim(0)


def make_alike() -> None:
    """Plug all holes, for good, and give the top back."""
    if _libc is None:
        return
    give_back()
    _libc.mallopt(_MMAP_THRESHOLD, 2 * _LARGEST_PLUG)
    seen = _libc.mallinfo2()
    top, in_holes = (_libc.sbrk(0) or 0) - seen.keepcost, seen.fordblks - seen.keepcost
    size = _LARGEST_PLUG
    while size >= _SMALLEST_PLUG:
        block = _libc.malloc(size) if size <= in_holes else None
        if block is not None and block < top:
            in_holes -= size  # a hole had room for it, and has it no longer
            continue
        _libc.free(block)
        size //= 2
    divide()
    give_back()


@contextmanager
def soiled() -> Iterator[None]:
    """What is allocated inside does not start as zeros."""
    if _libc is None:
        yield
        return
    _libc.mallopt(_PERTURB, _SOILED)
    try:
        yield
    finally:
        _libc.mallopt(_PERTURB, 0)

"""The heap of a process on the CPU device. It is made alike in all runners before anything is timed.

glibc takes a block from a hole that earlier frees have left (if several fit, in turn), else from the top of the heap,
else from the system. And a freed block that was aligned is slightly too small for the next block of its size. So the
same call reuses the memory that it has just used in one process, alternates between two blocks in another, and writes
to newly mapped pages in a third, as long as each process lives: a ReLU of 4 MiB took 0.30 or 0.45 ms, eight operations
on 256 KiB 0.33 or 0.42 ms. Here blocks of 64 KiB and more come from the system, anew in every call, and for smaller
blocks there are no holes at first.

New pages are slow: where nothing is timed, as in judges, processes keep the blocks that they free. A judge that took new
pages needed twice the time for problems of some MiB.

Sources: glibc's manual, "Malloc Tunable Parameters" and "Statistics for Memory Allocation with malloc"
(https://sourceware.org/glibc/manual/latest/html_node/The-GNU-Allocator.html). With another C library nothing happens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_PERTURB, _MMAP_THRESHOLD, _TOP_PAD, _TRIM_THRESHOLD = -6, -3, -2, -1
#: Allocated memory is filled with the complement of this byte: 0xFE, a huge negative number as a float.
_SOILED = 0x01
#: Blocks of at least this size (bytes) come from the system, unless a hole or the top has room.
_LARGE = 64 << 10
_NEVER = 1 << 30
#: The largest block (bytes) that glibc can keep, and how much it keeps at the top of the heap.
_LARGEST_KEPT, _KEPT = 32 << 20, 512 << 20
#: Sizes of the blocks that fill holes, in bytes. glibc serves smaller blocks last in, first out, in every process.
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


def keep() -> None:
    """Make glibc keep freed blocks for later ones, in this process from now on.

    `divide` ends that, and `give_back` returns what is kept at that moment.
    """
    if _libc is not None:
        _libc.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        _libc.mallopt(_TRIM_THRESHOLD, _KEPT)


def divide() -> None:
    """Make glibc take large blocks from the system and keep small ones, in this process from now on.

    By default the limit between large and small moves with the blocks that the process has freed.
    """
    if _libc is not None:
        _libc.mallopt(_MMAP_THRESHOLD, _LARGE)
        _libc.mallopt(_TOP_PAD, 0)
        _libc.mallopt(_TRIM_THRESHOLD, _NEVER)


def give_back() -> None:
    """Return all unused pages to the system; later allocations get other pages."""
    if _libc is not None:
        _libc.malloc_trim(0)


def make_alike() -> None:
    """Fill all holes for good, and return the top of the heap to the system."""
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
            in_holes -= size  # the block came from a hole and now fills it
            continue
        _libc.free(block)
        size //= 2
    divide()
    give_back()


@contextmanager
def soiled() -> Iterator[None]:
    """Make memory that is allocated in the body start with other values than zero."""
    if _libc is None:
        yield
        return
    _libc.mallopt(_PERTURB, _SOILED)
    try:
        yield
    finally:
        _libc.mallopt(_PERTURB, 0)

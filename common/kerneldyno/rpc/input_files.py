"""Open files that a user names as input, and read them within limits.

A path may be a device that never ends, a sparse file larger than memory, or a FIFO without a writer. Every problem is
raised as an OSError with the file's name, as for a file that does not exist, so callers handle both alike.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

#: Longest line in bytes: twice kerneldyno.rpc.channel.MAX_MESSAGE_BYTES. A longer request or result fits no message.
MAX_LINE_BYTES = 32 << 20
#: Longest file in bytes that is read as one text: a source (at most 1 MiB), a specification, a certificate.
MAX_TEXT_BYTES = 16 << 20
#: The path that means standard input.
STDIN = Path("-")
#: Seconds that a FIFO may have no writer before the user is told what the program waits for.
_SILENT_SECONDS = 1.0


def is_plain(path: Path) -> bool:
    """Return True if `path` is a regular file: it can be read twice, and its size is known."""
    return path != STDIN and path.is_file()


@contextmanager
def open_input(path: Path) -> Iterator[io.BufferedReader]:
    """Open `path` (or standard input, for "-") for reading, and yield it.

    Raises:
        OSError: it cannot be opened, or it is a device; `filename` names it.
    """
    stream = _opened(path)
    mode = os.fstat(stream.fileno()).st_mode
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not stream.isatty()):
        stream.close()
        raise OSError(errno.EINVAL, "is a device, not a file", str(path))
    try:
        yield stream
    finally:
        # Close regular files only: a thread may be waiting for input from a pipe, and close() would wait for the
        # thread.
        if stat.S_ISREG(mode):
            stream.close()


def read_text(path: Path) -> str:
    """Return the text of `path`.

    Raises:
        OSError: it cannot be read, or it is longer than MAX_TEXT_BYTES.
        UnicodeDecodeError: it is not UTF-8.
    """
    with open_input(path) as stream:
        data = stream.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise OSError(errno.EFBIG, f"is longer than {MAX_TEXT_BYTES >> 20} MiB", str(path))
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8").read()  # translates newlines as Python's text files do


def numbered_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers.

    A line longer than MAX_LINE_BYTES is yielded cut, but still longer than that; the rest is skipped when the next line
    is asked for.
    """
    number = 0
    while line := stream.readline(MAX_LINE_BYTES):
        number += 1
        cut = len(line) >= MAX_LINE_BYTES and not line.endswith(b"\n")
        if line.strip():
            yield number, line + b"\n" if cut else line
        while cut and (rest := stream.readline(MAX_LINE_BYTES)):
            cut = not rest.endswith(b"\n")


def _opened(path: Path) -> io.BufferedReader:
    """Open a path; if it is a FIFO without a writer, tell the user on standard error what the program waits for."""
    if path == STDIN:
        return open(0, "rb", closefd=False)
    if not path.is_fifo():
        return path.open("rb")
    timer = threading.Timer(
        _SILENT_SECONDS,
        lambda: print(f"kerneldyno: waiting for another process to write to {path}", file=sys.stderr, flush=True),
    )
    timer.daemon = True
    timer.start()
    try:
        return path.open("rb")
    finally:
        timer.cancel()

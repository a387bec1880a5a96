"""Files that a person names as input: opened, and read within limits, whatever they turn out to be.

A path may lead to a device that never ends, to a sparse file larger than memory, or to a FIFO that nobody writes. What is
wrong is an OSError with the file's name, as for a file that does not exist: callers treat both alike.
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

#: A longer line cannot be a request or a result that fits into a message: twice kerneldyno.rpc.channel.MAX_MESSAGE_BYTES.
MAX_LINE_BYTES = 32 << 20
#: Longest file that is read as one text: a source (of at most 1 MiB), a specification, a certificate.
MAX_TEXT_BYTES = 16 << 20
#: The name of standard input, where a command reads it.
STDIN = Path("-")
#: How long a FIFO may have no writer before a person is told what is waited for, in seconds.
_SILENT_SECONDS = 1.0


def is_plain(path: Path) -> bool:
    """Return True if `path` is a file that can be read twice, and whose size is known."""
    return path != STDIN and path.is_file()


@contextmanager
def open_input(path: Path) -> Iterator[io.BufferedReader]:
    """Yield `path` (or standard input, for "-") opened for reading.

    Raises:
        OSError: it cannot be opened, or it is a device; `filename` names it.
    """
    stream = _opened(path)
    mode = os.fstat(stream.fileno()).st_mode
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not stream.isatty()):
        stream.close()
        raise OSError(errno.EINVAL, "is a device, and no file", str(path))
    try:
        yield stream
    finally:
        # Only plain files are closed: a thread may be waiting for more from a pipe, and close() would wait for the thread.
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
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8").read()  # newlines as in Python's own text files


def numbered_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers; of a line longer than MAX_LINE_BYTES a little more than that.

    The rest of such a line is skipped only when the next one is asked for.
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
    """Open a path; say on standard error what is waited for when it is a FIFO without a writer."""
    if path == STDIN:
        return open(0, "rb", closefd=False)
    if not path.is_fifo():
        return path.open("rb")
    timer = threading.Timer(
        _SILENT_SECONDS,
        lambda: print(f"kerneldyno: waiting for a process that writes to {path}", file=sys.stderr, flush=True),
    )
    timer.daemon = True
    timer.start()
    try:
        return path.open("rb")
    finally:
        timer.cancel()

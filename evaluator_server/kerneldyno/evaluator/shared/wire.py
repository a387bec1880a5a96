"""Frames of JSON over Unix sockets: how server, judge, zygote, warden and runner talk to each other.

A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON, one object. Nothing is ever unpickled, and
lengths are checked before memory is allocated. A peer that breaks the format causes a ProtocolError and gets no answer.
Bulk data does not travel here: tensors lie in memory that the judge owns (see `devices`), and frames only name them.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import itertools
import json
import socket
import struct
from typing import Any

Frame = dict[str, Any]

#: Largest frame in bytes between trusted processes (server, judge, zygote): a result with logs, a request with sources.
MAX_TRUSTED_FRAME = 64 * 1024 * 1024
#: Largest frame in bytes from a runner, enough for a traceback of 8 KiB and 1000 timings. A larger one is an attack on
#: the judge's memory.
MAX_RUNNER_FRAME = 1024 * 1024

#: Most levels of lists and objects in a frame. Outputs have up to 32, and a dict takes three (`tree`). Without this
#: bound a peer could send a value that is just flat enough for the parser, and too deep for whoever prints it.
MAX_LEVELS = 128

_LENGTH = struct.Struct(">I")
#: At most this many bytes are read from the socket of a peer that is gone, and the size in bytes of each read.
_MOST_LEFT, _PIECE = 4 << 20, 1 << 16
#: Maximum number of file descriptors in one frame: the runner's two sockets and the files that it shares.
_MAX_FDS = 8


class ProtocolError(Exception):
    """The peer sent something that is not a frame."""


def encode(frame: Frame) -> bytes:
    """Return `frame` as bytes, ready to send."""
    body = json.dumps(frame, separators=(",", ":"), allow_nan=True).encode()
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> Frame:
    """Return the object in `body`. Raises ProtocolError."""
    try:
        frame = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(frame, dict):
        raise ProtocolError(f"not an object: {type(frame).__name__}")
    _check_levels(frame)
    return frame


def _check_levels(frame: Frame) -> None:
    level: list[Any] = [frame]
    for _ in range(MAX_LEVELS):
        parts = itertools.chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level)
        level = [part for part in parts if isinstance(part, dict | list)]
        if not level:
            return
    raise ProtocolError(f"more than {MAX_LEVELS} levels of lists and objects")


def _checked_length(header: bytes, limit: int) -> int:
    (length,) = _LENGTH.unpack(header)
    if length > limit:
        raise ProtocolError(f"frame of {length} bytes, limit {limit}")
    return int(length)


class _ToTheEnd(asyncio.StreamReaderProtocol):
    """Reads to the end even after a write has failed. asyncio would drop what the peer sent before it died."""

    def __init__(self, reader: asyncio.StreamReader, sock: socket.socket) -> None:
        super().__init__(reader)
        self._rest = reader, sock

    def connection_lost(self, exc: Exception | None) -> None:
        reader, sock = self._rest
        with contextlib.suppress(OSError):
            # Bounded: a candidate can make writes to it fail and continue to send.
            for _ in range(_MOST_LEFT // _PIECE):
                if not (data := sock.recv(_PIECE)):
                    break
                reader.feed_data(data)
        super().connection_lost(None if isinstance(exc, ConnectionError) else exc)


async def connect(sock: socket.socket, limit: int = 1 << 16) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return streams over a connected socket and take it over. Reading pauses at twice `limit` bytes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit, loop)
    transport, protocol = await loop.create_unix_connection(lambda: _ToTheEnd(reader, sock), sock=sock)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def read_frame(reader: asyncio.StreamReader, limit: int = MAX_TRUSTED_FRAME) -> Frame | None:
    """Return the next frame, or None when the peer has closed the connection. Raises ProtocolError."""
    try:
        header = await reader.readexactly(_LENGTH.size)
        return decode(await reader.readexactly(_checked_length(header, limit)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def write_frame(writer: asyncio.StreamWriter, frame: Frame) -> None:
    """Queue `frame` for sending. Await `writer.drain()` afterwards if the peer may be slow."""
    writer.write(encode(frame))


def send(sock: socket.socket, frame: Frame, fds: tuple[int, ...] = ()) -> None:
    """Send `frame`, and open file descriptors if given, on a blocking socket."""
    data = encode(frame)
    sent = socket.send_fds(sock, [data], list(fds)) if fds else sock.send(data)
    if sent < len(data):  # a peer that has read all of it may be gone, and then even nothing cannot be sent
        sock.sendall(data[sent:])


def receive(sock: socket.socket, limit: int = MAX_TRUSTED_FRAME) -> tuple[Frame, list[int]] | None:
    """Return the next frame and its file descriptors, or None when the peer has closed. Raises ProtocolError."""
    header, fds = _receive_exactly(sock, _LENGTH.size)
    if header is None:
        return None
    body, more = _receive_exactly(sock, _checked_length(header, limit))
    if body is None:
        return None
    return decode(body), fds + more


def _receive_exactly(sock: socket.socket, count: int) -> tuple[bytes | None, list[int]]:
    chunks: list[bytes] = []
    fds = array.array("i")
    while count:
        try:
            data, ancillary, _, _ = sock.recvmsg(min(count, 1 << 20), socket.CMSG_LEN(_MAX_FDS * fds.itemsize))
        except ConnectionError:
            data, ancillary = b"", []
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        if not data:
            return None, list(fds)
        chunks.append(data)
        count -= len(data)
    return b"".join(chunks), list(fds)

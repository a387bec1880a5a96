"""Frames of JSON over Unix sockets: the only thing that both sides of the wall import.

A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON, one object. Nothing is ever unpickled, lengths
are bounded before anything is allocated, and a peer that breaks the format gets a ProtocolError, never an answer.
Bulk data does not travel here: tensors live in memory that the judge owns (see `devices`), and frames only name them.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import socket
import struct
from typing import Any

Frame = dict[str, Any]

#: Between trusted processes (server, judge, zygote): a result with logs and tracebacks, or a request with sources.
MAX_TRUSTED_FRAME = 64 * 1024 * 1024
#: From a runner: a traceback of 8 KiB, timings of 1000 calls; anything larger is an attack on the judge's memory.
MAX_RUNNER_FRAME = 1024 * 1024

_LENGTH = struct.Struct(">I")
#: What a socket may still hold of a peer that is gone, at the most, in bytes; read in pieces.
_MOST_LEFT, _PIECE = 4 << 20, 1 << 16
#: File descriptors that may travel with one frame: the runner's two sockets, and the files it shares.
_MAX_FDS = 8


class ProtocolError(Exception):
    """The peer sent something that is not a frame."""


def encode(frame: Frame) -> bytes:
    """Return `frame` as bytes, ready to be sent."""
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
    return frame


def _checked_length(header: bytes, limit: int) -> int:
    (length,) = _LENGTH.unpack(header)
    if length > limit:
        raise ProtocolError(f"frame of {length} bytes, limit {limit}")
    return int(length)


class _ToTheEnd(asyncio.StreamReaderProtocol):
    """Reads to the end even after a write has failed: what a peer said before it died counts, and asyncio drops it."""

    def __init__(self, reader: asyncio.StreamReader, sock: socket.socket) -> None:
        super().__init__(reader)
        self._rest = reader, sock

    def connection_lost(self, exc: Exception | None) -> None:
        reader, sock = self._rest
        with contextlib.suppress(OSError):
            # Not for ever: a candidate can have writes to it fail, and go on sending.
            for _ in range(_MOST_LEFT // _PIECE):
                if not (data := sock.recv(_PIECE)):
                    break
                reader.feed_data(data)
        super().connection_lost(None if isinstance(exc, ConnectionError) else exc)


async def connect(sock: socket.socket, limit: int = 1 << 16) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return streams over a connected socket, which they own from now on; reading pauses at twice `limit` bytes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit, loop)
    transport, protocol = await loop.create_unix_connection(lambda: _ToTheEnd(reader, sock), sock=sock)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def read_frame(reader: asyncio.StreamReader, limit: int = MAX_TRUSTED_FRAME) -> Frame | None:
    """Return the next frame, or None when the peer has closed. Raises ProtocolError."""
    try:
        header = await reader.readexactly(_LENGTH.size)
        return decode(await reader.readexactly(_checked_length(header, limit)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def write_frame(writer: asyncio.StreamWriter, frame: Frame) -> None:
    """Queue `frame` for sending; await `writer.drain()` where the peer may be slow."""
    writer.write(encode(frame))


def send(sock: socket.socket, frame: Frame, fds: tuple[int, ...] = ()) -> None:
    """Send `frame` on a blocking socket, with open file descriptors if any."""
    data = encode(frame)
    sent = socket.send_fds(sock, [data], list(fds)) if fds else sock.send(data)
    sock.sendall(data[sent:])


def receive(sock: socket.socket, limit: int = MAX_TRUSTED_FRAME) -> tuple[Frame, list[int]] | None:
    """Return the next frame and the descriptors that came with it, or None when the peer has closed."""
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

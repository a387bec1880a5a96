"""A TCP proxy that injects faults. In the reliability suite it stands between two processes.

It forwards bytes and does not interpret them. `link` shapes the traffic at any time (latency, bandwidth, slicing).
`stall`, `half_open`, `reset` and `refuse` break connections in the four ways that networks do; `heal` ends a stall or a
refusal.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.accepting import stop_accepting

#: Bytes read from a socket at once, and pieces queued in one direction. They limit what a stalled direction holds.
PIECE_BYTES = 64 * 1024
PIECES_UNDER_WAY = 64
#: With a limited bandwidth, each portion of bytes takes this many seconds at most.
PACE_SECONDS = 0.02
_RST_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Link:
    """How bytes travel in each direction. By default the proxy forwards them at once."""

    latency_seconds: float = 0.0
    jitter_seconds: float = 0.0
    """Added to or taken from the latency, evenly spread; bytes never overtake each other."""
    bytes_per_second: float = 0.0
    """0: as fast as it goes."""
    slice_bytes: int = 0
    """Pieces of at most this many bytes; 0: as they came."""
    slice_pause_seconds: float = 0.0
    """Between two pieces: with slices this looks like loss and repetition."""


class Proxy:
    """A proxy on its own port, which forwards to `upstream` ("host:port"). Use it as an async context manager."""

    def __init__(self, upstream: str, *, link: Link | None = None, seed: int = 0) -> None:
        host, _, port = upstream.rpartition(":")
        self.upstream = (host, int(port))
        self.link = link or Link()
        self.connections = 0
        """Connections taken so far."""
        self.forwarded_bytes = 0
        self._random = random.Random(seed)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.refuse()

    @property
    def address(self) -> str:
        """The address where it listens; it never changes."""
        return f"127.0.0.1:{self._port}"

    @property
    def open_connections(self) -> int:
        """The number of connections that are open now."""
        return len(self._open)

    def stall(self) -> None:
        """Simulate a partition: take bytes but deliver none, on open and new connections. `heal` delivers them."""
        self._flowing.clear()

    def half_open(self) -> None:
        """Simulate a power loss of the other machine: drop all bytes on the open connections, and never close them.

        New connections work. Only the two ends can notice the loss, by asking for a sign of life.
        """
        for connection in self._open:
            connection.dead = True

    async def reset(self) -> None:
        """Send RST to both ends of every open connection. New connections work."""
        doomed = list(self._open)
        for connection in doomed:
            connection.reset()
        await asyncio.gather(*(connection.task for connection in doomed), return_exceptions=True)

    async def refuse(self) -> None:
        """Stop listening, and reset all open connections."""
        server, self._server = self._server, None
        if server is not None:
            await stop_accepting(server)
        await self.reset()

    async def heal(self) -> None:
        """End stalls and refusals. The link stays as it is."""
        self._flowing.set()
        if self._server is None:
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", self._port, limit=PIECE_BYTES)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connections += 1
        connection = _Connection(self, (reader, writer), task)
        self._open.add(connection)
        try:
            await connection.run()
        except* OSError:
            connection.reset_on_close()  # one end is gone: reset the other end too
        except* asyncio.CancelledError:
            pass  # reset() cancelled this connection; the proxy goes on
        finally:
            self._open.discard(connection)
            connection.abort()


class _Connection:
    """One connection and its two directions."""

    def __init__(
        self, proxy: Proxy, near: tuple[asyncio.StreamReader, asyncio.StreamWriter], task: asyncio.Task[None]
    ) -> None:
        self.dead = False
        self.task = task
        self._proxy = proxy
        self._near = near
        self._writers = [near[1]]

    async def run(self) -> None:
        await self._proxy._flowing.wait()
        far = await asyncio.open_connection(*self._proxy.upstream, limit=PIECE_BYTES)
        self._writers.append(far[1])
        async with asyncio.TaskGroup() as group:
            group.create_task(self._carry(self._near[0], far[1]))
            group.create_task(self._carry(far[0], self._near[1]))

    def reset(self) -> None:
        self.reset_on_close()
        self.abort()
        self.task.cancel()

    def reset_on_close(self) -> None:
        for writer in self._writers:
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one direction. Two tasks read and write, so that latency does not cost bandwidth."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES_UNDER_WAY)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._give(under_way, writer))
            now = asyncio.get_running_loop().time
            while True:
                piece = await reader.read(PIECE_BYTES)
                link = self._proxy.link
                jitter = self._proxy._random.uniform(-link.jitter_seconds, link.jitter_seconds)
                await under_way.put((now() + link.latency_seconds + jitter, piece))
                if not piece:
                    return

    async def _give(self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time
        while True:
            due, piece = await under_way.get()
            await asyncio.sleep(due - now())
            if not piece:
                if not self.dead and writer.can_write_eof():
                    writer.write_eof()
                return
            while piece:
                await self._proxy._flowing.wait()
                slice_, piece = self._cut(piece)
                await self._write(writer, slice_)

    def _cut(self, piece: bytes) -> tuple[bytes, bytes]:
        link = self._proxy.link
        step = link.slice_bytes or len(piece)
        if link.bytes_per_second:
            step = min(step, max(1, int(link.bytes_per_second * PACE_SECONDS)))
        return piece[:step], piece[step:]

    async def _write(self, writer: asyncio.StreamWriter, slice_: bytes) -> None:
        link = self._proxy.link
        if link.bytes_per_second:  # wait as long as these bytes take to pass
            await asyncio.sleep(len(slice_) / link.bytes_per_second)
        if not self.dead:
            writer.write(slice_)
            await writer.drain()
            self._proxy.forwarded_bytes += len(slice_)
        if link.slice_bytes and link.slice_pause_seconds:
            await asyncio.sleep(link.slice_pause_seconds)

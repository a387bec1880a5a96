"""Tests of the proxy's faults, seen from both ends of real sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.accepting import stop_accepting
from tests.chaos.proxy import Link, Proxy

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def echo() -> AsyncIterator[str]:
    """Run a server that sends back everything, and closes when its client half-closes; yield its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(1 << 16):
                writer.write(piece)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await stop_accepting(server)


@asynccontextmanager
async def proxied(link: Link | None = None) -> AsyncIterator[Proxy]:
    async with echo() as address, Proxy(address, link=link) as proxy:
        yield proxy


@asynccontextmanager
async def connected(proxy: Proxy) -> AsyncIterator[Ends]:
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def said_again(ends: Ends, text: bytes, seconds: float = 10) -> bool:
    """Send `text`; return whether it comes back within `seconds`."""
    reader, writer = ends
    writer.write(text)
    try:
        return await asyncio.wait_for(reader.readexactly(len(text)), seconds) == text
    except TimeoutError:
        return False


async def test_it_forwards_everything_and_both_half_closes() -> None:
    text = bytes(range(256)) * 8192  # more than any buffer on the way
    async with proxied() as proxy, connected(proxy) as (reader, writer):
        writer.write(text)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(-1), 10) == text
        assert proxy.forwarded_bytes == 2 * len(text)


async def test_latency_is_added_in_each_direction_and_costs_no_bandwidth() -> None:
    link = Link(latency_seconds=0.1, jitter_seconds=0.02)
    async with proxied(link) as proxy, connected(proxy) as ends:
        start = time.monotonic()
        assert await said_again(ends, b"x" * 1_000_000)
        took = time.monotonic() - start
        assert took >= 0.16, f"a round trip took {took:.3f} s"
        # If pieces went one after the other, each would pay the latency: 16 pieces there and back.
        assert took < 16 * 0.2, f"latency was paid for each piece: {took:.3f} s"


async def test_bandwidth_is_a_limit() -> None:
    async with proxied(Link(bytes_per_second=100_000)) as proxy, connected(proxy) as ends:
        start = time.monotonic()
        assert await said_again(ends, b"x" * 50_000)
        assert time.monotonic() - start >= 0.5


async def test_the_slicer_changes_the_pieces_and_not_the_bytes() -> None:
    async with proxied(Link(slice_bytes=7, slice_pause_seconds=0.001)) as proxy, connected(proxy) as (reader, writer):
        text = bytes(range(200))
        writer.write(text)
        first = await asyncio.wait_for(reader.read(1000), 10)
        assert len(first) < len(text), "it came in one piece"
        assert first + await asyncio.wait_for(reader.readexactly(len(text) - len(first)), 10) == text


async def test_a_stall_holds_bytes_and_a_heal_delivers_them() -> None:
    async with proxied() as proxy, connected(proxy) as ends:
        assert await said_again(ends, b"before")
        proxy.stall()
        async with connected(proxy) as late:
            assert not await said_again(ends, b"during", 0.3)
            assert not await said_again(late, b"late", 0.3), "a new connection is stalled too"
            await proxy.heal()
            assert await asyncio.wait_for(ends[0].readexactly(6), 10) == b"during"
            assert await asyncio.wait_for(late[0].readexactly(4), 10) == b"late"


async def test_half_open_connections_lose_everything_and_are_never_closed() -> None:
    async with proxied() as proxy, connected(proxy) as old:
        assert await said_again(old, b"before")
        proxy.half_open()
        assert not await said_again(old, b"lost", 0.3)
        await proxy.heal()
        assert not await said_again(old, b"lost too", 0.3), "nothing brings such a connection back"
        assert not old[0].at_eof(), "nobody told the client"
        async with connected(proxy) as new:
            assert await said_again(new, b"new ones work")


async def test_a_reset_is_one_for_both_ends() -> None:
    async with proxied() as proxy, connected(proxy) as ends:
        assert await said_again(ends, b"before")
        await proxy.reset()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(ends[0].read(1), 10)
        assert proxy.open_connections == 0
        async with connected(proxy) as again:
            assert await said_again(again, b"after")


async def test_refusing_closes_the_port_and_healing_opens_the_same_one() -> None:
    async with proxied() as proxy, connected(proxy) as ends:
        assert await said_again(ends, b"before")
        await proxy.refuse()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(ends[0].read(1), 10)
        with pytest.raises(ConnectionRefusedError):
            async with connected(proxy):
                pass
        await proxy.heal()
        async with connected(proxy) as again:
            assert await said_again(again, b"after")


async def test_a_dead_upstream_ends_the_connection_and_not_the_proxy() -> None:
    async with echo() as address:
        proxy = Proxy(address)
    async with proxy:  # nobody listens there any more
        for _ in range(3):
            async with connected(proxy) as (reader, _writer):
                with suppress(ConnectionResetError):
                    assert await asyncio.wait_for(reader.read(1), 10) == b""
        assert proxy.connections == 3

"""Tests of servers that stop in the loop turn in which a client connects. A ResourceWarning fails these tests."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from kerneldyno.testing.scripted_node import ScriptedNode
from tests.accepting import stop_accepting
from tests.chaos.proxy import Proxy

Listening = tuple[int, Callable[[], Awaitable[None]]]
"""A port, and what ends the listening."""


@asynccontextmanager
async def a_server() -> AsyncIterator[Listening]:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], lambda: stop_accepting(server)


@asynccontextmanager
async def a_node() -> AsyncIterator[Listening]:
    node = ScriptedNode("n1")
    await node.listen()

    async def die() -> None:
        node.die()

    yield int(node.address.rpartition(":")[2]), die


@asynccontextmanager
async def a_proxy() -> AsyncIterator[Listening]:
    async with Proxy("127.0.0.1:1") as proxy:
        yield int(proxy.address.rpartition(":")[2]), proxy.refuse


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("listening", [a_server, a_node, a_proxy])
async def test_nothing_stays_open(listening: Callable[[], AbstractAsyncContextManager[Listening]], turns: int) -> None:
    async with listening() as (port, end):
        with socket.create_connection(("127.0.0.1", port)):
            for _ in range(turns):
                await asyncio.sleep(0)
            await end()
            for _ in range(3):  # the loop closes sockets in its next turns
                await asyncio.sleep(0.001)
            gc.collect()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))

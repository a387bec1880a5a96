"""Stopping a test's server without leaving a half-made connection.

If asyncio accepts a connection in the turn of the event loop before `Server.close()`, nothing closes its transport
(https://github.com/python/cpython/issues/109564). When the transport is garbage collected, its ResourceWarning would
fail whichever test runs at that moment.
"""

from __future__ import annotations

import asyncio

#: Turns of the event loop from accepting a connection to its handler: transport, `connection_made`, the handler's task.
_TURNS = 3


async def stop_accepting(server: asyncio.Server) -> None:
    """Close `server` after all connections that it has accepted have reached their handlers."""
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    server.close()

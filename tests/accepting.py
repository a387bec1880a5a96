"""How a test's server stops listening without leaving a connection half made.

A connection that asyncio has accepted in the turn before `Server.close()` gets no transport that anybody closes
(https://github.com/python/cpython/issues/109564); its ResourceWarning would fail whichever test runs when it is collected.
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

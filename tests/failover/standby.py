"""A standby scheduler on a real socket, as the contract says: it refuses every call, and its health is NOT_SERVING."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from kerneldyno.rpc import channel, errors


class Standby(grpc.GenericRpcHandler):
    """A standby. A test may change what it says.

    Args:
        serving: address of the scheduler that it believes to serve; "" if it knows none.
        retry_seconds: when callers should try again.
        pause: seconds between the metadata of a stream and its status, as a busy machine may have them.
    """

    def __init__(self, serving: str = "", retry_seconds: float = 0.2, pause: float | None = None) -> None:
        self.serving = serving
        self.retry_seconds = retry_seconds
        self.pause = pause
        self.address = ""
        self.refused: Counter[str] = Counter()
        """Number of calls that it refused, by the method's name."""

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a method: bytes in, and none out, whatever the kind of the method."""
        method = details.method.rpartition("/")[2]

        async def refuse(requests: Any, context: Any) -> None:
            self.refused[method] += 1
            error = errors.StandbyError(
                "this scheduler is a standby", serving=self.serving, retry_seconds=self.retry_seconds
            )
            if self.pause is not None:
                await context.send_initial_metadata(())
                await asyncio.sleep(self.pause)
            await context.abort_with_status(errors.to_status(error))

        return grpc.stream_stream_rpc_method_handler(refuse)

    @asynccontextmanager
    async def serve(self, address: str = "127.0.0.1:0") -> AsyncIterator[Standby]:
        """Listen on `address` until the block ends."""
        server = grpc.aio.server(options=channel.server_options())
        health = HealthServicer()
        await health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        server.add_generic_rpc_handlers((self,))
        port = server.add_insecure_port(address)
        self.address = f"{address.rpartition(':')[0]}:{port}"
        await server.start()
        try:
            yield self
        finally:
            await server.stop(0)


@asynccontextmanager
async def standby(serving: str = "", **options: Any) -> AsyncIterator[Standby]:
    """Run a standby on a free port."""
    async with Standby(serving, **options).serve() as running:
        yield running

"""One watch() call: snapshots of the cluster, across broken streams and restarts of the scheduler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress

import grpc.aio

from kerneldyno.client.errors import ClientClosedError, from_call, is_temporary, unreachable_for
from kerneldyno.rpc.backoff import Backoff
from kerneldyno.rpc.credentials import Credentials
from kerneldyno.rpc.failover import FailoverChannel
from kerneldyno.v1.fleet_service_pb2 import WatchClusterRequest, WatchClusterResponse
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub


async def watch_cluster(
    channel: FailoverChannel, address: str, credentials: Credentials, reconnect_seconds: float
) -> AsyncGenerator[WatchClusterResponse, None]:
    """Yield snapshots until the caller stops.

    Raises:
        UnavailableError: the scheduler was unreachable for longer than `reconnect_seconds`.
        ClientClosedError: the channel was closed.
        KernelDynoError: the scheduler refused the watch.
    """
    backoff = Backoff()
    lost_at = time.monotonic()
    while True:
        broken: grpc.aio.AioRpcError | None = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, reconnect_seconds - (time.monotonic() - lost_at))):
                    await channel.pick()
            call = FleetServiceStub(channel).WatchCluster(WatchClusterRequest())
        except grpc.aio.UsageError as error:
            raise ClientClosedError("the client was closed while it watched") from error
        try:
            while isinstance(snapshot := await _next(call), WatchClusterResponse):
                backoff.reset()
                yield snapshot
                lost_at = time.monotonic()  # now, because the caller may have taken long
        except grpc.aio.AioRpcError as error:
            broken = error
        finally:
            call.cancel()
        told = None
        if broken is not None:
            meaning = from_call(broken, address, credentials)
            if not is_temporary(broken):
                raise meaning
            told = meaning.retry_seconds
            if told is None and time.monotonic() - lost_at > reconnect_seconds:
                raise unreachable_for(
                    address, credentials, reconnect_seconds, broken.details() or "", report=channel.report()
                ) from broken
        await asyncio.sleep(backoff.pause(told))


async def _next(call: grpc.aio.UnaryStreamCall[WatchClusterRequest, WatchClusterResponse]) -> object:
    try:
        return await call.read()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The call was cancelled together with its connection, not this task. If the client was closed, the next call
        # shows it.
        return None

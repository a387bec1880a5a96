"""The node's side of FleetService: say what the node is every two seconds, and be what the scheduler answers.

Runs beside the server when there is a scheduler. Losing the scheduler changes nothing on the node: what runs goes on,
its results wait, and the first call that gets through registers the node again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

import grpc
from kerneldyno.rpc import channel
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2_grpc as pb_grpc

from .node import Node

log = logging.getLogger(__name__)

#: Seconds between two calls until the scheduler has named its own period, and after a call that failed.
_PERIOD = 2.0
#: No period is believed to be shorter (seconds), or one bad answer makes this a busy loop.
_SHORTEST_PERIOD = 0.1
#: Seconds for one call: a fifth of the usual lease.
_CALL_SECONDS = 2.0
#: Lease until the scheduler has named its own, in seconds.
_LEASE = 10.0


class FleetLink:
    """Keeps the node registered with one scheduler."""

    def __init__(
        self,
        node: Node,
        scheduler: str,
        *,
        address: str,
        instance_id: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._scheduler = scheduler
        self._address = address
        self._instance_id = instance_id
        self._clock = clock
        self._period, self._lease = _PERIOD, _LEASE
        self._heard: float | None = None
        self._failing = False
        #: Set once the scheduler knows that the node takes nothing more.
        self.said_draining = asyncio.Event()

    @property
    def connected(self) -> bool:
        """Whether the node still has its lease."""
        return self._heard is not None and self._clock() - self._heard < self._lease

    async def run(self) -> None:
        """Synchronize until cancelled."""
        target = channel.target(self._scheduler)
        async with grpc.aio.insecure_channel(target, options=channel.client_options()) as connection:
            stub: pb_grpc.FleetServiceAsyncStub = pb_grpc.FleetServiceStub(connection)
            while True:
                self._node.news.clear()
                request = self._request()
                try:
                    answer = await stub.Synchronize(request, timeout=_CALL_SECONDS)
                except grpc.aio.AioRpcError as error:
                    self._failed(error)
                else:
                    self._obey(answer)
                    if request.state == pb.NODE_STATE_DRAINING:
                        self.said_draining.set()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._pause(), self._period)

    async def _pause(self) -> None:
        """Wait for news; while the scheduler does not answer, news do not shorten the pause."""
        if self._failing:
            await asyncio.Event().wait()
        await self._node.news.wait()

    def _request(self) -> pb.SynchronizeRequest:
        node = self._node
        draining = node.draining or node.drained_by_scheduler
        return pb.SynchronizeRequest(
            node_id=node.node_id,
            instance_id=self._instance_id,
            address=self._address,
            state=pb.NODE_STATE_DRAINING if draining else pb.NODE_STATE_SERVING,
            devices=node.devices(),
            backends=node.backends,
            toolkits=node.toolkits,
            attempt_tokens=node.tokens(),
            environment=node.environment(),
            profiling=node.profiling,
        )

    def _obey(self, answer: pb.SynchronizeResponse) -> None:
        if not self.connected:
            log.info("event=registered scheduler=%s node=%s", self._scheduler, self._node.node_id)
        self._heard, self._failing = self._clock(), False
        self._lease = answer.lease.ToNanoseconds() / 1e9 or _LEASE
        self._period = max(_SHORTEST_PERIOD, answer.next_synchronize.ToNanoseconds() / 1e9 or _PERIOD)
        self._node.drained_by_scheduler = answer.desired_state == pb.NODE_STATE_DRAINING
        for token in answer.cancel_attempt_tokens:
            self._node.cancel(token)

    def _failed(self, error: grpc.aio.AioRpcError) -> None:
        if not self._failing:
            code, details = error.code().name, str(error.details())[:200]
            log.warning("event=synchronize_failed scheduler=%s code=%s detail=%r", self._scheduler, code, details)
        self._failing = True
        self._period = min(self._period, _PERIOD)
        if self._heard is not None and not self.connected:
            log.warning("event=lease_lost scheduler=%s node=%s", self._scheduler, self._node.node_id)
            self._heard = None

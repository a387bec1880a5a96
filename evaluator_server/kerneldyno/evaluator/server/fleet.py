"""The node's side of FleetService: say what the node is every two seconds, and be what the scheduler answers.

Runs beside the server when there is a scheduler, and runs the Work stream. Losing the scheduler changes nothing on the node:
what runs goes on, its results wait, and the first call that gets through registers the node again. After a lease without an
answer the connection is thrown away and dialled anew, since one whose other end is gone may look alive for long.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc

from kerneldyno.rpc import channel, unreachable
from kerneldyno.rpc.credentials import NONE, Credentials
from kerneldyno.rpc.errors import CredentialsError
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2_grpc as pb_grpc

from .node import Node
from .work import Work

if TYPE_CHECKING:  # the generated module has it for type checkers only
    from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceAsyncStub

log = logging.getLogger(__name__)

#: Seconds between two calls until the scheduler has named its own period.
_PERIOD = 2.0
#: Longest pause after a call that failed, in seconds; each node takes a random part of it, or all would come at once.
_RETRY_SECONDS = 1.0
#: No period is believed to be shorter (seconds), or one bad answer makes this a busy loop.
_SHORTEST_PERIOD = 0.1
#: Seconds for one call: a fifth of the usual lease.
_CALL_SECONDS = 2.0
#: Lease until the scheduler has named its own, in seconds.
_LEASE = 10.0


class FleetLink:
    """Keeps the node registered with one scheduler, and at work for it."""

    def __init__(
        self,
        node: Node,
        scheduler: str,
        *,
        address: str,
        instance_id: str,
        credentials: Credentials = NONE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`address` is where others reach the node, or empty."""
        self._node = node
        self._scheduler = scheduler
        self._address = address
        self._instance_id = instance_id
        self._credentials = credentials
        self._clock = clock
        self._work = Work(node, instance_id)
        self._period, self._lease = _PERIOD, _LEASE
        self._heard: float | None = None
        self._failing = False
        #: Set while the scheduler knows the node, as far as the node can tell.
        self._registered = asyncio.Event()
        #: Set once the scheduler knows that the node takes nothing more.
        self.said_draining = asyncio.Event()

    @property
    def connected(self) -> bool:
        """Whether the node still has its lease."""
        return self._heard is not None and self._clock() - self._heard < self._lease

    async def run(self) -> None:
        """Keep lease and Work stream until cancelled. Raises CredentialsError when the first dial cannot be tried."""
        dialled = False
        while True:
            try:
                connection = channel.open(self._scheduler, self._credentials, own_connection=True)
            except CredentialsError as error:
                if not dialled:
                    raise
                log.warning("event=dial_failed scheduler=%s detail=%r", self._scheduler, str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            dialled = True
            async with connection:
                stub: FleetServiceAsyncStub = pb_grpc.FleetServiceStub(connection)
                self._registered.clear()
                async with asyncio.TaskGroup() as group:
                    work = group.create_task(self._work.run(stub, self._registered))
                    await self._keep_lease(stub)
                    work.cancel()

    async def close(self) -> None:
        """Send what there is and end the Work stream; the lease goes on until `run` is cancelled."""
        await self._work.close()

    async def _keep_lease(self, stub: FleetServiceAsyncStub) -> None:
        """Synchronize until a whole lease passes without an answer."""
        answered = self._clock()
        while self._clock() - answered <= self._lease:
            self._node.news.clear()
            request = self._request()
            try:
                answer = await stub.Synchronize(request, timeout=_CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                self._failed(error)
                await asyncio.sleep(random.uniform(0.5, 1.0) * min(self._period, _RETRY_SECONDS))
                continue
            answered = self._clock()
            self._obey(answer)
            if request.state == pb.NODE_STATE_DRAINING:
                self.said_draining.set()
            # Not asyncio.wait_for: Python 3.11's loses a cancellation that comes together with news.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._period):
                    await self._node.news.wait()

    def _request(self) -> pb.SynchronizeRequest:
        node = self._node
        return pb.SynchronizeRequest(
            node_id=node.node_id,
            instance_id=self._instance_id,
            address=self._address,
            state=pb.NODE_STATE_DRAINING if node.draining else pb.NODE_STATE_SERVING,
            devices=node.devices(),
            backends=node.backends,
            toolkits=node.toolkits,
            attempt_tokens=[attempt.token for attempt in node.held()],
            environment=node.environment(),
            profiling=node.profiling,
            labels=node.labels,
            sandbox_layers=node.sandbox_layers(),
        )

    def _obey(self, answer: pb.SynchronizeResponse) -> None:
        if not self.connected:
            log.info("event=registered scheduler=%s node=%s", self._scheduler, self._node.node_id)
        self._heard, self._failing = self._clock(), False
        self._lease = answer.lease.ToNanoseconds() / 1e9 or _LEASE
        self._period = max(_SHORTEST_PERIOD, answer.next_synchronize.ToNanoseconds() / 1e9 or _PERIOD)
        self._node.drained_by_scheduler = answer.desired_state == pb.NODE_STATE_DRAINING
        for token in answer.cancel_attempt_tokens:
            self._node.forget(token)
        self._registered.set()

    def _hint(self, error: grpc.aio.AioRpcError) -> str:
        """Return what to do about it, where the connection or the address is at fault."""
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return unreachable.advice(error.details() or "", self._credentials)
        return unreachable.NOT_A_SCHEDULER if error.code() is grpc.StatusCode.UNIMPLEMENTED else ""

    def _failed(self, error: grpc.aio.AioRpcError) -> None:
        if not self._failing:
            code, details = error.code().name, str(error.details())[:200]
            log.warning(
                "event=synchronize_failed scheduler=%s code=%s detail=%r hint=%r",
                self._scheduler,
                code,
                details,
                self._hint(error),
            )
        self._failing = True
        if self._heard is not None and not self.connected:
            log.warning("event=lease_lost scheduler=%s node=%s", self._scheduler, self._node.node_id)
            self._heard = None

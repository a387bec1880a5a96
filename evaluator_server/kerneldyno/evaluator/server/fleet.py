"""The node's side of FleetService: it reports the node's state every two seconds and applies the scheduler's answer.

It runs beside the server when there is a scheduler, and runs the Work stream. If the scheduler is lost, nothing changes
on the node: attempts continue, their results wait, and the first successful call registers the node again. After a
lease without an answer, the node opens a new connection, because a connection whose other end is gone may look alive
for a long time.

With several schedulers the channel finds the one that serves. When another one answers Synchronize, the Work stream to
the former one ends, and the next one tells the new scheduler everything that the node holds, as after a restart.
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
from kerneldyno.rpc.failover import FailoverChannel, NoneServesError
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2_grpc as pb_grpc

from .node import Node
from .work import Work

if TYPE_CHECKING:  # the generated module has it for type checkers only
    from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceAsyncStub

_log = logging.getLogger(__name__)

#: Seconds between two calls until the scheduler names its own period.
_PERIOD = 2.0
#: Longest delay after a failed call, in seconds. Each node takes a random part of it, so that they do not all call at
#: once.
_RETRY_SECONDS = 1.0
#: Shortest period in seconds that is accepted; a wrong answer must not make this a busy loop.
_SHORTEST_PERIOD = 0.1
#: Time limit of one call in seconds: a fifth of the usual lease.
_CALL_SECONDS = 2.0
#: Lease in seconds until the scheduler names its own.
_LEASE = 10.0


class FleetLink:
    """Keeps the node registered with the scheduler that serves, and runs its attempts."""

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
        """Create the link.

        Args:
            node: The node.
            scheduler: The scheduler's address, or a list of several (see `kerneldyno.rpc.channel.addresses`).
            address: Where others reach the node, or "".
            instance_id: Identifies this process.
            credentials: For the connection to the scheduler.
            clock: Returns the time in seconds.
        """
        self._node = node
        self._scheduler = scheduler
        self._address = address
        self._instance_id = instance_id
        self._credentials = credentials
        self._clock = clock
        self._work = Work(node, instance_id)
        self._period, self._lease = _PERIOD, _LEASE
        self._heard: float | None = None
        self._served_by = ""
        self._failing = False
        #: Set while the scheduler knows the node, as far as the node can tell.
        self._registered = asyncio.Event()
        #: Set once the scheduler knows that the node takes no more work.
        self.said_draining = asyncio.Event()

    @property
    def connected(self) -> bool:
        """Return True while the node's lease lasts."""
        return self._heard is not None and self._clock() - self._heard < self._lease

    async def run(self) -> None:
        """Keep lease and Work stream until cancelled.

        Raises CredentialsError if the first connection has bad credentials.
        """
        dialled = False
        while True:
            try:
                connection = channel.open(self._scheduler, self._credentials, own_connection=True)
            except CredentialsError as error:
                if not dialled:
                    raise
                _log.warning("event=dial_failed scheduler=%s detail=%r", self._scheduler, str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            dialled = True
            async with connection:
                stub: FleetServiceAsyncStub = pb_grpc.FleetServiceStub(connection)
                self._registered.clear()
                async with asyncio.TaskGroup() as group:
                    work = group.create_task(self._work.run(stub, self._registered))
                    await self._keep_lease(connection, stub)
                    work.cancel()

    async def close(self) -> None:
        """Send what waits and end the Work stream. The lease continues until `run` is cancelled."""
        await self._work.close()

    async def _keep_lease(self, connection: FailoverChannel, stub: FleetServiceAsyncStub) -> None:
        """Call Synchronize until a whole lease passes without an answer."""
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
            self._apply(answer, connection.address)
            if request.state == pb.NODE_STATE_DRAINING:
                self.said_draining.set()
            # asyncio.wait_for of Python 3.11 loses a cancellation that arrives together with news.
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
            devices=node.description.devices(),
            backends=node.description.backends,
            toolkits=node.description.toolkits,
            attempt_tokens=[attempt.token for attempt in node.attempts.held()],
            environment=node.description.environment(),
            profiling=node.description.profiling,
            labels=node.description.labels,
            sandbox_layers=node.description.sandbox_layers(),
            builders=node.description.builders,
        )

    def _apply(self, answer: pb.SynchronizeResponse, scheduler: str) -> None:
        if not self.connected or scheduler != self._served_by:
            _log.info("event=registered scheduler=%s node=%s", scheduler, self._node.node_id)
        self._served_by = scheduler
        self._heard, self._failing = self._clock(), False
        self._lease = answer.lease.ToNanoseconds() / 1e9 or _LEASE
        self._period = max(_SHORTEST_PERIOD, answer.next_synchronize.ToNanoseconds() / 1e9 or _PERIOD)
        self._node.drained_by_scheduler = answer.desired_state == pb.NODE_STATE_DRAINING
        for token in answer.cancel_attempt_tokens:
            self._node.forget(token)
        self._registered.set()

    def _hint(self, error: grpc.aio.AioRpcError) -> str:
        """Return advice for the operator if the connection or the address is wrong, else ""."""
        if isinstance(error, NoneServesError):  # its details say it for each address
            return ""
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return unreachable.advice(error.details() or "", self._credentials)
        return unreachable.NOT_A_SCHEDULER if error.code() is grpc.StatusCode.UNIMPLEMENTED else ""

    def _failed(self, error: grpc.aio.AioRpcError) -> None:
        if not self._failing:
            code, details = error.code().name, str(error.details())[:500]
            _log.warning(
                "event=synchronize_failed scheduler=%s code=%s detail=%r hint=%r",
                self._scheduler,
                code,
                details,
                self._hint(error),
            )
        self._failing = True
        if self._heard is not None and not self.connected:
            _log.warning("event=lease_lost scheduler=%s node=%s", self._scheduler, self._node.node_id)
            self._heard = None

"""The node's end of the Work stream, which brings the scheduler's attempts and returns snapshots, refusals and results.

Both sides send state, so every message may be repeated and a broken stream loses nothing: the next stream begins with
everything that the node holds. If the scheduler is slow or silent, the node keeps one snapshot per attempt, the newest.
`fleet.py` runs this class and keeps the lease.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

import grpc

from kerneldyno.rpc import errors, trace_context
from kerneldyno.v1 import fleet_service_pb2 as pb

from .attempt import Attempt
from .build_checks import BuildChecks
from .node import Node

if TYPE_CHECKING:  # the generated module has it for type checkers only
    from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceAsyncStub

    Call = grpc.aio.StreamStreamCall[pb.WorkRequest, pb.WorkResponse]

_log = logging.getLogger(__name__)

#: Delay in seconds before a stream that ended is opened again: the first delay, and the longest.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 1.0
#: A message is sent when its results reach this many bytes. This is far below gRPC's limit for a message.
_MESSAGE_BYTES = 1024 * 1024
#: Delay in seconds that a refusal names if the error names none.
_RETRY_SECONDS = 1.0

Why = pb.AttemptRefusal


class Work:
    """The node's end of the Work stream. It opens a new stream whenever one ends."""

    def __init__(self, node: Node, instance_id: str) -> None:
        self._node = node
        self._instance_id = instance_id
        self._unsent: dict[str, Attempt] = {}
        self._refusals: list[pb.AttemptRefusal] = []
        self._checks = BuildChecks(node, self._checked)
        self._reports: list[pb.BuildReport] = []
        self._changed = asyncio.Event()
        self._closing = False
        self._no_stream = asyncio.Event()
        self._no_stream.set()

    async def run(self, stub: FleetServiceAsyncStub, registered: asyncio.Event) -> None:
        """Keep a stream open until cancelled or closed.

        Args:
            stub: The scheduler's service.
            registered: Set while the scheduler knows the node. This method clears it when a stream ends, because a
                restarted scheduler must first register the node again.
        """
        pause, last = _FIRST_PAUSE, ""
        loop = asyncio.get_running_loop()
        while not self._closing:
            await registered.wait()
            opened = loop.time()
            ending = await self._serve(stub.Work())
            registered.clear()
            self._node.news.set()
            lasted = loop.time() - opened > _LONGEST_PAUSE
            if not self._closing and (lasted or ending != last):
                _log.warning("event=work_stream_ended node=%s %s", self._node.node_id, ending)
            pause, last = _FIRST_PAUSE if lasted else min(2 * pause, _LONGEST_PAUSE), ending
            await asyncio.sleep(random.uniform(pause / 2, pause))

    async def close(self) -> None:
        """Send everything that waits, half-close the stream, and wait until the scheduler has ended it."""
        self._closing = True
        self._changed.set()
        await self._no_stream.wait()

    async def _serve(self, call: Call) -> str:
        """Serve one stream to its end, and return how it ended, for the log."""
        self._no_stream.clear()
        self._unsent = {attempt.token: attempt for attempt in self._node.attempts.held()}
        self._refusals = []  # the scheduler assigns again what the node does not hold
        self._reports = []
        try:
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(self._write(call))
                ending = await self._read(call)
                writing.cancel()
            return ending
        finally:
            self._checks.cancel_all()
            call.cancel()
            self._no_stream.set()

    # Down

    async def _read(self, call: Call) -> str:
        try:
            while isinstance(response := await call.read(), pb.WorkResponse):
                self._apply(response)
        except grpc.aio.AioRpcError as error:
            return f"code={error.code().name} detail={str(error.details())[:200]!r}"
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return "code=CANCELLED"  # the connection was closed because another scheduler serves
        return "code=OK"

    def _apply(self, response: pb.WorkResponse) -> None:
        for token in (*response.cancel_attempt_tokens, *response.acknowledged_attempt_tokens):
            self._node.forget(token)
        for assignment in response.assignments:
            self._take(assignment)
        for build_id in response.cancel_build_ids:
            self._checks.cancel(build_id)
        for order in response.build_orders:
            self._checks.take(order)

    def _take(self, assignment: pb.Assignment) -> None:
        token = assignment.attempt_token
        try:
            if self._node.attempts.holds(token):
                self._follow(self._node.attempts.get(token))
            else:
                trace = trace_context.of_message(assignment.trace_context)
                self._follow(self._node.start(token, assignment.request, self._follow, trace=trace))
        except errors.KernelDynoError as error:
            _log.info("event=attempt_refused attempt=%s reason=%s", token, error.reason)
            self._refusals.append(_refusal(token, error))
            self._changed.set()

    # Up

    def _checked(self, report: pb.BuildReport) -> None:
        self._reports.append(report)
        self._changed.set()

    def _follow(self, attempt: Attempt) -> None:
        """Record that the scheduler must still be told the attempt's latest snapshot."""
        self._unsent[attempt.token] = attempt
        self._changed.set()

    async def _write(self, call: Call) -> None:
        message = pb.WorkRequest(
            node_id=self._node.node_id,
            instance_id=self._instance_id,
            held_attempt_tokens=list(self._unsent),
            takes_build_orders=True,
        )
        try:
            while True:
                self._fill(message)
                await call.write(message)
                if not self._unsent and not self._refusals and not self._reports:
                    if self._closing:
                        break
                    self._changed.clear()
                    await self._changed.wait()
                message = pb.WorkRequest()
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream has ended; `_read` learns how

    def _fill(self, message: pb.WorkRequest) -> None:
        message.refusals.extend(self._refusals)
        self._refusals.clear()
        size = 0
        while self._reports and size < _MESSAGE_BYTES:
            size += self._reports[0].ByteSize()
            message.build_reports.append(self._reports.pop(0))
        while self._unsent and size < _MESSAGE_BYTES:
            attempt = self._unsent.pop(next(iter(self._unsent)))
            if attempt.held:
                message.events.append(attempt.snapshot.event(attempt.token))
                size += attempt.result_bytes


def _refusal(token: str, error: errors.KernelDynoError) -> pb.AttemptRefusal:
    """Return why the node does not run an assignment.

    It names no violations: with them, the client would hear that its request is INVALID, though the scheduler has
    validated it. Without them, the scheduler tries another node.
    """
    refusal = pb.AttemptRefusal(attempt_token=token, detail=error.message)
    match error:
        case errors.InvalidRequestError():
            refusal.why = Why.WHY_INVALID
            return refusal
        case errors.NoMatchingDeviceError():
            refusal.why = Why.WHY_NO_MATCHING_DEVICE
            return refusal
        case errors.ShuttingDownError():
            refusal.why = Why.WHY_DRAINING
        case _:  # no lane, or an attempt under this token is still being killed
            refusal.why = Why.WHY_FULL
    refusal.retry_delay.FromNanoseconds(int((error.retry_seconds or _RETRY_SECONDS) * 1e9))
    return refusal

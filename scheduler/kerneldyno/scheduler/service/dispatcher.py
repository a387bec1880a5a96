"""Sends attempts to nodes over the Work streams that nodes keep open, and receives their results.

Both ends send state, so every message may be repeated and a broken stream loses nothing: a node that comes back reports the
tokens that it holds, and gets what is missing. Results are acknowledged once they are on disk. This module decides what a
node's message means; `core` decides what follows from it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial

import grpc

from kerneldyno.rpc import errors
from kerneldyno.rpc.serving import Address
from kerneldyno.rpc.trace_context import TraceContext
from kerneldyno.rpc.validation import Violation
from kerneldyno.scheduler.core.core import Core
from kerneldyno.scheduler.core.model import Attempt, Node, Verdict
from kerneldyno.scheduler.core.observer import Observer
from kerneldyno.scheduler.core.ports import ServedJournal
from kerneldyno.scheduler.failpoints import failpoint
from kerneldyno.scheduler.service.build_orders import BuildOrders
from kerneldyno.scheduler.service.translate import invalid_result, verdict_of
from kerneldyno.scheduler.telemetry.evaluation_spans import client_trace
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1 import fleet_service_pb2 as pb

#: Seconds without new attempts for a node that refused one because it is full or shutting down, and named no delay.
FULL_HOLD_SECONDS = 1.0
DRAINING_HOLD_SECONDS = 5.0
#: Bounds in seconds of the delay that a node may name. A shorter one could make assigning and refusing a busy loop, and a
#: longer one could keep the node unused for good.
HOLD_SECONDS = (0.05, 60.0)
#: Seconds for which an acknowledgement may wait, to be sent together with others.
ACKNOWLEDGE_SECONDS = 0.05
#: Maximum size in bytes of the requests in one message to a node.
MESSAGE_BYTES = 4 * 1024 * 1024
#: Seconds after the end of a stream when the node's port is probed, and the time limit of one probe.
PROBES_AFTER_SECONDS = (0.05, 0.3, 0.6)
PROBE_SECONDS = 1.0

Context = grpc.aio.ServicerContext[pb.WorkRequest, pb.WorkResponse]


class Dispatcher(Observer):
    """Carries out the decisions of the state machine about attempts."""

    def __init__(
        self,
        core: Core,
        journal: ServedJournal,
        build_orders: BuildOrders,
        *,
        trace: Callable[[Attempt], TraceContext | None] = client_trace,
    ) -> None:
        """Create the dispatcher.

        Args:
            core: The state machine.
            journal: Its journal.
            build_orders: Builds without an evaluation, which use the same streams.
            trace: Returns the trace context that a node gets with an attempt.
        """
        self.core = core
        self.journal = journal
        self.build_orders = build_orders
        self.trace = trace
        self._wake = asyncio.Event()
        self._streams: dict[str, WorkStream] = {}
        self._group: asyncio.TaskGroup | None = None
        self._closing = False
        self._reachable: set[tuple[str, str]] = set()  # (instance id, address) that accepted a connection

    async def run(self) -> None:
        """Place attempts until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            while True:
                await self._wake.wait()
                self._wake.clear()
                for attempt in self.core.placement.place():
                    self.journal.after_commit(partial(self._send, attempt))

    def work_changed(self) -> None:
        """Have attempts placed at the next turn of the event loop."""
        self._wake.set()

    def _send(self, attempt: Attempt) -> None:
        """Send an attempt whose token is on disk. Sent earlier, a crash could make an older token the current one again."""
        if self.core.attempts.is_current(attempt.token) and (stream := self._streams.get(attempt.node.id)) is not None:
            stream.assign(attempt)  # without a stream, the node gets it when it comes back

    def attempt_dropped(self, attempt: Attempt, *, node_lost: bool) -> None:
        """Tell the node to kill the attempt. If the message is lost, the answer to its next report tells it again."""
        if node_lost:
            failpoint("on_node_lost")
        if (stream := self._streams.get(attempt.node.id)) is not None:
            stream.cancel(attempt.token)

    async def serve(self, requests: AsyncIterator[pb.WorkRequest], context: Context) -> None:
        """Serve the Work stream of one node to its end."""
        first = await anext(aiter(requests), None)
        if first is None:
            return
        if self._closing:
            raise _shutting_down()
        missing = [name for name in ("node_id", "instance_id") if not getattr(first, name)]
        if missing:
            text = "is missing in the first message of the stream"
            raise errors.InvalidRequestError(violations=[Violation(name, text) for name in missing])
        node = self.core.nodes.connect(first.node_id, first.instance_id)
        if node is None:
            raise errors.NotSynchronizedError(f"node {first.node_id!r} has no lease here; call Synchronize first")
        if (older := self._streams.get(node.id)) is not None:
            older.close(errors.StreamReplacedError("the node opened a newer stream"))
        stream = self._streams[node.id] = WorkStream(self, node)
        self._spawn_probe(node, expect_listener=True)
        try:
            stream.reconcile(first)
            if first.takes_build_orders:
                self.build_orders.opened(stream)
            await stream.run(requests, context)
        finally:
            self.build_orders.closed(stream)
            if self._streams.get(node.id) is stream:
                del self._streams[node.id]
                self.core.nodes.disconnect(node)
                self._spawn_probe(node, expect_listener=False)

    def cancel_all(self) -> None:
        """Tell the nodes to kill every attempt: without a durable store, no later scheduler could use the results."""
        for stream in self._streams.values():
            for token in list(stream.node.attempts):
                stream.cancel(token)

    def end_streams(self, why: errors.KernelDynoError) -> None:
        """End all streams. Nodes may open new ones, here or at another scheduler."""
        for stream in list(self._streams.values()):
            stream.close(why)

    async def close(self, limit_seconds: float) -> None:
        """End all streams after they have sent what is queued, within `limit_seconds`."""
        self._closing = True
        self.end_streams(_shutting_down())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_seconds):
                while self._streams:  # noqa: ASYNC110 - each ends by itself
                    await asyncio.sleep(0.02)

    # Is a node dead whose stream has closed?

    def _spawn_probe(self, node: Node, *, expect_listener: bool) -> None:
        if node.report.address and self._group is not None:
            self._group.create_task(self._probe_open(node) if expect_listener else self._probe_dead(node))

    async def _probe_open(self, node: Node) -> None:
        """Record that the node's port accepts connections: only then does a later refusal mean that it is dead."""
        report = node.report
        if await _listens(report.address):
            self._reachable.add((report.instance_id, report.address))

    async def _probe_dead(self, node: Node) -> None:
        """Give the node up if its port accepted connections before and refuses them now. A timeout proves nothing."""
        report = node.report
        where = (report.instance_id, report.address)
        if where not in self._reachable:
            return
        for seconds in PROBES_AFTER_SECONDS:
            await asyncio.sleep(seconds)
            if node.connected or node.lost or node.report.instance_id != report.instance_id:
                return
            if await _listens(report.address) is False:
                self._reachable.discard(where)
                self.core.nodes.lose(
                    node, f"node {node.id} closed its connection, and its port {report.address} refuses connections"
                )
                return


class WorkStream:
    """One open Work stream of one node."""

    def __init__(self, dispatcher: Dispatcher, node: Node) -> None:
        self.node = node
        self._core = dispatcher.core
        self._trace = dispatcher.trace
        self._journal = dispatcher.journal
        self._builds = dispatcher.build_orders
        self._build_orders: dict[str, pb.BuildOrder] = {}
        self._build_cancels: list[str] = []
        self._assignments: dict[str, Attempt] = {}
        self._cancels: dict[str, None] = {}
        self._acknowledged: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._end: errors.KernelDynoError | None = None
        self._ended = False

    def assign(self, attempt: Attempt) -> None:
        """Send an attempt."""
        self._assignments[attempt.token] = attempt
        self._changed.set()

    def cancel(self, token: str) -> None:
        """Tell the node to kill an attempt."""
        if self._assignments.pop(token, None) is None:
            self._cancels[token] = None
            self._changed.set()

    def order_build(self, order: pb.BuildOrder) -> None:
        """Send a build order."""
        self._build_orders[order.build_id] = order
        self._changed.set()

    def cancel_build(self, build_id: str) -> None:
        """Tell the node that nobody waits for a build order any more."""
        if self._build_orders.pop(build_id, None) is None:
            self._build_cancels.append(build_id)
            self._changed.set()

    def close(self, why: errors.KernelDynoError) -> None:
        """Send what is queued, then end the stream with `why`."""
        self._end = why
        self._changed.set()

    def reconcile(self, first: pb.WorkRequest) -> None:
        """Compare the tokens that the node holds with those it should hold, and send the difference."""
        held = set(first.held_attempt_tokens)
        for token in held - self.node.attempts.keys():
            # The node must keep a current one: its result is here but not on disk yet.
            if not self._core.attempts.is_current(token):
                self.cancel(token)
        for token, attempt in self.node.attempts.items():
            if token not in held:
                self.assign(attempt)
        self._take(first)

    async def run(self, requests: AsyncIterator[pb.WorkRequest], context: Context) -> None:
        """Serve until the node closes the stream or `close` is called."""
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._read(requests))
            await self._write(context)
            reading.cancel()
        if self._end is not None:
            raise self._end

    # Messages from the node

    async def _read(self, requests: AsyncIterator[pb.WorkRequest]) -> None:
        try:
            async for message in requests:
                self._core.nodes.heard(self.node)
                self._take(message)
        finally:
            self._ended = True
            self._changed.set()

    def _take(self, message: pb.WorkRequest) -> None:
        for event in message.events:
            if event.stage == evaluation_pb2.STAGE_DONE:
                self._complete(event.attempt_token, verdict_of(event.result))
            else:
                self._core.results.progress(event.attempt_token, event.stage, event.device)
        for refusal in message.refusals:
            self._refused(refusal)
        for report in message.build_reports:
            self._builds.reported(self, report)

    def _complete(self, token: str, verdict: Verdict) -> None:
        failpoint("on_result_received")
        self._core.results.complete(token, verdict)
        self._journal.after_commit(partial(self._acknowledge, token))

    def _acknowledge(self, token: str) -> None:
        if not self._acknowledged:  # it is not urgent, and is sent with the next message
            asyncio.get_running_loop().call_later(ACKNOWLEDGE_SECONDS, self._changed.set)
        self._acknowledged[token] = None

    def _refused(self, refusal: pb.AttemptRefusal) -> None:
        token, why = refusal.attempt_token, refusal.why
        if why == pb.AttemptRefusal.WHY_FULL:
            self._core.results.refuse(token, hold_seconds(refusal, FULL_HOLD_SECONDS))
        elif why == pb.AttemptRefusal.WHY_DRAINING:
            self._core.results.refuse(token, hold_seconds(refusal, DRAINING_HOLD_SECONDS))
        elif why == pb.AttemptRefusal.WHY_INVALID and refusal.violations:
            violations = [Violation(v.field, v.description) for v in refusal.violations]
            self._core.results.complete(token, verdict_of(invalid_result("", violations)))
        else:
            name = pb.AttemptRefusal.Why.Name(why) if why in pb.AttemptRefusal.Why.values() else str(why)
            detail = f"node {self.node.id} refused: {name} {refusal.detail[:500]}"
            self._core.results.complete(token, Verdict.failed("NODE_REFUSED", detail, retryable=True))

    # Messages to the node

    async def _write(self, context: Context) -> None:
        while True:
            while (message := self._next_message()) is not None:
                await self._send(context, message)
            if self._ended or self._end is not None:
                return
            self._changed.clear()
            await self._changed.wait()

    async def _send(self, context: Context, message: pb.WorkResponse) -> None:
        kinds = [
            kind
            for kind, some in (
                ("assignment", message.assignments),
                ("acknowledgement", message.acknowledged_attempt_tokens),
            )
            if some
        ]
        for kind in kinds:
            failpoint(f"before_{kind}_sent")
        try:
            await context.write(message)
        except grpc.aio.InternalError:  # the connection is lost, and this call is about to be cancelled
            raise asyncio.CancelledError from None
        for kind in kinds:
            failpoint(f"after_{kind}_sent")

    def _next_message(self) -> pb.WorkResponse | None:
        builds = bool(self._build_orders or self._build_cancels)
        if not (builds or self._assignments or self._cancels or self._acknowledged):
            return None
        message = pb.WorkResponse(
            cancel_attempt_tokens=self._cancels,
            acknowledged_attempt_tokens=self._acknowledged,
            cancel_build_ids=self._build_cancels,
        )
        self._cancels, self._acknowledged, self._build_cancels = {}, {}, []
        size = 0
        while self._build_orders and size < MESSAGE_BYTES:
            order = self._build_orders.pop(next(iter(self._build_orders)))
            message.build_orders.append(order)
            size += order.ByteSize()
        while self._assignments and size < MESSAGE_BYTES:
            token = next(iter(self._assignments))
            attempt = self._assignments.pop(token)
            payload = attempt.job.spec.payload
            assignment = message.assignments.add(attempt_token=token)
            assignment.request.ParseFromString(payload)
            need = attempt.job.spec.requirement
            selector = assignment.request.device
            if need.min_memory_bytes > selector.min_memory_bytes:
                # It was too large for another device, perhaps of this node; the node must not choose that one again.
                selector.min_memory_bytes, selector.kind = need.min_memory_bytes, need.device_kind
            if (context := self._trace(attempt)) is not None:
                assignment.trace_context.CopyFrom(context.message)
            size += len(payload)
        return message


def hold_seconds(refusal: pb.AttemptRefusal, default: float) -> float:
    """Return for how many seconds the node gets no attempts: the delay that it named, within HOLD_SECONDS, or `default`."""
    shortest, longest = HOLD_SECONDS
    named = refusal.retry_delay.ToNanoseconds() / 1e9 if refusal.HasField("retry_delay") else default
    return min(max(named, shortest), longest)


def _shutting_down() -> errors.KernelDynoError:
    return errors.ShuttingDownError("the scheduler is shutting down", retry_seconds=1.0)


async def _listens(address: str) -> bool | None:
    """Return True if `address` accepts connections, False if it refuses them, None if that is unknown."""
    try:
        where = Address.parse(address)
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_connection(where.host, where.port)
    except ConnectionRefusedError:
        return False
    except (OSError, TimeoutError, ValueError):
        return None
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True

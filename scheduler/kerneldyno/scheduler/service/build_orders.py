"""Has the native code of requests built by nodes, for callers of ValidateRequest who want to know whether it compiles.

An order is no evaluation: it is not on disk, and it ends when its caller goes away. Shares take turns as they do for
evaluations (start-time fair queueing, by weight). A node gets one order for two builders at most, so that evaluations
always have at least half of them. It cancels its orders when its Work stream ends; they then go to another node.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kerneldyno.rpc import errors
from kerneldyno.rpc.native import may_need_build
from kerneldyno.scheduler.core.core import Core
from kerneldyno.scheduler.core.model import Key, Node, NodeState, Requirement
from kerneldyno.scheduler.service.translate import requirement_of
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1 import fleet_service_pb2 as pb

_log = logging.getLogger(__name__)

#: Most orders that wait for a node, of all shares and of one. A request may have megabytes.
MAX_WAITING, MAX_WAITING_PER_SHARE = 64, 16
#: Nodes that may be lost under one order. Work that ends its nodes must not go round the whole fleet.
MAX_LOSSES = 2
#: Seconds for which a node that has no room gets no orders.
BUSY_SECONDS = 1.0
#: Seconds between two looks at what waits and at nodes that may be lost.
LOOK_SECONDS = 0.5
#: Seconds that a caller is told to wait when too many orders wait.
RETRY_SECONDS = 1.0

Compilation = evaluation_pb2.Compilation


class NodeStream(Protocol):
    """The Work stream of a node that takes build orders."""

    node: Node

    def order_build(self, order: pb.BuildOrder) -> None:
        """Send an order."""

    def cancel_build(self, build_id: str) -> None:
        """Tell the node that nobody waits for an order any more."""


@dataclass(eq=False)
class _Order:
    """One order: it waits, or is at the node of `stream`."""

    build_id: str
    share: str
    request: evaluation_pb2.EvalRequest
    need: Requirement
    done: asyncio.Future[Compilation]
    stream: NodeStream | None = None
    lost: list[str] = field(default_factory=list)
    """Nodes that were lost while they had it."""
    patient_until: float = 0.0
    """Until when it waits although no node could take it now."""


class BuildOrders:
    """The orders of one scheduler. One event loop calls all methods."""

    def __init__(self, core: Core, new_id: Callable[[], str], patience: float) -> None:
        """Create it without orders.

        Args:
            core: The state machine, which knows the nodes.
            new_id: Returns a new unique id.
            patience: Seconds for which an order waits for a node to open its Work stream, if there is no other node.
        """
        self._core = core
        self._new_id = new_id
        self._patience = patience
        self._streams: set[NodeStream] = set()
        self._orders: dict[str, _Order] = {}
        self._waiting: dict[str, deque[_Order]] = {}
        self._starts: dict[str, float] = {}  # by share: virtual start time of its next turn
        self._now = 0.0  # virtual time: start of the last turn
        self._weights: dict[str, float] = {}
        self._held: dict[Node, float] = {}  # nodes without room, and until when

    async def build(self, request: evaluation_pb2.EvalRequest, client_id: str, weight: float) -> Compilation:
        """Have the native code of a request built, and return what became of it.

        Args:
            request: An effective request.
            client_id: The stored client id of the caller, whose share takes the turn.
            weight: How many turns the share gets for each one that a share of weight 1 gets.

        Raises:
            QueueFullError: Too many orders wait.
        """
        if not may_need_build(request):
            text = "the candidate has no native code: another backend than cuda, no kernel_files, no cpp_extension"
            return Compilation(state=Compilation.STATE_NOTHING_TO_COMPILE, detail=text)
        need = requirement_of(request)
        if (nowhere := self._nowhere(need)) is not None and not self._may_connect(need):
            return nowhere
        order = self._add(request, need, Key(client_id, "").share, weight)
        try:
            answer = await self._answer(order)
        finally:
            self._remove(order)
        _log.info(
            "event=build_checked state=%s reason=%s node=%s seconds=%.1f",
            Compilation.State.Name(answer.state),
            Compilation.Reason.Name(answer.reason),
            *(answer.node_id, answer.seconds),
        )
        return answer

    def opened(self, stream: NodeStream) -> None:
        """Record that a node takes orders."""
        self._streams.add(stream)
        self._place()

    def closed(self, stream: NodeStream) -> None:
        """Record that a node's stream has ended, and with it what the node was building."""
        self._streams.discard(stream)
        self._held.pop(stream.node, None)
        for order in list(self._orders.values()):
            if order.stream is stream:
                self._take_back(order)
        self._place()

    def reported(self, stream: NodeStream, report: pb.BuildReport) -> None:
        """Take a node's answer. Answers to orders that are not at this node are ignored."""
        order = self._orders.get(report.build_id)
        if order is None or order.stream is not stream:
            return
        reason = report.compilation.reason
        if reason == Compilation.REASON_BUSY:
            self._held[stream.node] = asyncio.get_running_loop().time() + BUSY_SECONDS
            self._put_back(order)
        elif reason == Compilation.REASON_NODE_LOST:  # it is being stopped
            self._take_back(order)
        elif not order.done.done():
            order.stream = None
            order.done.set_result(report.compilation)
        self._place()

    # Inside

    def _add(self, request: evaluation_pb2.EvalRequest, need: Requirement, share: str, weight: float) -> _Order:
        waiting = sum(map(len, self._waiting.values()))
        if waiting >= MAX_WAITING or len(self._waiting.get(share, ())) >= MAX_WAITING_PER_SHARE:
            text = "too many builds wait, of all clients or of this one"
            raise errors.QueueFullError(text, retry_seconds=RETRY_SECONDS)
        sent = evaluation_pb2.EvalRequest()
        sent.CopyFrom(request)
        sent.ClearField("trace_context")
        loop = asyncio.get_running_loop()
        order = _Order(self._new_id(), share, sent, need, loop.create_future())
        order.patient_until = loop.time() + self._patience
        self._orders[order.build_id] = order
        self._weights[share] = weight
        self._starts[share] = max(self._now, self._starts.get(share, 0.0))  # no credit for the time without orders
        self._waiting.setdefault(share, deque()).append(order)
        self._place()
        return order

    async def _answer(self, order: _Order) -> Compilation:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.wait([order.done], timeout=LOOK_SECONDS)
            if order.done.done():
                return order.done.result()
            if order.stream is not None and order.stream.node.lost:  # its lease has ended with an open stream
                order.stream.cancel_build(order.build_id)
                self._take_back(order)
            self._place()
            if order.stream is not None:
                continue
            if len(order.lost) >= MAX_LOSSES:
                text = f"the nodes that were asked went away before they answered: {', '.join(order.lost)}"
                return _not_compiled(Compilation.REASON_NODE_LOST, text)
            if loop.time() > order.patient_until and (nowhere := self._nowhere(order.need)) is not None:
                if order.lost:
                    text = f"node {order.lost[-1]} went away before it answered; now {nowhere.detail}"
                    return _not_compiled(Compilation.REASON_NODE_LOST, text)
                return nowhere

    def _remove(self, order: _Order) -> None:
        """Forget an order that has its answer, or whose caller went away."""
        del self._orders[order.build_id]
        if order.stream is not None:
            order.stream.cancel_build(order.build_id)
        elif order in (line := self._waiting.get(order.share, deque())):
            line.remove(order)
        if not self._waiting.get(order.share):
            self._waiting.pop(order.share, None)
            if not any(other.share == order.share for other in self._orders.values()):
                self._starts.pop(order.share, None)
                self._weights.pop(order.share, None)
        self._place()

    def _take_back(self, order: _Order) -> None:
        """Take an order from a node that is gone; it waits again, in front."""
        assert order.stream is not None
        order.lost.append(order.stream.node.id)
        order.patient_until = asyncio.get_running_loop().time() + self._patience
        self._put_back(order)

    def _put_back(self, order: _Order) -> None:
        order.stream = None
        if not order.done.done():
            self._waiting.setdefault(order.share, deque()).appendleft(order)

    def _place(self) -> None:
        """Send the orders for which a node has room. The share whose turn starts earliest is the first."""
        placed = True
        while placed:
            placed = False
            for share in sorted(self._waiting, key=lambda name: (self._starts.get(name, 0.0), name)):
                found = self._placeable(share)
                if found is not None:
                    order, stream = found
                    self._waiting[share].remove(order)
                    self._now = max(self._now, self._starts.get(share, 0.0))
                    self._starts[share] = self._now + 1.0 / self._weights.get(share, 1.0)
                    order.stream = stream
                    stream.order_build(pb.BuildOrder(build_id=order.build_id, request=order.request))
                    placed = True
                    break

    def _placeable(self, share: str) -> tuple[_Order, NodeStream] | None:
        """Return the oldest order of a share that some node has room for, and the node's stream."""
        for order in self._waiting[share]:
            if len(order.lost) < MAX_LOSSES and (stream := self._choose(order)) is not None:
                return order, stream
        return None

    def _choose(self, order: _Order) -> NodeStream | None:
        """Return the stream of the node with room that is the least busy; a node that lost the order is the last."""
        now = asyncio.get_running_loop().time()
        at_node: dict[Node, int] = {}
        for other in self._orders.values():
            if other.stream is not None:
                at_node[other.stream.node] = at_node.get(other.stream.node, 0) + 1
        free = [
            stream
            for stream in self._streams
            if _usable(stream.node, order.need)
            and at_node.get(stream.node, 0) < max(1, stream.node.builders // 2)
            and self._held.get(stream.node, 0.0) <= now
        ]

        def load(stream: NodeStream) -> tuple[bool, float, str]:
            node = stream.node
            return node.id in order.lost, (node.building + at_node.get(node, 0)) / node.builders, node.id

        return min(free, key=load, default=None)

    def _may_connect(self, need: Requirement) -> bool:
        """Return True if a node that could build it has no Work stream now: it has just registered, or its stream broke."""
        return any(
            node.offers(need) and node.builders and node.state is NodeState.SERVING and not node.connected
            for node in self._core.fleet.live()
        )

    def _nowhere(self, need: Requirement) -> Compilation | None:
        """Return why no node can build such a request now, or None."""
        matching = [node for node in self._core.fleet.live() if node.offers(need)]
        serving = [node for node in matching if node.connected and node.state is NodeState.SERVING]
        if not matching:
            text = "no registered node has the device, backend, toolkit and labels that the request asks for"
            return _not_compiled(Compilation.REASON_NO_NODE, text)
        if not serving:
            text = f"none of the {len(matching)} nodes that could run the request takes work now"
            return _not_compiled(Compilation.REASON_NO_NODE, text)
        if any(_usable(stream.node, need) for stream in self._streams):
            return None
        if not any(node.builders for node in serving):
            text = "no node that could run the request has a builder that works (--builders): lanes build there"
            return _not_compiled(Compilation.REASON_NO_BUILDER, text)
        text = "the evaluators of the nodes that could run the request are too old to build without an evaluation"
        return _not_compiled(Compilation.REASON_NO_BUILDER, text)


def _usable(node: Node, need: Requirement) -> bool:
    return node.offers(need) and node.connected and node.state is NodeState.SERVING and node.builders > 0


def _not_compiled(reason: Compilation.Reason.ValueType, detail: str) -> Compilation:
    return Compilation(state=Compilation.STATE_NOT_COMPILED, reason=reason, detail=detail)

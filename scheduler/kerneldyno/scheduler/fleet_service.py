"""The servicer of evaluators and operators: translate, call the state machine, translate back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from google.protobuf import timestamp_pb2
from kerneldyno.rpc import errors
from kerneldyno.rpc.validation import Violation
from kerneldyno.scheduler import scope
from kerneldyno.scheduler.desk import Desk
from kerneldyno.scheduler.model import Node
from kerneldyno.scheduler.translate import node_of, report_of
from kerneldyno.scheduler.watch import ClusterWatch
from kerneldyno.scheduler.work import Dispatcher
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceServicer


class FleetServicer(FleetServiceServicer):
    """Nodes report and get their work here; operators look and steer."""

    def __init__(self, desk: Desk, dispatcher: Dispatcher, watch: ClusterWatch) -> None:
        self._desk = desk
        self._core = desk.core
        self._dispatcher = dispatcher
        self._watch = watch

    async def Synchronize(self, request: pb.SynchronizeRequest, context: Any) -> pb.SynchronizeResponse:  # noqa: N802
        """Register a node or renew its lease, and tell it what to stop."""
        report, violations = report_of(request)
        if violations:
            raise errors.InvalidRequestError(violations=violations)
        stale = self._core.synchronize(report)
        if stale is None:
            raise errors.NodeIdInUseError(f"another live process is node {report.node_id!r}; choose another id")
        drained = report.draining or self._core.fleet.nodes[report.node_id].drained
        response = pb.SynchronizeResponse(
            cancel_attempt_tokens=stale,
            desired_state=pb.NODE_STATE_DRAINING if drained else pb.NODE_STATE_SERVING,
        )
        response.next_synchronize.FromNanoseconds(int(self._desk.settings.heartbeat_seconds * 1e9))
        response.lease.FromNanoseconds(int(self._desk.settings.lease_seconds * 1e9))
        return response

    async def Work(self, request_iterator: AsyncIterator[pb.WorkRequest], context: Any) -> None:  # type: ignore[override]  # noqa: N802
        """Serve one node's stream."""
        await self._dispatcher.serve(request_iterator, context)

    async def ListNodes(self, request: pb.ListNodesRequest, context: Any) -> pb.ListNodesResponse:  # noqa: N802
        """List the registered nodes, by id."""
        nodes = self._core.fleet.nodes
        return pb.ListNodesResponse(nodes=[node_of(nodes[node_id]) for node_id in sorted(nodes)])

    async def DrainNode(self, request: pb.DrainNodeRequest, context: Any) -> pb.DrainNodeResponse:  # noqa: N802
        """Give a node nothing more."""
        node = self._find(request.node_id)
        self._core.drain(node.id, True)
        await self._desk.committed()
        return pb.DrainNodeResponse(node=node_of(node))

    async def UndrainNode(self, request: pb.UndrainNodeRequest, context: Any) -> pb.UndrainNodeResponse:  # noqa: N802
        """Give a node work again."""
        node = self._find(request.node_id)
        if node.report.draining and not node.drained:
            raise errors.NodeStoppingError(f"node {node.id!r} is being stopped; start it again")
        self._core.drain(node.id, False)
        await self._desk.committed()
        return pb.UndrainNodeResponse(node=node_of(node))

    async def WatchCluster(  # noqa: N802
        self, request: pb.WatchClusterRequest, context: Any
    ) -> AsyncIterator[pb.WatchClusterResponse]:
        """Stream snapshots."""
        self._desk.require_open()
        only = scope.share()
        async for snapshot in self._watch.snapshots():
            yield _restricted(snapshot, only) if only else snapshot
        raise errors.ShuttingDownError("the scheduler is shutting down", retry_seconds=1.0)

    async def ListQuarantines(  # noqa: N802
        self, request: pb.ListQuarantinesRequest, context: Any
    ) -> pb.ListQuarantinesResponse:
        """List what is kept from running."""
        found = [
            _quarantine(entry.reason, entry.since_wall, entry.until_wall, digest=entry.digest.hex())
            for entry in self._core.quarantine.entries()
        ]
        for node in self._core.fleet.nodes.values():
            if node.quarantined_wall:
                reason = f"{node.failures} attempts in a row failed on it"
                pause = max(0.0, node.held_until - node.heard_at)
                found.append(_quarantine(reason, node.quarantined_wall, node.heard_wall + pause, node_id=node.id))
        return pb.ListQuarantinesResponse(quarantines=sorted(found, key=lambda one: one.start_time.ToNanoseconds()))

    async def ReleaseQuarantine(  # noqa: N802
        self, request: pb.ReleaseQuarantineRequest, context: Any
    ) -> pb.ReleaseQuarantineResponse:
        """Let a node, or some work, run again."""
        if bool(request.node_id) == bool(request.digest):
            raise errors.InvalidRequestError(violations=[Violation("node_id", "give either node_id or digest")])
        if request.node_id:
            node = self._core.fleet.nodes.get(request.node_id)
            if node is None or not node.quarantined_wall:
                raise errors.QuarantineNotFoundError(f"node {request.node_id!r} is not in quarantine")
            self._core.release(node)
        else:
            try:
                digest = bytes.fromhex(request.digest)
            except ValueError:
                raise errors.InvalidRequestError(violations=[Violation("digest", "is not hexadecimal")]) from None
            if not self._core.quarantine.release(digest):
                raise errors.QuarantineNotFoundError(f"work {request.digest!r} is not in quarantine")
            await self._desk.committed()
        return pb.ReleaseQuarantineResponse()

    def _find(self, node_id: str) -> Node:
        node = self._core.fleet.nodes.get(node_id)
        if node is None:
            raise errors.NodeNotFoundError(f"no node {node_id!r} is registered; ListNodes tells which are")
        return node


def _restricted(snapshot: pb.WatchClusterResponse, share: str) -> pb.WatchClusterResponse:
    """Return `snapshot` for one who may see no other share than `share`."""
    if all(one.name == share for one in snapshot.shares):
        return snapshot
    seen = pb.WatchClusterResponse()
    seen.CopyFrom(snapshot)
    del seen.shares[:]
    seen.shares.extend(one for one in snapshot.shares if one.name == share)
    return seen


def _quarantine(reason: str, since: float, until: float, *, node_id: str = "", digest: str = "") -> pb.Quarantine:
    message = pb.Quarantine(node_id=node_id, digest=digest, reason=reason)
    for stamp, wall in ((message.start_time, since), (message.end_time, until)):
        stamp.CopyFrom(timestamp_pb2.Timestamp(seconds=int(wall), nanos=int(wall % 1 * 1e9)))
    return message

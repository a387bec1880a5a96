"""The servicer of FleetService, for nodes and operators. Methods translate, call the state machine, translate back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from google.protobuf import timestamp_pb2

from kerneldyno.rpc import errors
from kerneldyno.rpc.validation import Violation
from kerneldyno.scheduler.core.model import Node
from kerneldyno.scheduler.service import client_scope
from kerneldyno.scheduler.service.admission import Admission
from kerneldyno.scheduler.service.cluster_watch import ClusterWatch
from kerneldyno.scheduler.service.dispatcher import Dispatcher
from kerneldyno.scheduler.service.translate import node_of, report_of
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceServicer


class FleetServicer(FleetServiceServicer):
    """The service by which nodes report and get their work, and operators watch and control the fleet."""

    def __init__(self, admission: Admission, dispatcher: Dispatcher, watch: ClusterWatch) -> None:
        self._admission = admission
        self._core = admission.core
        self._dispatcher = dispatcher
        self._watch = watch

    async def Synchronize(self, request: pb.SynchronizeRequest, context: Any) -> pb.SynchronizeResponse:  # noqa: N802
        """Register a node or renew its lease, and return which attempts it must drop."""
        report, violations = report_of(request)
        if violations:
            raise errors.InvalidRequestError(violations=violations)
        stale = self._core.nodes.synchronize(report)
        if stale is None:
            raise errors.NodeIdInUseError(
                f"another live process uses the node id {report.node_id!r}; choose another id"
            )
        drained = report.draining or self._core.fleet.nodes[report.node_id].drained
        response = pb.SynchronizeResponse(
            cancel_attempt_tokens=stale,
            desired_state=pb.NODE_STATE_DRAINING if drained else pb.NODE_STATE_SERVING,
        )
        response.next_synchronize.FromNanoseconds(int(self._admission.settings.heartbeat_seconds * 1e9))
        response.lease.FromNanoseconds(int(self._admission.settings.lease_seconds * 1e9))
        return response

    async def Work(self, request_iterator: AsyncIterator[pb.WorkRequest], context: Any) -> None:  # type: ignore[override]  # noqa: N802
        """Serve the Work stream of one node."""
        await self._dispatcher.serve(request_iterator, context)

    async def ListNodes(self, request: pb.ListNodesRequest, context: Any) -> pb.ListNodesResponse:  # noqa: N802
        """List the registered nodes, by id."""
        nodes = self._core.fleet.nodes
        return pb.ListNodesResponse(nodes=[node_of(nodes[node_id]) for node_id in sorted(nodes)])

    async def DrainNode(self, request: pb.DrainNodeRequest, context: Any) -> pb.DrainNodeResponse:  # noqa: N802
        """Stop placing attempts on a node."""
        node = self._find(request.node_id)
        self._core.nodes.drain(node.id, True)
        await self._admission.committed()
        return pb.DrainNodeResponse(node=node_of(node))

    async def UndrainNode(self, request: pb.UndrainNodeRequest, context: Any) -> pb.UndrainNodeResponse:  # noqa: N802
        """Place attempts on a node again."""
        node = self._find(request.node_id)
        if node.report.draining and not node.drained:
            raise errors.NodeStoppingError(f"node {node.id!r} is shutting down and takes no more work; start it again")
        self._core.nodes.drain(node.id, False)
        await self._admission.committed()
        return pb.UndrainNodeResponse(node=node_of(node))

    async def WatchCluster(  # noqa: N802
        self, request: pb.WatchClusterRequest, context: Any
    ) -> AsyncIterator[pb.WatchClusterResponse]:
        """Stream snapshots of the cluster."""
        self._admission.require_open()
        only = client_scope.visible_share()
        async for snapshot in self._watch.snapshots():
            yield _restricted(snapshot, only) if only else snapshot
        raise errors.ShuttingDownError("the scheduler is shutting down", retry_seconds=1.0)

    async def ListQuarantines(  # noqa: N802
        self, request: pb.ListQuarantinesRequest, context: Any
    ) -> pb.ListQuarantinesResponse:
        """List the nodes and the work in quarantine."""
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
        """End the quarantine of a node or of some work."""
        if bool(request.node_id) == bool(request.digest):
            raise errors.InvalidRequestError(
                violations=[Violation("node_id", "set either node_id or digest, not both")]
            )
        if request.node_id:
            node = self._core.fleet.nodes.get(request.node_id)
            if node is None or not node.quarantined_wall:
                raise errors.QuarantineNotFoundError(f"node {request.node_id!r} is not in quarantine")
            self._core.nodes.release(node)
        else:
            try:
                digest = bytes.fromhex(request.digest)
            except ValueError:
                raise errors.InvalidRequestError(violations=[Violation("digest", "is not hexadecimal")]) from None
            if not self._core.quarantine.release(digest):
                raise errors.QuarantineNotFoundError(f"work {request.digest!r} is not in quarantine")
            await self._admission.committed()
        return pb.ReleaseQuarantineResponse()

    def _find(self, node_id: str) -> Node:
        node = self._core.fleet.nodes.get(node_id)
        if node is None:
            raise errors.NodeNotFoundError(f"no node {node_id!r} is registered; ListNodes lists those that are")
        return node


def _restricted(snapshot: pb.WatchClusterResponse, share: str) -> pb.WatchClusterResponse:
    """Return `snapshot` for a caller that may see no other share than `share`."""
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

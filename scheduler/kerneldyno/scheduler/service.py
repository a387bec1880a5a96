"""The servicers: translate, call the state machine, translate back. Behaviour lives elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from google.protobuf import duration_pb2
from kerneldyno.rpc import errors, validation
from kerneldyno.rpc.channel import MAX_MESSAGE_BYTES
from kerneldyno.rpc.version import VERSION
from kerneldyno.scheduler.desk import Desk
from kerneldyno.scheduler.model import Evaluation, Key
from kerneldyno.scheduler.once import OnceCall
from kerneldyno.scheduler.stream import EvaluateStream
from kerneldyno.scheduler.translate import evaluation_of, node_of, report_of
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb
from kerneldyno.v1 import scheduler_service_pb2 as pb
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceServicer
from kerneldyno.v1.reward_service_pb2_grpc import RewardServiceServicer
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceServicer

# The generated bases type each handler for gRPC's two runtimes at once; `context` is therefore Any here.


class SchedulerServicer(SchedulerServiceServicer):
    """The front door."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def Evaluate(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[pb.EvaluateRequest], context: Any
    ) -> None:
        """Serve one stream."""
        self._desk.require_open()
        await EvaluateStream(self._desk).run(request_iterator, context)

    async def EvaluateOnce(self, request: pb.EvaluateOnceRequest, context: Any) -> pb.EvaluateOnceResponse:  # noqa: N802
        """Judge one candidate."""
        return pb.EvaluateOnceResponse(result=await OnceCall(self._desk).run(request, context))

    async def GetEvaluation(self, request: pb.GetEvaluationRequest, context: Any) -> pb.GetEvaluationResponse:  # noqa: N802
        """Tell where one evaluation stands."""
        return pb.GetEvaluationResponse(evaluation=evaluation_of(self._find(request.client_id, request.id)))

    async def ListEvaluations(  # noqa: N802
        self, request: pb.ListEvaluationsRequest, context: Any
    ) -> pb.ListEvaluationsResponse:
        """Refuse: not in this release."""
        raise errors.NotInThisReleaseError("history comes with the durable store, in a later release")

    async def CancelEvaluation(  # noqa: N802
        self, request: pb.CancelEvaluationRequest, context: Any
    ) -> pb.CancelEvaluationResponse:
        """Stop one evaluation."""
        evaluation = self._find(request.client_id, request.id)
        if evaluation.verdict is not None:
            raise errors.AlreadyFinishedError(f"evaluation {request.id!r} is finished already")
        self._desk.core.cancel(evaluation)
        return pb.CancelEvaluationResponse()

    async def GetCapabilities(  # noqa: N802
        self, request: pb.SchedulerServiceGetCapabilitiesRequest, context: Any
    ) -> pb.SchedulerServiceGetCapabilitiesResponse:
        """Tell limits and abilities."""
        core = self._desk.core
        nodes = core.fleet.live()
        return pb.SchedulerServiceGetCapabilitiesResponse(
            version=VERSION,
            limits=pb.Limits(
                max_source_bytes=validation.MAX_SOURCE_BYTES,
                max_message_bytes=MAX_MESSAGE_BYTES,
                max_correct_trials=validation.MAX_CORRECT_TRIALS,
                max_perf_trials=validation.MAX_PERF_TRIALS,
                max_warmup=validation.MAX_WARMUP,
                max_stage_timeout=duration_pb2.Duration(seconds=int(validation.MAX_STAGE_SECONDS)),
                max_queued=self._desk.settings.max_queued,
            ),
            backends=core.known_backends() or [],
            toolkits=core.known_toolkits() or [],
            nodes=len(nodes),
            devices=sum(len(node.report.devices) for node in nodes),
            queued=len(core.waiting),
            running=core.running(),
        )

    def _find(self, client_id: str, request_id: str) -> Evaluation:
        evaluation = self._desk.core.get(Key(client_id, request_id))
        if evaluation is None:
            raise errors.EvaluationNotFoundError(f"no evaluation {request_id!r} of client {client_id!r} is known")
        return evaluation


class FleetServicer(FleetServiceServicer):
    """Nodes report here."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def Synchronize(self, request: fleet_pb.SynchronizeRequest, context: Any) -> fleet_pb.SynchronizeResponse:  # noqa: N802
        """Register a node or renew its lease, and tell it what to stop."""
        report, violations = report_of(request)
        if violations:
            raise errors.InvalidRequestError(violations=violations)
        stale = self._desk.core.synchronize(report)
        if stale is None:
            raise errors.NodeIdInUseError(f"another live process is node {report.node_id!r}; choose another id")
        response = fleet_pb.SynchronizeResponse(
            cancel_attempt_tokens=stale,
            desired_state=fleet_pb.NODE_STATE_DRAINING if report.draining else fleet_pb.NODE_STATE_SERVING,
        )
        response.next_synchronize.FromNanoseconds(int(self._desk.settings.heartbeat_seconds * 1e9))
        response.lease.FromNanoseconds(int(self._desk.settings.lease_seconds * 1e9))
        return response

    async def ListNodes(self, request: fleet_pb.ListNodesRequest, context: Any) -> fleet_pb.ListNodesResponse:  # noqa: N802
        """List the registered nodes, by id."""
        nodes = self._desk.core.fleet.nodes
        return fleet_pb.ListNodesResponse(nodes=[node_of(nodes[node_id]) for node_id in sorted(nodes)])

    async def DrainNode(self, request: fleet_pb.DrainNodeRequest, context: Any) -> fleet_pb.DrainNodeResponse:  # noqa: N802
        """Refuse: not in this release."""
        raise errors.NotInThisReleaseError(
            "fleet operations come in a later release; stop the evaluator with SIGTERM, which drains it"
        )

    async def UndrainNode(self, request: fleet_pb.UndrainNodeRequest, context: Any) -> fleet_pb.UndrainNodeResponse:  # noqa: N802
        """Refuse: not in this release."""
        raise errors.NotInThisReleaseError("fleet operations come in a later release")

    async def WatchCluster(  # type: ignore[override]  # noqa: N802
        self, request: fleet_pb.WatchClusterRequest, context: Any
    ) -> None:
        """Refuse: not in this release."""
        raise errors.NotInThisReleaseError("fleet operations come in a later release; poll ListNodes until then")


class RewardServicer(RewardServiceServicer):
    """Rewards, once they come."""

    async def StreamRewards(self, request_iterator: AsyncIterator[Any], context: Any) -> None:  # type: ignore[override]  # noqa: N802
        """Refuse: not in this release."""
        raise errors.NotInThisReleaseError("rewards come in a later release; use SchedulerService.Evaluate until then")

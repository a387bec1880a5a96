"""The servicers: translate, call the state machine, translate back. Behaviour lives elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf import duration_pb2
from kerneldyno.rpc import errors, validation
from kerneldyno.rpc.channel import MAX_MESSAGE_BYTES
from kerneldyno.rpc.validation import Violation
from kerneldyno.rpc.version import VERSION
from kerneldyno.scheduler import history, scope
from kerneldyno.scheduler.desk import Desk
from kerneldyno.scheduler.model import Evaluation, Key
from kerneldyno.scheduler.once import OnceCall
from kerneldyno.scheduler.rewards import RewardStream
from kerneldyno.scheduler.stream import EvaluateStream
from kerneldyno.scheduler.translate import evaluation_of
from kerneldyno.v1 import scheduler_service_pb2 as pb
from kerneldyno.v1.reward_service_pb2 import StreamRewardsRequest
from kerneldyno.v1.reward_service_pb2_grpc import RewardServiceServicer
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceServicer

#: Ids in one CancelEvaluations.
MAX_CANCEL_IDS = 10_000

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
        await EvaluateStream(self._desk).run(request_iterator, context.write)

    async def EvaluateOnce(self, request: pb.EvaluateOnceRequest, context: Any) -> pb.EvaluateOnceResponse:  # noqa: N802
        """Judge one candidate."""
        return pb.EvaluateOnceResponse(result=await OnceCall(self._desk).run(request, context))

    async def GetEvaluation(self, request: pb.GetEvaluationRequest, context: Any) -> pb.GetEvaluationResponse:  # noqa: N802
        """Tell where one evaluation stands."""
        evaluation = await self._find(request.client_id, request.id)
        return pb.GetEvaluationResponse(evaluation=evaluation_of(evaluation))

    async def ListEvaluations(  # noqa: N802
        self, request: pb.ListEvaluationsRequest, context: Any
    ) -> pb.ListEvaluationsResponse:
        """Page through evaluations, newest first."""
        page = history.read_request(request)
        await self._desk.committed()
        # It may have to look through many: not in the event loop.
        found = await asyncio.to_thread(history.look_up, self._desk.store, page)
        return history.answer(self._desk.core, found, page)

    async def CancelEvaluation(  # noqa: N802
        self, request: pb.CancelEvaluationRequest, context: Any
    ) -> pb.CancelEvaluationResponse:
        """Stop one evaluation."""
        evaluation = await self._find(request.client_id, request.id)
        if not self._desk.core.cancel(evaluation):
            raise errors.AlreadyFinishedError(f"evaluation {request.id!r} is finished already")
        await self._desk.committed()
        return pb.CancelEvaluationResponse()

    async def CancelEvaluations(  # noqa: N802
        self, request: pb.CancelEvaluationsRequest, context: Any
    ) -> pb.CancelEvaluationsResponse:
        """Stop many evaluations of one client."""
        if bool(request.ids) == request.all:
            raise errors.InvalidRequestError(violations=[Violation("ids", "give either ids or all")])
        if len(request.ids) > MAX_CANCEL_IDS:
            text = f"has {len(request.ids)} ids; at most {MAX_CANCEL_IDS} a call are allowed"
            raise errors.InvalidRequestError(violations=[Violation("ids", text)])
        core = self._desk.core
        named = set(request.ids)
        unfinished = [one for name in scope.named(request.client_id) for one in core.clients.unfinished(name)]
        chosen = [one for one in unfinished if request.all or one.key.id in named]
        cancelled = sum(core.cancel(one) for one in chosen)
        await self._desk.committed()
        return pb.CancelEvaluationsResponse(cancelled=cancelled)

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
                max_queued_per_client=core.clients.quota(""),
            ),
            backends=core.fleet.known_backends() or [],
            toolkits=core.fleet.known_toolkits() or [],
            nodes=len(nodes),
            devices=sum(len(node.report.devices) for node in nodes),
            queued=core.waiting_evaluations(),
            running=core.running(),
            store=self._desk.store.name,
            journal_stalled=self._desk.journal.stalled or "",
        )

    async def _find(self, client_id: str, request_id: str) -> Evaluation:
        found = (self._desk.core.get(Key(name, request_id)) for name in scope.named(client_id))
        evaluation = next((one for one in found if one is not None), None)
        if evaluation is None:
            raise errors.EvaluationNotFoundError(f"no evaluation {request_id!r} of client {client_id!r} is known")
        if not evaluation.settled:
            await self._desk.committed()  # what was shown must not be taken back by a crash
        return evaluation


class RewardServicer(RewardServiceServicer):
    """Verdicts as rewards."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def StreamRewards(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[StreamRewardsRequest], context: Any
    ) -> None:
        """Serve one stream."""
        self._desk.require_open()
        await RewardStream(self._desk).run(request_iterator, context.write)

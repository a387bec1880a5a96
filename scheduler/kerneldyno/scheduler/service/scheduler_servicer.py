"""The servicers of SchedulerService and RewardService. Methods translate, call the state machine, translate back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf import duration_pb2

from kerneldyno.rpc import auth, errors, identity, validation
from kerneldyno.rpc.channel import MAX_MESSAGE_BYTES
from kerneldyno.rpc.roles import Role
from kerneldyno.rpc.validation import Violation
from kerneldyno.rpc.version import VERSION
from kerneldyno.scheduler.core.model import Evaluation, Key
from kerneldyno.scheduler.service import client_scope, evaluation_pages
from kerneldyno.scheduler.service.admission import Admission
from kerneldyno.scheduler.service.build_check import BuildCheckCall
from kerneldyno.scheduler.service.build_orders import BuildOrders
from kerneldyno.scheduler.service.evaluate_once import EvaluateOnceCall
from kerneldyno.scheduler.service.evaluate_stream import EvaluateStream
from kerneldyno.scheduler.service.reward_stream import RewardStream
from kerneldyno.scheduler.service.translate import evaluation_of, requirement_of
from kerneldyno.v1 import scheduler_service_pb2 as pb
from kerneldyno.v1.evaluation_pb2 import FieldViolation
from kerneldyno.v1.reward_service_pb2 import StreamRewardsRequest
from kerneldyno.v1.reward_service_pb2_grpc import RewardServiceServicer
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceServicer

#: Maximum number of ids in one CancelEvaluations.
MAX_CANCEL_IDS = 10_000

# `context` is Any here because the generated base classes type each handler for both of gRPC's runtimes at once.


class SchedulerServicer(SchedulerServiceServicer):
    """The service of clients."""

    def __init__(self, admission: Admission, build_orders: BuildOrders) -> None:
        self._admission = admission
        self._build_orders = build_orders

    async def Evaluate(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[pb.EvaluateRequest], context: Any
    ) -> None:
        """Serve one stream."""
        self._admission.require_open()
        await EvaluateStream(self._admission).run(request_iterator, context.write)

    async def EvaluateOnce(self, request: pb.EvaluateOnceRequest, context: Any) -> pb.EvaluateOnceResponse:  # noqa: N802
        """Evaluate one candidate and return its result."""
        return pb.EvaluateOnceResponse(result=await EvaluateOnceCall(self._admission).run(request, context))

    async def GetEvaluation(self, request: pb.GetEvaluationRequest, context: Any) -> pb.GetEvaluationResponse:  # noqa: N802
        """Return the state of one evaluation."""
        evaluation = await self._find(request.client_id, request.id)
        return pb.GetEvaluationResponse(evaluation=evaluation_of(evaluation))

    async def ListEvaluations(  # noqa: N802
        self, request: pb.ListEvaluationsRequest, context: Any
    ) -> pb.ListEvaluationsResponse:
        """Return one page of evaluations, newest first."""
        page = evaluation_pages.parse(request)
        await self._admission.committed()
        # In a thread, because it may have to read many rows.
        found = await asyncio.to_thread(evaluation_pages.find, self._admission.store, page)
        return evaluation_pages.response(self._admission.core, found, page)

    async def CancelEvaluation(  # noqa: N802
        self, request: pb.CancelEvaluationRequest, context: Any
    ) -> pb.CancelEvaluationResponse:
        """Cancel one evaluation."""
        evaluation = await self._find(request.client_id, request.id)
        if not self._admission.core.requests.cancel(evaluation):
            raise errors.AlreadyFinishedError(f"evaluation {request.id!r} has finished already")
        await self._admission.committed()
        return pb.CancelEvaluationResponse()

    async def CancelEvaluations(  # noqa: N802
        self, request: pb.CancelEvaluationsRequest, context: Any
    ) -> pb.CancelEvaluationsResponse:
        """Cancel many evaluations of one client."""
        if bool(request.ids) == request.all:
            raise errors.InvalidRequestError(violations=[Violation("ids", "set either ids or all, not both")])
        if len(request.ids) > MAX_CANCEL_IDS:
            text = f"has {len(request.ids)} ids; at most {MAX_CANCEL_IDS} are allowed in one call"
            raise errors.InvalidRequestError(violations=[Violation("ids", text)])
        core = self._admission.core
        named = set(request.ids)
        unfinished = [
            one for name in client_scope.possible_client_ids(request.client_id) for one in core.clients.unfinished(name)
        ]
        chosen = [one for one in unfinished if request.all or one.key.id in named]
        cancelled = sum(core.requests.cancel(one) for one in chosen)
        await self._admission.committed()
        return pb.CancelEvaluationsResponse(cancelled=cancelled)

    async def GetCapabilities(  # noqa: N802
        self, request: pb.SchedulerServiceGetCapabilitiesRequest, context: Any
    ) -> pb.SchedulerServiceGetCapabilitiesResponse:
        """Return the limits and abilities of this scheduler and its fleet."""
        core = self._admission.core
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
                max_queued=self._admission.settings.max_queued,
                max_queued_per_client=core.clients.quota(""),
            ),
            backends=core.fleet.offers.backends() or [],
            toolkits=core.fleet.offers.toolkits() or [],
            nodes=len(nodes),
            devices=sum(len(node.report.devices) for node in nodes),
            queued=core.evaluations.waiting(),
            running=len(core.attempts),
            store=self._admission.store.name,
            journal_stalled=self._admission.journal.stalled or "",
        )

    async def ValidateRequest(  # noqa: N802
        self, request: pb.ValidateRequestRequest, context: Any
    ) -> pb.ValidateRequestResponse:
        """Say what is wrong with a request, without accepting it, and have its native code built if it asks for that."""
        if request.compile:
            auth.require(Role.SUBMIT, "have native code compiled")  # it costs a node's time, and runs the candidate
        call = BuildCheckCall(self._admission, self._build_orders)
        if violations := self._admission.check(request.request, id_required=False):
            found = [FieldViolation(field=each.field, description=each.description) for each in violations]
            compilation = call.invalid(violations) if request.compile else None
            return pb.ValidateRequestResponse(violations=found, compilation=compilation)
        full = validation.effective(request.request)
        return pb.ValidateRequestResponse(
            effective=full,
            digest=identity.digest(full).hex(),
            runnable=self._admission.core.fleet.offers.match(requirement_of(full)),
            compilation=await call.run(full, request.client_id) if request.compile else None,
        )

    async def _find(self, client_id: str, request_id: str) -> Evaluation:
        found = (
            self._admission.core.requests.get(Key(name, request_id))
            for name in client_scope.possible_client_ids(client_id)
        )
        evaluation = next((one for one in found if one is not None), None)
        if evaluation is None:
            raise errors.EvaluationNotFoundError(
                f"client {client_id!r} has no evaluation {request_id!r}, or it is no longer kept"
            )
        if not evaluation.settled:
            await self._admission.committed()  # a crash must not take back what was returned
        return evaluation


class RewardServicer(RewardServiceServicer):
    """The service of trainers: verdicts as rewards."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def StreamRewards(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[StreamRewardsRequest], context: Any
    ) -> None:
        """Serve one stream."""
        self._admission.require_open()
        await RewardStream(self._admission).run(request_iterator, context.write)

"""Serve SchedulerService for the fake scheduler: streams and single calls, lists, cancellations.

FakeScheduler adds it to its server. Requests are checked as the real scheduler checks them, unless the test says
otherwise; limits of messages and pages are those that clients depend on.
"""

# ruff: noqa: N802  (methods are named by the contract)
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from kerneldyno.rpc.errors import AlreadyFinishedError, EvaluationNotFoundError, InvalidRequestError
from kerneldyno.rpc.identity import digest
from kerneldyno.rpc.validation import Violation, effective, validate
from kerneldyno.rpc.version import VERSION
from kerneldyno.testing import script
from kerneldyno.testing.fake_queue import Context, FakeEvaluation, FakeQueue, Send, refuse
from kerneldyno.v1.evaluation_pb2 import Compilation, EvalRequest, EvalResult, FieldViolation
from kerneldyno.v1.scheduler_service_pb2 import (
    CancelEvaluationRequest,
    CancelEvaluationResponse,
    CancelEvaluationsRequest,
    CancelEvaluationsResponse,
    EvaluateOnceRequest,
    EvaluateOnceResponse,
    EvaluateRequest,
    EvaluateResponse,
    Evaluation,
    GetEvaluationRequest,
    GetEvaluationResponse,
    ListEvaluationsRequest,
    ListEvaluationsResponse,
    SchedulerServiceGetCapabilitiesRequest,
    SchedulerServiceGetCapabilitiesResponse,
    ValidateRequestRequest,
    ValidateRequestResponse,
)
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceServicer

_MAX_PAGE, _DEFAULT_PAGE = 1000, 100
_MAX_CANCEL_IDS = 10_000


class FakeSchedulerService(SchedulerServiceServicer):
    """SchedulerService over a FakeQueue.

    Args:
        queue: the evaluations and faults.
        checks: whether malformed requests get the outcome INVALID; otherwise they are judged.
        backends, toolkits: what GetCapabilities returns.
    """

    def __init__(self, queue: FakeQueue, *, checks: bool, backends: list[str], toolkits: list[str]) -> None:
        self._queue = queue
        self._checks = checks
        self._capabilities = SchedulerServiceGetCapabilitiesResponse(
            version=VERSION, backends=backends, toolkits=toolkits, nodes=1, devices=1
        )
        self.messages: list[EvaluateRequest] = []
        self.attached: list[str] = []
        self.lists: list[ListEvaluationsRequest] = []

    async def Evaluate(
        self, request_iterator: AsyncIterator[EvaluateRequest], context: Context
    ) -> AsyncIterator[EvaluateResponse]:
        async def read(send: Send) -> None:
            await _EvaluateStream(self, self._queue, send).read(request_iterator)

        def is_result(response: EvaluateResponse) -> bool:
            return response.HasField("result")

        async for response in self._queue.serve(context, read, is_result):
            yield response

    async def EvaluateOnce(self, request: EvaluateOnceRequest, context: Context) -> EvaluateOnceResponse:
        await self._queue.refuse_if_told(context)
        if violations := self.violations(request.request):
            await refuse(context, InvalidRequestError(violations=violations))
        evaluation = self._queue.submit(request.client_id, request.request)
        return EvaluateOnceResponse(result=await asyncio.shield(evaluation.task))

    async def GetEvaluation(self, request: GetEvaluationRequest, context: Context) -> GetEvaluationResponse:
        return GetEvaluationResponse(evaluation=(await self._find(request, context)).now(full=True))

    async def ListEvaluations(self, request: ListEvaluationsRequest, context: Context) -> ListEvaluationsResponse:
        self.lists.append(ListEvaluationsRequest.FromString(request.SerializeToString()))
        if request.page_size > _MAX_PAGE or (request.page_token and not request.page_token.isdigit()):
            violation = Violation("page_size", f"must be 1 to {_MAX_PAGE}")
            await refuse(context, InvalidRequestError(violations=[violation]))
        found = [evaluation.now(full=request.full_results) for evaluation in reversed(self._queue.work.values())]
        found = [evaluation for evaluation in found if _matches(evaluation, request)]
        first = int(request.page_token or 0)
        last = first + (request.page_size or _DEFAULT_PAGE)
        next_page = str(last) if last < len(found) else ""
        return ListEvaluationsResponse(evaluations=found[first:last], next_page_token=next_page)

    async def CancelEvaluation(self, request: CancelEvaluationRequest, context: Context) -> CancelEvaluationResponse:
        await self._find(request, context)
        if not self._queue.cancel(request.client_id, request.id):
            await refuse(context, AlreadyFinishedError(f"{request.id!r} is finished"))
        return CancelEvaluationResponse()

    async def CancelEvaluations(self, request: CancelEvaluationsRequest, context: Context) -> CancelEvaluationsResponse:
        if bool(request.ids) == request.all or len(request.ids) > _MAX_CANCEL_IDS:
            await refuse(context, InvalidRequestError(violations=[Violation("ids", "give ids or all")]))
        asked = [
            (client_id, id)
            for client_id, id in self._queue.work
            if client_id == request.client_id and (request.all or id in request.ids)
        ]
        return CancelEvaluationsResponse(cancelled=sum(self._queue.cancel(*key) for key in asked))

    async def GetCapabilities(
        self, request: SchedulerServiceGetCapabilitiesRequest, context: Context
    ) -> SchedulerServiceGetCapabilitiesResponse:
        return self._capabilities

    async def ValidateRequest(self, request: ValidateRequestRequest, context: Context) -> ValidateRequestResponse:
        found = self.violations(request.request)
        if found:
            told = [FieldViolation(field=each.field, description=each.description) for each in found]
            answer = ValidateRequestResponse(violations=told)
            if request.compile:
                answer.compilation.state = Compilation.STATE_NOT_COMPILED
                answer.compilation.reason = Compilation.REASON_INVALID_REQUEST
            return answer
        full = effective(request.request)
        answer = ValidateRequestResponse(effective=full, digest=digest(full).hex(), runnable=True)
        if request.compile:
            answer.compilation.CopyFrom(script.compilation(script.read(full)))
        return answer

    def violations(self, request: EvalRequest) -> list[Violation]:
        """Return what the real scheduler would call malformed in `request`."""
        return validate(request, profiling=True, id_required=False) if self._checks else []

    async def _find(self, request: GetEvaluationRequest | CancelEvaluationRequest, context: Context) -> FakeEvaluation:
        evaluation = self._queue.work.get((request.client_id, request.id))
        if evaluation is None:
            await refuse(context, EvaluationNotFoundError(f"no evaluation has the id {request.id!r}"))
            raise AssertionError("the call has ended")
        return evaluation


class _EvaluateStream:
    """One Evaluate stream: reads messages, and sends results as they come."""

    def __init__(self, service: FakeSchedulerService, queue: FakeQueue, send: Send) -> None:
        self._service = service
        self._queue = queue
        self._send = send
        self._owed = 0
        self._answered = asyncio.Event()

    async def read(self, messages: AsyncIterator[EvaluateRequest]) -> None:
        """Read to the client's last message, and wait until everything is answered."""
        async for message in messages:
            self._service.messages.append(message)
            self._attach(message)
            for request in message.requests:
                await self._queue.room.wait()
                self._submit(message.client_id, request)
            if message.requests:
                accepted = EvaluateResponse.Accepted(ids=[request.id for request in message.requests])
                self._send(EvaluateResponse(accepted=accepted))
            for id in message.cancel_ids:
                self._queue.cancel(message.client_id, id)
        while self._owed:
            self._answered.clear()
            await self._answered.wait()

    def _attach(self, message: EvaluateRequest) -> None:
        self._service.attached.extend(message.attach_ids)
        unknown = [id for id in message.attach_ids if (message.client_id, id) not in self._queue.work]
        if unknown:
            self._send(EvaluateResponse(unknown=EvaluateResponse.Unknown(ids=unknown)))
        for id in message.attach_ids:
            if id not in unknown:
                self._watch(self._queue.work[message.client_id, id])

    def _submit(self, client_id: str, request: EvalRequest) -> None:
        if violations := self._service.violations(request):
            self._send(EvaluateResponse(result=invalid_result(request.id, violations)))
        else:
            self._watch(self._queue.submit(client_id, request))

    def _watch(self, evaluation: FakeEvaluation) -> None:
        def finished(task: asyncio.Task[EvalResult]) -> None:
            if task.cancelled():
                return
            error = task.exception()
            self._send(error if error is not None else EvaluateResponse(result=task.result()))
            self._owed -= 1
            self._answered.set()

        self._owed += 1
        evaluation.task.add_done_callback(finished)


def invalid_result(id: str, violations: list[Violation]) -> EvalResult:
    """Return the result of a malformed request."""
    result = EvalResult(id=id, outcome=EvalResult.INVALID)
    for violation in violations:
        result.invalid.violations.add(field=violation.field, description=violation.description)
    result.message = "; ".join(f"{violation.field}: {violation.description}" for violation in violations)
    return result


def _matches(evaluation: Evaluation, request: ListEvaluationsRequest) -> bool:
    done, accepted = evaluation.HasField("result"), evaluation.accept_time.ToNanoseconds()
    return (
        request.client_id in ("", evaluation.client_id)
        and (not request.outcomes or (done and evaluation.result.outcome in request.outcomes))
        and not (request.unfinished and done)
        and request.labels.items() <= evaluation.labels.items()
        and (not request.HasField("accepted_after") or accepted >= request.accepted_after.ToNanoseconds())
        and (not request.HasField("accepted_before") or accepted < request.accepted_before.ToNanoseconds())
        and request.digest in ("", evaluation.digest)
    )

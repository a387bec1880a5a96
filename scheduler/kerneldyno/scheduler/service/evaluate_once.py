"""One EvaluateOnce call: a single evaluation, which is cancelled when its caller goes away."""

from __future__ import annotations

import asyncio

import grpc

from kerneldyno.rpc import errors
from kerneldyno.rpc.interceptor import deadline_passed
from kerneldyno.rpc.validation import Violation
from kerneldyno.scheduler.core import unmatched
from kerneldyno.scheduler.core.model import ClientKind, Evaluation, SubmitStatus
from kerneldyno.scheduler.service import client_scope
from kerneldyno.scheduler.service.admission import Admission
from kerneldyno.scheduler.service.evaluate_stream import MAX_CLIENT_ID_CHARS
from kerneldyno.scheduler.service.translate import result_of, submit_request_of
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1.scheduler_service_pb2 import EvaluateOnceRequest, EvaluateOnceResponse

#: Seconds that a caller is told to wait when the queue is full.
RETRY_SECONDS = 1.0

Context = grpc.aio.ServicerContext[EvaluateOnceRequest, EvaluateOnceResponse]


class EvaluateOnceCall:
    """One call of EvaluateOnce."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._closing = False
        self._done: asyncio.Future[Evaluation] = asyncio.get_running_loop().create_future()

    async def run(self, request: EvaluateOnceRequest, context: Context) -> evaluation_pb2.EvalResult:
        """Submit the request, wait for its verdict, and return the result. Cancel the evaluation if the caller goes away.

        Raises:
            KernelDynoError: The request was refused, or the scheduler is shutting down.
        """
        evaluation = self._admit(request.client_id, request.request)
        requests = self._admission.core.requests
        self._admission.open_calls.add(self)
        requests.call_opened(evaluation.key.client_id)
        requests.watch(evaluation, self)
        late = False
        try:
            return _answer(await self._done)
        except asyncio.CancelledError:
            late = deadline_passed(context)
            raise
        finally:
            self._admission.call_ended(self)
            requests.unwatch(evaluation, self)
            requests.call_closed(evaluation.key.client_id)
            if evaluation.verdict is None and not evaluation.watchers and not self._closing:
                if late:
                    requests.cancel(evaluation, "DEADLINE_EXCEEDED", "the deadline of the call passed")
                else:
                    requests.cancel(evaluation, detail="the caller went away")

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Answer the call."""
        if not self._done.done():
            self._done.set_result(evaluation)

    def drain(self) -> None:
        """Do nothing: the call has no further requests."""

    def journal_stalled(self, why: str) -> None:
        """Do nothing: the call has only one answer to send, and waits for it."""

    def close(self) -> None:
        """End the call without a result. The evaluation is kept, and a caller that retries with its id finds it."""
        self._closing = True
        if not self._done.done():
            self._done.set_exception(errors.ShuttingDownError("the scheduler is shutting down", retry_seconds=1.0))

    def _admit(self, client_id: str, request: evaluation_pb2.EvalRequest) -> Evaluation:
        admission = self._admission
        admission.require_open()
        admission.metrics.requested(ClientKind.ONCE)
        request.id = request.id or admission.new_id()
        violations = admission.check(request)
        if len(client_id) > MAX_CLIENT_ID_CHARS:
            violations.append(Violation("client_id", f"has more than {MAX_CLIENT_ID_CHARS} characters"))
        if violations:
            raise errors.InvalidRequestError(violations=violations)
        stored_id = client_scope.stored_client_id(client_id)
        submitted = submit_request_of(request, stored_id, ClientKind.ONCE)
        if (why := admission.core.capabilities.never_runs(submitted.spec.requirement)) is not None:
            raise errors.NoMatchingDeviceError(why)
        admission.require_journal()
        admission.apply_token_limits(stored_id)
        status, evaluation = admission.submit(submitted)
        if status is SubmitStatus.REUSED:
            raise errors.IdReusedError(f"id {request.id!r} was used for a different request; choose another id")
        if evaluation is None:
            text = "the queue, or the client's share of it, is full"
            raise errors.QueueFullError(text, retry_seconds=RETRY_SECONDS)
        return evaluation


def _answer(evaluation: Evaluation) -> evaluation_pb2.EvalResult:
    """Return the result.

    Raises:
        NoMatchingDeviceError: No node could run the work, whether that was known at once or only later.
    """
    failure = evaluation.verdict.failure if evaluation.verdict is not None else None
    if failure is not None and failure.cause == unmatched.CAUSE:
        raise errors.NoMatchingDeviceError(failure.detail)
    return result_of(evaluation)

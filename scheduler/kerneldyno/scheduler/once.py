"""One EvaluateOnce call: a single evaluation that lives no longer than somebody waits for it."""

from __future__ import annotations

import asyncio

import grpc
from kerneldyno.rpc import errors
from kerneldyno.rpc.interceptor import deadline_passed
from kerneldyno.rpc.validation import Violation
from kerneldyno.scheduler import scope, unmatched
from kerneldyno.scheduler.desk import Desk
from kerneldyno.scheduler.model import ClientKind, Evaluation, Submission
from kerneldyno.scheduler.stream import MAX_CLIENT_ID_CHARS
from kerneldyno.scheduler.translate import order_of, result_of
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1.scheduler_service_pb2 import EvaluateOnceRequest, EvaluateOnceResponse

#: What a caller that finds the line full is told to wait, in seconds.
RETRY_SECONDS = 1.0

Context = grpc.aio.ServicerContext[EvaluateOnceRequest, EvaluateOnceResponse]


class OnceCall:
    """One call of EvaluateOnce."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._closing = False
        self._done: asyncio.Future[Evaluation] = asyncio.get_running_loop().create_future()

    async def run(self, request: EvaluateOnceRequest, context: Context) -> evaluation_pb2.EvalResult:
        """Submit, wait, and return the result; a caller that goes away takes its evaluation with it."""
        evaluation = self._admit(request.client_id, request.request)
        core = self._desk.core
        self._desk.customers.add(self)
        core.arrive(evaluation.key.client_id)
        core.watch(evaluation, self)
        late = False
        try:
            return _answer(await self._done)
        except asyncio.CancelledError:
            late = deadline_passed(context)
            raise
        finally:
            self._desk.leave(self)
            core.unwatch(evaluation, self)
            core.depart(evaluation.key.client_id)
            if evaluation.verdict is None and not evaluation.watchers and not self._closing:
                if late:
                    core.cancel(evaluation, "DEADLINE_EXCEEDED", "the deadline of the call passed")
                else:
                    core.cancel(evaluation, detail="the caller went away")

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Answer the call."""
        if not self._done.done():
            self._done.set_result(evaluation)

    def drain(self) -> None:
        """Nothing more comes from this call anyway."""

    def journal_stalled(self, why: str) -> None:
        """A single call has but one answer to give: it waits."""

    def close(self) -> None:
        """End the call: its evaluation will not be finished here. A caller that comes again with its id finds it."""
        self._closing = True
        if not self._done.done():
            self._done.set_exception(errors.ShuttingDownError("the scheduler is shutting down", retry_seconds=1.0))

    def _admit(self, client_id: str, request: evaluation_pb2.EvalRequest) -> Evaluation:
        desk = self._desk
        desk.require_open()
        desk.metrics.requested(ClientKind.ONCE)
        request.id = request.id or desk.new_id()
        violations = desk.check(request)
        if len(client_id) > MAX_CLIENT_ID_CHARS:
            violations.append(Violation("client_id", f"has more than {MAX_CLIENT_ID_CHARS} characters"))
        if violations:
            raise errors.InvalidRequestError(violations=violations)
        order = order_of(request)
        if (why := desk.core.never_runs(order.spec.requirement)) is not None:
            raise errors.NoMatchingDeviceError(why)
        desk.require_journal()
        owned = scope.own(client_id)
        desk.know(owned)
        submission, evaluation = desk.submit(owned, order, ClientKind.ONCE)
        if submission is Submission.REUSED:
            raise errors.IdReusedError(f"id {request.id!r} was used for a different request; choose another id")
        if evaluation is None:
            text = "the queue, or the client's share of it, is full"
            raise errors.QueueFullError(text, retry_seconds=RETRY_SECONDS)
        return evaluation


def _answer(evaluation: Evaluation) -> evaluation_pb2.EvalResult:
    """Return the result. Raises NoMatchingDeviceError for what no node could run, whenever that was found out."""
    failure = evaluation.verdict.failure if evaluation.verdict is not None else None
    if failure is not None and failure.cause == unmatched.CAUSE:
        raise errors.NoMatchingDeviceError(failure.detail)
    return result_of(evaluation)

"""One Evaluate stream: a reader that submits requests, and a writer that sends acceptances and results.

"Accepted" is sent once the acceptance is on disk, and a result once the result is on disk. The reader pauses while the queue
is full, and while the client is too far behind with reading results, so a stream needs a bounded amount of memory. A
cancellation sent in the stream waits behind earlier requests that wait for room; the unary CancelEvaluation does not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import grpc

from kerneldyno.rpc import auth, errors
from kerneldyno.rpc.validation import Violation
from kerneldyno.scheduler.core.model import ClientKind, Evaluation, Key, SubmitStatus
from kerneldyno.scheduler.failpoints import failpoint
from kerneldyno.scheduler.service import client_scope
from kerneldyno.scheduler.service.admission import Admission
from kerneldyno.scheduler.service.translate import invalid_result, result_of, submit_request_of
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1.scheduler_service_pb2 import EvaluateRequest, EvaluateResponse

MAX_CLIENT_ID_CHARS = 100
MAX_REQUESTS = 1_000
#: Maximum number of requests of one stream that are not on disk yet.
MAX_UNCOMMITTED = 128
MAX_BATCH_BYTES = 12 * 1024 * 1024
#: Number of requests or ids that are handled before other calls get a turn of the event loop.
_TURN = 16

Write = Callable[[EvaluateResponse], Awaitable[None]]
Check = Callable[[evaluation_pb2.EvalRequest], list[Violation]]
REUSED = Violation("id", "was used for a different request of this client; choose another id")


class EvaluateStream:
    """One call of Evaluate."""

    def __init__(self, admission: Admission, check: Check | None = None, kind: ClientKind = ClientKind.STREAM) -> None:
        """Create the stream.

        Args:
            admission: Leads to the state machine.
            check: Returns what is invalid in a request; None for `admission.check`.
            kind: The call that the metrics count its requests under.
        """
        self._admission = admission
        self._kind = kind
        self._check_request = check or admission.check
        self._core = admission.core
        self._given_client_id = ""  # as the client sent it
        self._client_id = ""  # as it is stored
        self._unsent: set[Evaluation] = set()  # watched, their result is not sent yet
        self._uncommitted = 0  # accepted evaluations that are not on disk yet
        self._journal_kept_up = asyncio.Event()
        self._journal_kept_up.set()
        self._ended = False
        self._outbox: deque[EvaluateResponse | Evaluation] = deque()
        self._outbox_bytes = 0
        self._changed = asyncio.Event()  # there is something to send, or the stream is ending
        self._sent = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._half_closed = False
        self._closing = False
        self._error: errors.KernelDynoError | None = None

    async def run(self, requests: AsyncIterator[EvaluateRequest], write: Write) -> None:
        """Serve the stream to its end. `write` sends one response, and waits while the client does not read."""
        self._admission.open_calls.add(self)
        if self._admission.journal.stalled is not None:
            self.journal_stalled(self._admission.journal.stalled)
        try:
            async with asyncio.TaskGroup() as group:
                self._reading = group.create_task(self._read(requests))
                await self._write(write)
                self._reading.cancel()
        finally:
            self._ended = True
            self._admission.call_ended(self)
            for evaluation in self._unsent:
                self._core.requests.unwatch(evaluation, self)
            if self._client_id:
                self._core.requests.call_closed(self._client_id)
        if self._error is not None:
            raise self._error
        if self._closing:
            raise errors.ShuttingDownError(
                "the scheduler is shutting down; attach again to the next one", retry_seconds=1.0
            )

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Queue the result for sending."""
        self._outbox_bytes += _size(evaluation)
        self._push(evaluation)

    def drain(self) -> None:
        """Stop reading requests. Results are still sent."""
        if self._reading is not None:
            self._reading.cancel()

    def journal_stalled(self, why: str) -> None:
        """Tell the client why nothing is sent, or with an empty `why` that it goes on. Only the last of several is sent."""
        if self._outbox and isinstance(last := self._outbox[-1], EvaluateResponse) and last.HasField("journal_stalled"):
            last.journal_stalled = why
        else:
            self._push(EvaluateResponse(journal_stalled=why))

    def close(self) -> None:
        """End the stream once all finished results were sent."""
        self._closing = True
        self._changed.set()

    # Requests from the client

    async def _read(self, requests: AsyncIterator[EvaluateRequest]) -> None:
        try:
            async for message in requests:
                self._check(message)
                await auth.pace(len(message.requests))
                for index, cancel_id in enumerate(message.cancel_ids):
                    if index % _TURN == 0:
                        await asyncio.sleep(0)
                    if (evaluation := self._core.requests.get(Key(self._client_id, cancel_id))) is not None:
                        self._core.requests.cancel(evaluation)
                await self._attach(list(message.attach_ids))
                for index, request in enumerate(message.requests):
                    if index % _TURN == 0:
                        await asyncio.sleep(0)
                    await self._submit(request)
                await self._wait_for_client()
            self._half_closed = True
        except errors.KernelDynoError as error:
            self._error = error
        finally:
            self._changed.set()

    def _check(self, message: EvaluateRequest) -> None:
        if not self._client_id:
            if not 1 <= len(message.client_id) <= MAX_CLIENT_ID_CHARS:
                raise errors.InvalidRequestError(violations=[Violation("client_id", "must have 1 to 100 characters")])
            self._given_client_id = message.client_id
            self._client_id = client_scope.stored_client_id(message.client_id)
            self._core.requests.call_opened(self._client_id)
            self._admission.apply_token_limits(self._client_id)
        if message.client_id not in ("", self._given_client_id):
            raise errors.InvalidRequestError(violations=[Violation("client_id", "must not change within a stream")])
        if len(message.requests) > MAX_REQUESTS:
            text = f"has {len(message.requests)} requests; at most {MAX_REQUESTS} are allowed in one message"
            raise errors.InvalidRequestError(violations=[Violation("requests", text)])
        if (size := message.ByteSize()) > MAX_BATCH_BYTES:
            text = f"the message has {size} bytes; at most {MAX_BATCH_BYTES} (12 MiB) are allowed"
            raise errors.InvalidRequestError(violations=[Violation("requests", text)])

    async def _attach(self, ids: list[str]) -> None:
        unknown = EvaluateResponse()
        for index, one in enumerate(ids):
            if index % _TURN == 0:
                await asyncio.sleep(0)
            await self._wait_for_client()  # each may load a result of any size into memory
            evaluation = self._core.requests.get(Key(self._client_id, one))
            if evaluation is None:
                unknown.unknown.ids.append(one)
            else:
                self._watch(evaluation)
        if unknown.unknown.ids:
            self._push(unknown)

    async def _submit(self, request: evaluation_pb2.EvalRequest) -> None:
        self._admission.metrics.requested(self._kind)
        await self._journal_kept_up.wait()
        violations = self._check_request(request)
        submitted = submit_request_of(request, self._client_id, self._kind) if not violations else None
        while submitted is not None:
            status, evaluation = self._admission.submit(submitted)
            if evaluation is not None:
                self._uncommitted += 1
                # The records of other calls must not wait behind a flood from this one.
                if self._uncommitted >= MAX_UNCOMMITTED:
                    self._journal_kept_up.clear()
                self._admission.journal.after_commit(partial(self._committed, evaluation))
                return
            if status is SubmitStatus.REUSED:
                violations, submitted = [REUSED], None
            else:
                await self._admission.wait_for_room(self._client_id)
        self._admission.metrics.refused()
        self._push(EvaluateResponse(result=invalid_result(request.id, violations)))

    def _committed(self, evaluation: Evaluation) -> None:
        """Tell the client that the evaluation is accepted: it is on disk and survives a crash of this process."""
        self._uncommitted -= 1
        if self._uncommitted < MAX_UNCOMMITTED:
            self._journal_kept_up.set()
        if not self._ended:
            self._send_accepted(evaluation.key.id)
            self._watch(evaluation)

    def _watch(self, evaluation: Evaluation) -> None:
        if evaluation not in self._unsent:
            self._unsent.add(evaluation)
            self._core.requests.watch(evaluation, self)

    async def _wait_for_client(self) -> None:
        """Wait while the client is too far behind with reading results."""
        settings = self._admission.settings
        while len(self._outbox) >= settings.max_unsent or self._outbox_bytes >= settings.max_unsent_bytes:
            self._sent.clear()
            await self._sent.wait()

    # Responses to the client

    def _send_accepted(self, request_id: str) -> None:
        last = self._outbox[-1] if self._outbox else None
        if isinstance(last, EvaluateResponse) and last.HasField("accepted"):
            last.accepted.ids.append(request_id)
        else:
            self._push(EvaluateResponse(accepted=EvaluateResponse.Accepted(ids=[request_id])))

    def _push(self, item: EvaluateResponse | Evaluation) -> None:
        self._outbox.append(item)
        self._changed.set()

    async def _write(self, write: Write) -> None:
        while True:
            while self._outbox:
                item = self._outbox.popleft()
                if isinstance(item, EvaluateResponse):
                    await self._send(write, item)
                else:
                    await self._send(write, EvaluateResponse(result=result_of(item)))
                    self._outbox_bytes -= _size(item)
                    self._unsent.discard(item)
                    self._core.requests.unwatch(item, self)
                self._sent.set()
            if (
                self._closing
                or self._error is not None
                or (self._half_closed and not self._unsent and not self._uncommitted)
            ):
                return
            self._changed.clear()
            await self._changed.wait()

    async def _send(self, write: Write, response: EvaluateResponse) -> None:
        kind = response.WhichOneof("event")
        if kind in ("accepted", "result"):
            failpoint(f"before_{kind}_sent")
        try:
            await write(response)
        except grpc.aio.InternalError:  # the connection is lost, and this call is about to be cancelled
            raise asyncio.CancelledError from None
        if kind in ("accepted", "result"):
            failpoint(f"after_{kind}_sent")


def _size(evaluation: Evaluation) -> int:
    return len(evaluation.verdict.payload) if evaluation.verdict is not None else 0

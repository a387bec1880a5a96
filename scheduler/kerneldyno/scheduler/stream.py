"""One Evaluate stream: a reader that takes requests in, and a writer that sends what became of them.

A request is accepted once it is on disk, and its result is sent once that is. The stream holds references to the results
that it still has to send. The reader stops while the waiting line is full, and while the client is too far behind with
reading, so a client that does neither costs a bounded amount of memory. Cancellations in the same stream wait behind
requests that wait for room; the unary CancelEvaluation does not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import grpc
from kerneldyno.rpc import auth, errors
from kerneldyno.rpc.validation import Violation
from kerneldyno.scheduler import scope
from kerneldyno.scheduler.desk import Desk
from kerneldyno.scheduler.failpoints import failpoint
from kerneldyno.scheduler.model import ClientKind, Evaluation, Key, Submission
from kerneldyno.scheduler.translate import invalid_result, order_of, result_of
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1.scheduler_service_pb2 import EvaluateRequest, EvaluateResponse

MAX_CLIENT_ID_CHARS = 100
MAX_REQUESTS = 1_000
#: Requests of one stream that are on their way to the disk.
MAX_UNCOMMITTED = 128
MAX_BATCH_BYTES = 12 * 1024 * 1024
#: Requests, or ids, taken in before other calls get a turn of the event loop.
_TURN = 16

Write = Callable[[EvaluateResponse], Awaitable[None]]
Check = Callable[[evaluation_pb2.EvalRequest], list[Violation]]
REUSED = Violation("id", "was used for a different request of this client; choose another id")


class EvaluateStream:
    """One call of Evaluate. `check` says what is wrong with a request; by default the desk does."""

    def __init__(self, desk: Desk, check: Check | None = None, kind: ClientKind = ClientKind.STREAM) -> None:
        self._desk = desk
        self._kind = kind
        self._check_request = check or desk.check
        self._core = desk.core
        self._named = ""  # as the client calls itself
        self._client_id = ""
        self._owed: set[Evaluation] = set()
        self._uncommitted = 0  # accepted, and not on disk yet
        self._journal_kept_up = asyncio.Event()
        self._journal_kept_up.set()
        self._over = False
        self._out: deque[EvaluateResponse | Evaluation] = deque()
        self._out_bytes = 0
        self._changed = asyncio.Event()  # there is something to send, or the end is near
        self._sent = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._half_closed = False
        self._closing = False
        self._error: errors.KernelDynoError | None = None

    async def run(self, requests: AsyncIterator[EvaluateRequest], write: Write) -> None:
        """Serve the stream to its end. `write` sends one response down, and waits while the client does not read."""
        self._desk.customers.add(self)
        if self._desk.journal.stalled is not None:
            self.journal_stalled(self._desk.journal.stalled)
        try:
            async with asyncio.TaskGroup() as group:
                self._reading = group.create_task(self._read(requests))
                await self._write(write)
                self._reading.cancel()
        finally:
            self._over = True
            self._desk.leave(self)
            for evaluation in self._owed:
                self._core.unwatch(evaluation, self)
            if self._client_id:
                self._core.depart(self._client_id)
        if self._error is not None:
            raise self._error
        if self._closing:
            raise errors.ShuttingDownError("the scheduler is shutting down; re-attach", retry_seconds=1.0)

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Send its result in its turn."""
        self._out_bytes += _size(evaluation)
        self._push(evaluation)

    def drain(self) -> None:
        """Read no more; results are still sent."""
        if self._reading is not None:
            self._reading.cancel()

    def journal_stalled(self, why: str) -> None:
        """Tell the client why it hears nothing, or that it will again. Only the last of several is sent."""
        if self._out and isinstance(last := self._out[-1], EvaluateResponse) and last.HasField("journal_stalled"):
            last.journal_stalled = why
        else:
            self._push(EvaluateResponse(journal_stalled=why))

    def close(self) -> None:
        """End once what is finished was sent."""
        self._closing = True
        self._changed.set()

    # Up

    async def _read(self, requests: AsyncIterator[EvaluateRequest]) -> None:
        try:
            async for message in requests:
                self._check(message)
                await auth.pace(len(message.requests))
                for index, cancel_id in enumerate(message.cancel_ids):
                    if index % _TURN == 0:
                        await asyncio.sleep(0)
                    if (evaluation := self._core.get(Key(self._client_id, cancel_id))) is not None:
                        self._core.cancel(evaluation)
                await self._attach(list(message.attach_ids))
                for index, request in enumerate(message.requests):
                    if index % _TURN == 0:
                        await asyncio.sleep(0)
                    await self._take(request)
                await self._caught_up()
            self._half_closed = True
        except errors.KernelDynoError as error:
            self._error = error
        finally:
            self._changed.set()

    def _check(self, message: EvaluateRequest) -> None:
        if not self._client_id:
            if not 1 <= len(message.client_id) <= MAX_CLIENT_ID_CHARS:
                raise errors.InvalidRequestError(violations=[Violation("client_id", "must have 1 to 100 characters")])
            self._named = message.client_id
            self._client_id = scope.own(message.client_id)
            self._core.arrive(self._client_id)
            self._desk.know(self._client_id)
        if message.client_id not in ("", self._named):
            raise errors.InvalidRequestError(violations=[Violation("client_id", "must not change within a stream")])
        if len(message.requests) > MAX_REQUESTS:
            text = f"has {len(message.requests)} requests; at most {MAX_REQUESTS} a message are allowed"
            raise errors.InvalidRequestError(violations=[Violation("requests", text)])
        if (size := message.ByteSize()) > MAX_BATCH_BYTES:
            text = f"the message has {size} bytes; at most {MAX_BATCH_BYTES} (12 MiB) are allowed"
            raise errors.InvalidRequestError(violations=[Violation("requests", text)])

    async def _attach(self, ids: list[str]) -> None:
        unknown = EvaluateResponse()
        for index, one in enumerate(ids):
            if index % _TURN == 0:
                await asyncio.sleep(0)
            await self._caught_up()  # each may bring a result of any size back into memory
            evaluation = self._core.get(Key(self._client_id, one))
            if evaluation is None:
                unknown.unknown.ids.append(one)
            else:
                self._watch(evaluation)
        if unknown.unknown.ids:
            self._push(unknown)

    async def _take(self, request: evaluation_pb2.EvalRequest) -> None:
        self._desk.metrics.requested(self._kind)
        await self._journal_kept_up.wait()
        violations = self._check_request(request)
        order = order_of(request) if not violations else None
        while order is not None:
            submission, evaluation = self._desk.submit(self._client_id, order, self._kind)
            if evaluation is not None:
                self._uncommitted += 1
                if self._uncommitted >= MAX_UNCOMMITTED:  # others' records shall not wait behind a flood of this one's
                    self._journal_kept_up.clear()
                self._desk.journal.after_commit(partial(self._committed, evaluation))
                return
            if submission is Submission.REUSED:
                violations, order = [REUSED], None
            else:
                await self._desk.room(self._client_id)
        self._desk.metrics.refused()
        self._push(EvaluateResponse(result=invalid_result(request.id, violations)))

    def _committed(self, evaluation: Evaluation) -> None:
        """Take responsibility: the evaluation survives whatever happens to this process."""
        self._uncommitted -= 1
        if self._uncommitted < MAX_UNCOMMITTED:
            self._journal_kept_up.set()
        if not self._over:
            self._accept(evaluation.key.id)
            self._watch(evaluation)

    def _watch(self, evaluation: Evaluation) -> None:
        if evaluation not in self._owed:
            self._owed.add(evaluation)
            self._core.watch(evaluation, self)

    async def _caught_up(self) -> None:
        """Wait while the client is too far behind with reading."""
        settings = self._desk.settings
        while len(self._out) >= settings.max_unsent or self._out_bytes >= settings.max_unsent_bytes:
            self._sent.clear()
            await self._sent.wait()

    # Down

    def _accept(self, request_id: str) -> None:
        last = self._out[-1] if self._out else None
        if isinstance(last, EvaluateResponse) and last.HasField("accepted"):
            last.accepted.ids.append(request_id)
        else:
            self._push(EvaluateResponse(accepted=EvaluateResponse.Accepted(ids=[request_id])))

    def _push(self, item: EvaluateResponse | Evaluation) -> None:
        self._out.append(item)
        self._changed.set()

    async def _write(self, write: Write) -> None:
        while True:
            while self._out:
                item = self._out.popleft()
                if isinstance(item, EvaluateResponse):
                    await self._send(write, item)
                else:
                    await self._send(write, EvaluateResponse(result=result_of(item)))
                    self._out_bytes -= _size(item)
                    self._owed.discard(item)
                    self._core.unwatch(item, self)
                self._sent.set()
            if (
                self._closing
                or self._error is not None
                or (self._half_closed and not self._owed and not self._uncommitted)
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
        except grpc.aio.InternalError:  # the connection is gone, and the cancellation of this call is on its way
            raise asyncio.CancelledError from None
        if kind in ("accepted", "result"):
            failpoint(f"after_{kind}_sent")


def _size(evaluation: Evaluation) -> int:
    return len(evaluation.verdict.payload) if evaluation.verdict is not None else 0

"""Hold what the fake scheduler knows: its evaluations, its open streams, and the faults that a test asks for.

Nothing is queued in truth: an evaluation begins when it arrives, and the test's judge decides how it ends. The services
(fake_scheduler_service.py, fake_reward_service.py) submit to it; fake_scheduler.py adds the socket.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio

from kerneldyno.rpc.errors import KernelDynoError, to_status
from kerneldyno.rpc.identity import digest
from kerneldyno.rpc.validation import effective
from kerneldyno.testing import results, script
from kerneldyno.v1.evaluation_pb2 import SPEEDUP_KIND_DEVICE, STAGE_DONE, STAGE_QUEUED, EvalRequest, EvalResult
from kerneldyno.v1.scheduler_service_pb2 import Evaluation

#: Decides how an evaluation ends. An awaitable answer takes the time that the evaluation takes.
Judge = Callable[[EvalRequest], EvalResult | Awaitable[EvalResult]]
#: Client id and request id.
Key = tuple[str, str]
Context = grpc.aio.ServicerContext[Any, Any]
#: Sends one response on a stream; an exception ends the stream.
Send = Callable[[Any], None]
_Response = TypeVar("_Response")


async def follow_script(request: EvalRequest) -> EvalResult:
    """Judge as the candidate's source says (script.py): CORRECT at once, with speedup 1, if it says nothing."""
    words = script.read(request)
    await asyncio.sleep(float(words.get("sleep", "0")))
    return script.result(words, script.outcome_of(words), speedup=1.0)


@dataclass(slots=True, eq=False)
class FakeEvaluation:
    """One evaluation: the task whose result is its result, and how it is listed."""

    task: asyncio.Task[EvalResult]
    judging: asyncio.Task[EvalResult]
    listed: Evaluation

    def now(self, *, full: bool) -> Evaluation:
        """Return the evaluation as it is now; without `full`, its result has no logs."""
        evaluation = Evaluation()
        evaluation.CopyFrom(self.listed)
        evaluation.stage = STAGE_DONE if self.task.done() else STAGE_QUEUED
        if self.task.done():
            evaluation.result.CopyFrom(self.task.result())
            if not full:
                evaluation.result.ClearField("logs")
        return evaluation


class FakeQueue:
    """The evaluations of a fake scheduler, its streams, and its faults."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        """Decides how each evaluation ends."""
        self.work: dict[Key, FakeEvaluation] = {}
        """All evaluations, in the order of arrival."""
        self.runs: list[str] = []
        """Ids of the evaluations that began. An id that is sent again does not begin again."""
        self.cancelled: list[str] = []
        """Ids of the evaluations that were cancelled while they ran."""
        self.delay_seconds = 0.0
        """Every evaluation takes so much longer than the judge says."""
        self.room = asyncio.Event()
        """Cleared, the queue is full: streams of Evaluate are not read further."""
        self.room.set()
        self.refuse: KernelDynoError | grpc.StatusCode | None = None
        """Refuses every new stream and every EvaluateOnce."""
        self.refusals: deque[KernelDynoError] = deque()
        """Refuse the next streams and EvaluateOnce calls, one error each."""
        self.breaks_after: int | None = None
        """Every stream breaks (UNAVAILABLE) after so many results."""
        self.opened: list[float] = []
        """When streams were opened, by the event loop's clock, also those that were refused."""
        self._streams: set[asyncio.Task[Any]] = set()

    # Evaluations

    def submit(self, client_id: str, request: EvalRequest) -> FakeEvaluation:
        """Begin an evaluation, or return the one that this client submitted with the same id."""
        key = (client_id, request.id)
        if key not in self.work:
            self.runs.append(request.id)
            listed = Evaluation(id=request.id, client_id=client_id, labels=request.labels)
            listed.digest = digest(effective(request)).hex()
            listed.accept_time.GetCurrentTime()
            judging = asyncio.create_task(self._judge(request))
            task = asyncio.create_task(_finish(request, judging))
            self.work[key] = FakeEvaluation(task, judging, listed)
        return self.work[key]

    def cancel(self, client_id: str, id: str) -> bool:
        """Cancel an evaluation that runs; it ends with INFRASTRUCTURE_ERROR. Return whether there was one."""
        evaluation = self.work.get((client_id, id))
        if evaluation is None or evaluation.task.done():
            return False
        self.cancelled.append(id)
        evaluation.judging.cancel()
        return True

    def forget(self) -> None:
        """Lose all evaluations, as a scheduler that crashes without a store."""
        for evaluation in self.work.values():
            evaluation.task.cancel()
            evaluation.judging.cancel()
        self.work.clear()

    async def _judge(self, request: EvalRequest) -> EvalResult:
        await asyncio.sleep(self.delay_seconds)
        answer = self.judge(request)
        return await answer if inspect.isawaitable(answer) else answer

    # Streams

    async def serve(
        self, context: Context, read: Callable[[Send], Awaitable[None]], is_result: Callable[[_Response], bool]
    ) -> AsyncIterator[_Response]:
        """Serve one stream, with the faults that the test asks for.

        Args:
            context: the call's.
            read: reads the client's messages to their end and sends every response; it returns when the stream ends.
            is_result: whether a response is a result, for `breaks_after`.
        """
        self.opened.append(asyncio.get_running_loop().time())
        await self.refuse_if_told(context)
        out: asyncio.Queue[_Response | Exception | None] = asyncio.Queue()
        reader = asyncio.create_task(_read_to_the_end(read, out))
        self._streams.add(reader)
        sent = 0
        try:
            while (response := await out.get()) is not None:
                if isinstance(response, KernelDynoError):
                    await refuse(context, response)
                if isinstance(response, Exception):
                    await context.abort(grpc.StatusCode.UNKNOWN, f"the test's judge failed: {response!r}")
                yield response
                sent += is_result(response)
                if sent == self.breaks_after:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "broken after a number of results")
            if reader.cancelled():
                await context.abort(grpc.StatusCode.UNAVAILABLE, "broken by the test")
        finally:
            reader.cancel()
            self._streams.discard(reader)

    async def break_streams(self) -> None:
        """Break every open stream, as a network does; evaluations continue."""
        for stream in self._streams:
            stream.cancel()
        await asyncio.sleep(0)

    async def refuse_if_told(self, context: Context) -> None:
        """End the call with the error that the test asks for, if any."""
        if self.refusals:
            await refuse(context, self.refusals.popleft())
        if isinstance(self.refuse, grpc.StatusCode):
            await context.abort(self.refuse, "refused by the test")
        if self.refuse is not None:
            await refuse(context, self.refuse)


async def refuse(context: Context, error: KernelDynoError) -> None:
    """End a call with `error`."""
    await context.abort_with_status(to_status(error))


async def _read_to_the_end(read: Callable[[Send], Awaitable[None]], out: asyncio.Queue[Any]) -> None:
    try:
        await read(out.put_nowait)
    except Exception as error:
        out.put_nowait(error)
    finally:
        out.put_nowait(None)


async def _finish(request: EvalRequest, judging: asyncio.Task[EvalResult]) -> EvalResult:
    """Return the judge's result as the client gets it."""
    await asyncio.wait([judging])
    result = EvalResult()
    if judging.cancelled():
        result.CopyFrom(results.infrastructure_error("CANCELLED", retryable=False))
    else:
        result.CopyFrom(judging.result())
    result.id = request.id
    result.labels.update(request.labels)
    result.digest = digest(effective(request)).hex()
    result.speedup_kind = result.speedup_kind or request.speedup_kind or SPEEDUP_KIND_DEVICE
    result.finish_time.GetCurrentTime()
    return result

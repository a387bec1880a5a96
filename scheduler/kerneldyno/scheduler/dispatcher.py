"""Runs attempts: one task per attempt, one channel per node.

A broken stream is not a lost attempt: the dispatcher re-attaches by `WatchAttempt` for as long as the node's lease
lives. What an answer of a node means for the evaluation is decided here; what follows from it, in `core`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import grpc
from kerneldyno.rpc import channel, errors
from kerneldyno.scheduler.core import Core, Observer
from kerneldyno.scheduler.model import Attempt, Spec, Verdict
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.translate import invalid_result, verdict_of
from kerneldyno.v1 import evaluator_service_pb2 as pb
from kerneldyno.v1.evaluator_service_pb2_grpc import EvaluatorServiceStub

if TYPE_CHECKING:  # the generated module has it for type checkers only
    from kerneldyno.v1.evaluator_service_pb2_grpc import EvaluatorServiceAsyncStub

log = logging.getLogger(__name__)

#: Seconds an attempt may take beyond its own stage limits: a cold reference, the timing lease, a judge's restart.
ATTEMPT_ALLOWANCE_SECONDS = 900.0
#: Seconds between tries to re-attach, and the limit of a CancelAttempt.
REATTACH_PAUSE_SECONDS = 0.25
CANCEL_TIMEOUT_SECONDS = 5.0
#: Seconds without new work for a node that is full and did not say for how long, or that is shutting down.
FULL_HOLD_SECONDS = 1.0
DRAINING_HOLD_SECONDS = 5.0

Events = (
    grpc.aio.UnaryStreamCall[pb.EvaluatorServiceEvaluateRequest, pb.EvaluatorServiceEvaluateResponse]
    | grpc.aio.UnaryStreamCall[pb.WatchAttemptRequest, pb.WatchAttemptResponse]
)


class Dispatcher(Observer):
    """Carries out what the state machine decides."""

    def __init__(self, core: Core, settings: Settings) -> None:
        self._core = core
        # A node that is gone loses its lease first; after twice that long, one that cannot be reached still reports.
        self._reattach_seconds = 2 * settings.lease_seconds
        self._wake = asyncio.Event()
        self._tasks: dict[str, tuple[Attempt, asyncio.Task[None]]] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Place and run attempts until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._group:
                while True:
                    await self._wake.wait()
                    self._wake.clear()
                    for attempt in self._core.place():
                        self._start(self._group, attempt)
                    await self._close_unused()
        finally:
            for one in self._channels.values():
                await one.close()

    async def kill_all(self) -> None:
        """Tell the nodes to kill every attempt that still runs."""
        attempts = [attempt for attempt, _ in self._tasks.values()]
        await asyncio.gather(*map(self._kill, attempts), return_exceptions=True)

    def work_changed(self) -> None:
        """Look for places at the next turn of the loop."""
        self._wake.set()

    def attempt_dropped(self, attempt: Attempt, *, node_lost: bool) -> None:
        """Kill a cancelled attempt. One of a lost node is left alone: should its result still come, it is refused."""
        _, task = self._tasks.get(attempt.token, (attempt, None))
        if task is not None and not node_lost and self._group is not None:
            task.cancel()
            self._group.create_task(self._kill(attempt))

    def _start(self, group: asyncio.TaskGroup, attempt: Attempt) -> None:
        spec = attempt.evaluation.spec  # taken now: the evaluation may be over before the task's first step
        assert spec is not None, "an attempt that was just placed has its request"
        task = group.create_task(self._run(attempt, spec))
        self._tasks[attempt.token] = (attempt, task)
        task.add_done_callback(lambda _: self._tasks.pop(attempt.token))

    async def _run(self, attempt: Attempt, spec: Spec) -> None:
        token = attempt.token
        limit = spec.limit_seconds + ATTEMPT_ALLOWANCE_SECONDS
        try:
            async with asyncio.timeout(limit):
                verdict = await self._follow(attempt, spec.payload)
        except TimeoutError:
            await self._kill(attempt)
            verdict = Verdict.failed("ATTEMPT_OVERDUE", f"no result within {limit:g} s", retryable=True)
        except Exception:
            log.exception("event=attempt_broken attempt=%s node=%s", token, attempt.node.id)
            await self._kill(attempt)
            verdict = Verdict.failed("SCHEDULER_ERROR", "the scheduler failed to follow the attempt", retryable=True)
        if verdict is not None:
            self._core.complete(token, verdict)

    async def _follow(self, attempt: Attempt, payload: bytes) -> Verdict | None:
        """Start the attempt and return how it ended; None when its node would not take it, or it no longer matters."""
        request = pb.EvaluatorServiceEvaluateRequest(attempt_token=attempt.token)
        request.request.ParseFromString(payload)
        stub = self._stub(attempt)
        try:
            verdict = await self._read(attempt, stub.Evaluate(request))
            if verdict is not None:
                return verdict
        except grpc.aio.AioRpcError as error:
            log.info("event=attempt_stream_broken attempt=%s code=%s", attempt.token, error.code().name)
            match errors.from_rpc_error(error):
                case errors.LanesFullError(retry_seconds=hold):
                    self._core.refuse(attempt.token, hold or FULL_HOLD_SECONDS)
                    return None
                case errors.ShuttingDownError():
                    self._core.refuse(attempt.token, DRAINING_HOLD_SECONDS)
                    return None
                case errors.InvalidRequestError(violations=violations):
                    return verdict_of(invalid_result(attempt.evaluation.key.id, violations))
            if error.code() in _REFUSALS:
                detail = f"node {attempt.node.id} refused: {error.code().name} {error.details()}"
                return Verdict.failed("NODE_REFUSED", detail, retryable=True)
        return await self._reattach(attempt, stub)

    async def _reattach(self, attempt: Attempt, stub: EvaluatorServiceAsyncStub) -> Verdict | None:
        loop = asyncio.get_running_loop()
        node = attempt.node
        request = pb.WatchAttemptRequest(attempt_token=attempt.token)
        until = loop.time() + self._reattach_seconds
        while self._core.is_current(attempt.token):
            try:
                verdict = await self._read(attempt, stub.WatchAttempt(request))
                if verdict is not None:
                    return verdict
                until = loop.time() + self._reattach_seconds
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    return Verdict.failed("ATTEMPT_LOST", f"node {node.id} does not know the attempt", retryable=True)
                if loop.time() > until:
                    await self._kill(attempt)
                    detail = f"node {node.id} reports, but cannot be reached at {node.report.address}"
                    return Verdict.failed("NODE_UNREACHABLE", detail, retryable=True)
            await asyncio.sleep(REATTACH_PAUSE_SECONDS)
        return None

    async def _read(self, attempt: Attempt, events: Events) -> Verdict | None:
        """Follow a stream of snapshots to its result; None when it ends without one."""
        try:
            async for response in events:
                event = response.event
                self._core.progress(attempt.token, event.stage, event.device)
                if event.HasField("result"):
                    return verdict_of(event.result)
            return None
        finally:
            events.cancel()

    async def _kill(self, attempt: Attempt) -> None:
        """Have the node kill the attempt; should it not hear, its next report tells it."""
        request = pb.CancelAttemptRequest(attempt_token=attempt.token)
        try:
            await self._stub(attempt).CancelAttempt(request, timeout=CANCEL_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as error:
            log.info("event=cancel_not_heard attempt=%s code=%s", attempt.token, error.code().name)

    def _stub(self, attempt: Attempt) -> EvaluatorServiceAsyncStub:
        address = attempt.node.report.address
        if address not in self._channels:
            options = channel.client_options(own_connection=True)
            self._channels[address] = grpc.aio.insecure_channel(channel.target(address), options=options)
        return EvaluatorServiceStub(self._channels[address])

    async def _close_unused(self) -> None:
        used = {attempt.node.report.address for attempt, _ in self._tasks.values()}
        used |= {node.report.address for node in self._core.fleet.nodes.values()}
        for address in self._channels.keys() - used:
            await self._channels.pop(address).close()


#: Answers that say no rather than that the connection broke.
_REFUSALS = {
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
}

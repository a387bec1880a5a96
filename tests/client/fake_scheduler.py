"""A small real scheduler for the client's tests: gRPC on a real socket, verdicts by rule instead of by running code.

A request's kernel_code says what becomes of it: "sleep SECONDS" takes that long, "hang" never ends, anything else is
CORRECT at once. Streams can be broken and everything forgotten, as a crash would do it. Not a model of queueing.
"""

# ruff: noqa: N802  (methods are named by the contract)
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from kerneldyno.rpc.channel import server_options
from kerneldyno.rpc.errors import (
    AlreadyFinishedError,
    EvaluationNotFoundError,
    InvalidRequestError,
    KernelDynoError,
    to_status,
)
from kerneldyno.rpc.validation import Violation
from kerneldyno.v1 import evaluation_pb2 as ev
from kerneldyno.v1 import evaluator_service_pb2 as evs
from kerneldyno.v1 import evaluator_service_pb2_grpc as evs_grpc
from kerneldyno.v1 import fleet_service_pb2 as fleet
from kerneldyno.v1 import fleet_service_pb2_grpc as fleet_grpc
from kerneldyno.v1 import scheduler_service_pb2 as sched
from kerneldyno.v1 import scheduler_service_pb2_grpc as sched_grpc

Key = tuple[str, str]  # client id, request id


@dataclass(slots=True)
class Work:
    """One evaluation: the task that will give its result, and the event that cancels it."""

    task: asyncio.Task[ev.EvalResult]
    told_to_stop: asyncio.Event


class FakeNode(evs_grpc.EvaluatorServiceServicer):
    """A node that can only describe itself."""

    async def GetCapabilities(self, request: Any, context: Any) -> Any:
        layer = evs.SandboxLayer(name="pid_namespace", active=True, detail="other processes are out of sight")
        return evs.EvaluatorServiceGetCapabilitiesResponse(node_id="node-a", sandbox_layers=[layer])


class FakeScheduler(sched_grpc.SchedulerServiceServicer, fleet_grpc.FleetServiceServicer):
    """Use as `async with FakeScheduler() as scheduler`; `address` is where it listens, also after restart()."""

    def __init__(self) -> None:
        self.work: dict[Key, Work] = {}
        self.runs: list[str] = []  # ids, once for each time that one was started
        self.cancelled: list[str] = []
        self.attached: list[str] = []
        self.messages: list[sched.EvaluateRequest] = []
        self.room = asyncio.Event()  # clear: the queue is full, and streams are read no further
        self.room.set()
        self.refuse: grpc.StatusCode | None = None  # streams are answered with this status
        self.breaks_after: int | None = None  # each stream is broken after so many results
        self._streams: set[asyncio.Task[Any]] = set()
        self._server: grpc.aio.Server | None = None
        self._port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def __aenter__(self) -> FakeScheduler:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
        self.forget()

    async def start(self) -> None:
        self._server = grpc.aio.server(options=server_options())
        sched_grpc.add_SchedulerServiceServicer_to_server(self, self._server)
        fleet_grpc.add_FleetServiceServicer_to_server(self, self._server)
        evs_grpc.add_EvaluatorServiceServicer_to_server(FakeNode(), self._server)
        self._port = self._server.add_insecure_port(self.address)
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def forget(self) -> None:
        for work in self.work.values():
            work.task.cancel()
        self.work.clear()

    async def break_streams(self) -> None:
        for stream in self._streams:
            stream.cancel()
        await asyncio.sleep(0)

    # SchedulerService

    async def Evaluate(
        self, request_iterator: AsyncIterator[sched.EvaluateRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[sched.EvaluateResponse]:
        if self.refuse is not None:
            await context.abort(self.refuse, "refused by the test")
        out: asyncio.Queue[sched.EvaluateResponse | None] = asyncio.Queue()
        owed: set[Key] = set()
        reader = asyncio.create_task(self._read(request_iterator, out, owed))
        self._streams.add(reader)
        results = 0
        try:
            while (response := await out.get()) is not None:
                yield response
                results += response.WhichOneof("event") == "result"
                if results == self.breaks_after:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "broken after a number of results")
            if reader.cancelled():
                await context.abort(grpc.StatusCode.UNAVAILABLE, "broken by the test")
        finally:
            reader.cancel()
            self._streams.discard(reader)

    async def _read(
        self,
        messages: AsyncIterator[sched.EvaluateRequest],
        out: asyncio.Queue[sched.EvaluateResponse | None],
        owed: set[Key],
    ) -> None:
        done = asyncio.Event()

        def watch(key: Key) -> None:
            def finished(task: asyncio.Task[ev.EvalResult]) -> None:
                if not task.cancelled():
                    out.put_nowait(sched.EvaluateResponse(result=task.result()))
                    owed.discard(key)
                    done.set()

            owed.add(key)
            self.work[key].task.add_done_callback(finished)

        try:
            async for message in messages:
                self.messages.append(message)
                unknown = [id for id in message.attach_ids if (message.client_id, id) not in self.work]
                if unknown:
                    out.put_nowait(sched.EvaluateResponse(unknown=sched.EvaluateResponse.Unknown(ids=unknown)))
                for id in message.attach_ids:
                    self.attached.append(id)
                    if id not in unknown:
                        watch((message.client_id, id))
                for request in message.requests:
                    await self.room.wait()
                    self._start(message.client_id, request)
                    watch((message.client_id, request.id))
                if message.requests:
                    out.put_nowait(
                        sched.EvaluateResponse(
                            accepted=sched.EvaluateResponse.Accepted(ids=[r.id for r in message.requests])
                        )
                    )
                for id in message.cancel_ids:
                    self.cancel(message.client_id, id)
            while owed:
                done.clear()
                await done.wait()
        finally:
            out.put_nowait(None)

    async def EvaluateOnce(
        self, request: sched.EvaluateOnceRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> sched.EvaluateOnceResponse:
        if not request.request.kernel_code:
            violation = Violation("kernel_code", "must not be empty")
            await _refuse(context, InvalidRequestError(violations=[violation]))
        self._start(request.client_id, request.request)
        return sched.EvaluateOnceResponse(result=await self.work[request.client_id, request.request.id].task)

    async def GetEvaluation(
        self, request: sched.GetEvaluationRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> sched.GetEvaluationResponse:
        key = (request.client_id, request.id)
        if key not in self.work:
            await _refuse(context, EvaluationNotFoundError(f"no evaluation has the id {request.id!r}"))
        evaluation = sched.Evaluation(id=request.id, client_id=request.client_id, stage=ev.STAGE_QUEUED)
        if self.work[key].task.done():
            evaluation.stage = ev.STAGE_DONE
            evaluation.result.CopyFrom(self.work[key].task.result())
        return sched.GetEvaluationResponse(evaluation=evaluation)

    async def CancelEvaluation(
        self, request: sched.CancelEvaluationRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> sched.CancelEvaluationResponse:
        if self.work[request.client_id, request.id].task.done():
            await _refuse(context, AlreadyFinishedError(f"{request.id!r} is finished"))
        self.cancel(request.client_id, request.id)
        return sched.CancelEvaluationResponse()

    async def GetCapabilities(self, request: Any, context: Any) -> Any:
        return sched.SchedulerServiceGetCapabilitiesResponse(
            version="0.1.0", backends=["triton"], toolkits=["kernelbench"], nodes=1, devices=1
        )

    # FleetService: one live node (on this very server) and one that is gone.

    async def ListNodes(self, request: Any, context: Any) -> fleet.ListNodesResponse:
        device = fleet.Device(name="cpu:0", kind="cpu", model="A processor", lanes=2, ready=True)
        here = fleet.Node(node_id="node-a", address=self.address, state=fleet.NODE_STATE_SERVING, devices=[device])
        gone = fleet.Node(node_id="node-b", address="127.0.0.1:1", state=fleet.NODE_STATE_LOST)
        return fleet.ListNodesResponse(nodes=[here, gone])

    # Work

    def _start(self, client_id: str, request: ev.EvalRequest) -> None:
        key = (client_id, request.id)
        if key not in self.work:
            self.runs.append(request.id)
            told_to_stop = asyncio.Event()
            self.work[key] = Work(asyncio.create_task(_judge(request, told_to_stop)), told_to_stop)

    def cancel(self, client_id: str, id: str) -> None:
        key = (client_id, id)
        if key in self.work and not self.work[key].task.done():
            self.cancelled.append(key[1])
            self.work[key].told_to_stop.set()


async def _judge(request: ev.EvalRequest, told_to_stop: asyncio.Event) -> ev.EvalResult:
    """Ends by the rule in kernel_code, or CANCELLED when told so."""
    word, _, argument = request.kernel_code.partition(" ")
    seconds = float(argument) if word == "sleep" else 1e6 if word == "hang" else 0.0
    try:
        async with asyncio.timeout(seconds):
            await told_to_stop.wait()
    except TimeoutError:
        result = ev.EvalResult(id=request.id, outcome=ev.EvalResult.CORRECT, compiled=True, correct=True, speedup=2.0)
    else:
        result = ev.EvalResult(id=request.id, outcome=ev.EvalResult.INFRASTRUCTURE_ERROR, compiled=False, correct=False)
        result.infrastructure_error.cause = "CANCELLED"
    result.labels.update(request.labels)
    return result


async def _refuse(context: grpc.aio.ServicerContext[Any, Any], error: KernelDynoError) -> None:
    await context.abort_with_status(to_status(error))

"""A small real scheduler for the client's tests: gRPC on a real socket, verdicts by rule instead of by running code.

A request's kernel_code says what becomes of it: "sleep SECONDS" takes that long, "hang" never ends, "interval LOW HIGH" is
CORRECT with that speedup, anything else CORRECT at once. Streams can be broken, and everything forgotten or kept, as
crashes without and with a store would do it. Not a model of queueing.
"""

# ruff: noqa: N802  (methods are named by the contract)
from __future__ import annotations

import asyncio
from collections import deque
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
    NodeNotFoundError,
    QuarantineNotFoundError,
    to_status,
)
from kerneldyno.rpc.identity import digest
from kerneldyno.rpc.validation import Violation, effective
from kerneldyno.v1 import evaluation_pb2 as ev
from kerneldyno.v1 import fleet_service_pb2 as fleet
from kerneldyno.v1 import fleet_service_pb2_grpc as fleet_grpc
from kerneldyno.v1 import scheduler_service_pb2 as sched
from kerneldyno.v1 import scheduler_service_pb2_grpc as sched_grpc

Key = tuple[str, str]  # client id, request id


@dataclass(slots=True)
class Work:
    """One evaluation: the task that will give its result, the event that cancels it, and how it is listed."""

    task: asyncio.Task[ev.EvalResult]
    told_to_stop: asyncio.Event
    listed: sched.Evaluation

    def now(self, full: bool) -> sched.Evaluation:
        """Where it stands."""
        evaluation = sched.Evaluation()
        evaluation.CopyFrom(self.listed)
        evaluation.stage = ev.STAGE_DONE if self.task.done() else ev.STAGE_QUEUED
        if self.task.done():
            evaluation.result.CopyFrom(self.task.result())
            if not full:
                evaluation.result.ClearField("logs")
        return evaluation


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
        self.refusals: deque[KernelDynoError] = deque()  # one for each of the next streams
        self.opened: list[float] = []  # when each stream was, by the event loop's clock
        self.nodes: dict[str, fleet.Node] = {}
        self.quarantines: list[fleet.Quarantine] = []
        self.watching = 0
        self.lists: list[sched.ListEvaluationsRequest] = []
        self._changed = asyncio.Event()  # made new by each change of the cluster
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
        self._port = self._server.add_insecure_port(self.address)
        if not self.nodes:
            self._add_nodes()
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
        self.opened.append(asyncio.get_running_loop().time())
        if self.refusals:
            await _refuse(context, self.refusals.popleft())
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
                    self.submit(message.client_id, request)
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
        self.submit(request.client_id, request.request)
        return sched.EvaluateOnceResponse(result=await self.work[request.client_id, request.request.id].task)

    async def GetEvaluation(
        self, request: sched.GetEvaluationRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> sched.GetEvaluationResponse:
        key = (request.client_id, request.id)
        if key not in self.work:
            await _refuse(context, EvaluationNotFoundError(f"no evaluation has the id {request.id!r}"))
        return sched.GetEvaluationResponse(evaluation=self.work[key].now(full=True))

    async def ListEvaluations(
        self, request: sched.ListEvaluationsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> sched.ListEvaluationsResponse:
        self.lists.append(sched.ListEvaluationsRequest.FromString(request.SerializeToString()))
        if request.page_size > 1000 or (request.page_token and not request.page_token.isdigit()):
            await _refuse(context, InvalidRequestError(violations=[Violation("page_size", "must be 1 to 1000")]))
        found = [work.now(request.full_results) for work in reversed(self.work.values())]
        found = [evaluation for evaluation in found if _matches(evaluation, request)]
        first = int(request.page_token or 0)
        last = first + (request.page_size or 100)
        return sched.ListEvaluationsResponse(
            evaluations=found[first:last], next_page_token=str(last) if last < len(found) else ""
        )

    async def CancelEvaluation(
        self, request: sched.CancelEvaluationRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> sched.CancelEvaluationResponse:
        if self.work[request.client_id, request.id].task.done():
            await _refuse(context, AlreadyFinishedError(f"{request.id!r} is finished"))
        self.cancel(request.client_id, request.id)
        return sched.CancelEvaluationResponse()

    async def CancelEvaluations(
        self, request: sched.CancelEvaluationsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> sched.CancelEvaluationsResponse:
        if bool(request.ids) == request.all or len(request.ids) > 10_000:
            await _refuse(context, InvalidRequestError(violations=[Violation("ids", "give ids or all")]))
        before = len(self.cancelled)
        for client_id, id in self.work:
            if client_id == request.client_id and (request.all or id in request.ids):
                self.cancel(client_id, id)
        return sched.CancelEvaluationsResponse(cancelled=len(self.cancelled) - before)

    async def GetCapabilities(self, request: Any, context: Any) -> Any:
        return sched.SchedulerServiceGetCapabilitiesResponse(
            version="0.1.0", backends=["triton"], toolkits=["kernelbench"], nodes=1, devices=1
        )

    # FleetService

    def _add_nodes(self) -> None:
        """One live node and one that is gone, which was too old to tell of its sandbox."""
        device = fleet.Device(name="cpu:0", kind="cpu", model="A processor", lanes=2, ready=True)
        here = fleet.Node(
            node_id="node-a",
            address=self.address,
            state=fleet.NODE_STATE_SERVING,
            devices=[device],
            labels={"pool": "a", "zone": "z1"},
            connected=True,
            sandbox_layers=[fleet.SandboxLayer(name="pid_namespace", active=True, detail="others are out of sight")],
        )
        here.last_synchronize_time.GetCurrentTime()
        gone = fleet.Node(node_id="node-b", address="127.0.0.1:1", state=fleet.NODE_STATE_LOST)
        self.nodes = {"node-a": here, "node-b": gone}

    def change(self) -> None:
        """Shows the cluster as it is now to whoever watches."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def ListNodes(self, request: Any, context: Any) -> fleet.ListNodesResponse:
        return fleet.ListNodesResponse(nodes=self.nodes.values())

    async def DrainNode(self, request: fleet.DrainNodeRequest, context: Any) -> fleet.DrainNodeResponse:
        return fleet.DrainNodeResponse(node=await self._drain(request.node_id, True, context))

    async def UndrainNode(self, request: fleet.UndrainNodeRequest, context: Any) -> fleet.UndrainNodeResponse:
        return fleet.UndrainNodeResponse(node=await self._drain(request.node_id, False, context))

    async def _drain(self, node_id: str, drained: bool, context: Any) -> fleet.Node:
        if node_id not in self.nodes:
            await _refuse(context, NodeNotFoundError(f"no node {node_id!r} is registered"))
        node = self.nodes[node_id]
        node.drained = drained
        node.state = fleet.NODE_STATE_DRAINING if drained else fleet.NODE_STATE_SERVING
        self.change()
        return node

    async def WatchCluster(self, request: Any, context: Any) -> AsyncIterator[fleet.WatchClusterResponse]:
        if self.refusals:
            await _refuse(context, self.refusals.popleft())
        self.watching += 1
        self._streams.add(task := asyncio.ensure_future(asyncio.Event().wait()))
        try:
            while not task.done():
                changed = asyncio.ensure_future(self._changed.wait())
                yield fleet.WatchClusterResponse(
                    nodes=self.nodes.values(), queued=len(self.work), outcomes={"CORRECT": 3}
                )
                await asyncio.wait({changed, task}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "broken by the test")
        finally:
            self.watching -= 1
            task.cancel()
            self._streams.discard(task)

    async def ListQuarantines(self, request: Any, context: Any) -> fleet.ListQuarantinesResponse:
        return fleet.ListQuarantinesResponse(quarantines=self.quarantines)

    async def ReleaseQuarantine(
        self, request: fleet.ReleaseQuarantineRequest, context: Any
    ) -> fleet.ReleaseQuarantineResponse:
        kept = [q for q in self.quarantines if (q.node_id, q.digest) != (request.node_id, request.digest)]
        if len(kept) == len(self.quarantines):
            await _refuse(context, QuarantineNotFoundError("it is not in quarantine"))
        self.quarantines = kept
        return fleet.ReleaseQuarantineResponse()

    # Work

    def submit(self, client_id: str, request: ev.EvalRequest) -> None:
        key = (client_id, request.id)
        if key not in self.work:
            self.runs.append(request.id)
            told_to_stop = asyncio.Event()
            listed = sched.Evaluation(id=request.id, client_id=client_id, labels=request.labels)
            listed.digest = digest(effective(request)).hex()
            listed.accept_time.GetCurrentTime()
            self.work[key] = Work(asyncio.create_task(_judge(request, told_to_stop)), told_to_stop, listed)

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
        result.end_to_end_speedup, result.speedup_kind = 3.0, request.speedup_kind
        if word == "interval":
            result.speedup_interval.low, result.speedup_interval.high = map(float, argument.split())
    else:
        result = ev.EvalResult(id=request.id, outcome=ev.EvalResult.INFRASTRUCTURE_ERROR, compiled=False, correct=False)
        result.infrastructure_error.cause = "CANCELLED"
    result.labels.update(request.labels)
    result.digest = digest(effective(request)).hex()
    result.logs = "what it wrote"
    return result


def _matches(evaluation: sched.Evaluation, request: sched.ListEvaluationsRequest) -> bool:
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


async def _refuse(context: grpc.aio.ServicerContext[Any, Any], error: KernelDynoError) -> None:
    await context.abort_with_status(to_status(error))

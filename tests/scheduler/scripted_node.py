"""A node for the scheduler's tests: a real EvaluatorService on a real socket, whose verdicts are scripted.

The candidate's source is the script, for example `sleep=0.2 outcome=INCORRECT`. Attempts are kept by token as the contract
says, so that re-attaching, cancelling and fencing are real; only judging is not.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from kerneldyno.rpc import channel, errors, serving
from kerneldyno.rpc.interceptor import ServerInterceptor
from kerneldyno.v1 import evaluation_pb2, evaluator_service_pb2, fleet_service_pb2
from kerneldyno.v1.evaluator_service_pb2_grpc import EvaluatorServiceServicer, add_EvaluatorServiceServicer_to_server
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from prometheus_client import CollectorRegistry


def _script(source: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in source.split() if "=" in word)


@dataclass(eq=False)
class _Attempt:
    request: evaluation_pb2.EvalRequest
    done: asyncio.Future[evaluation_pb2.EvalResult]
    task: asyncio.Task[None] | None = None


@dataclass(eq=False)
class ScriptedNode(EvaluatorServiceServicer):
    """One node; `started` and `cancelled` tell what it was asked to do, in order."""

    node_id: str
    lanes: int = 2
    kind: str = "cpu"
    model: str = "Fake CPU"
    backends: tuple[str, ...] = ("triton", "torch")
    instance_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    address: str = ""
    started: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    attempts: dict[str, _Attempt] = field(default_factory=dict)
    most_at_once: int = 0
    reporting: bool = True
    breaks: int = 0
    """How many Evaluate streams to break after their first event."""

    async def Evaluate(self, request: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        script = _script(request.request.kernel_code)
        if "refuse" in script and script.get("node", self.node_id) == self.node_id:
            await context.abort(getattr(grpc.StatusCode, script["refuse"]), "scripted")
        if len([a for a in self.attempts.values() if not a.done.done()]) >= self.lanes + 1:
            raise errors.LanesFullError("full", retry_seconds=0.1)
        attempt = _Attempt(request.request, asyncio.get_running_loop().create_future())
        self.attempts[request.attempt_token] = attempt
        self.started.append(request.request.id)
        self.most_at_once = max(self.most_at_once, sum(1 for a in self.attempts.values() if not a.done.done()))
        attempt.task = asyncio.get_running_loop().create_task(self._judge(attempt, script))
        event = evaluator_service_pb2.AttemptEvent(
            attempt_token=request.attempt_token, stage=evaluation_pb2.STAGE_LOADING, device=f"{self.kind}:0"
        )
        await context.write(evaluator_service_pb2.EvaluatorServiceEvaluateResponse(event=event))
        if self.breaks > 0:
            self.breaks -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "scripted break")
        event.stage = evaluation_pb2.STAGE_DONE
        event.result.CopyFrom(await asyncio.shield(attempt.done))
        await context.write(evaluator_service_pb2.EvaluatorServiceEvaluateResponse(event=event))

    async def WatchAttempt(self, request: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        attempt = self.attempts.get(request.attempt_token)
        if attempt is None:
            raise errors.AttemptNotFoundError("unknown token")
        event = evaluator_service_pb2.AttemptEvent(attempt_token=request.attempt_token, stage=evaluation_pb2.STAGE_DONE)
        event.result.CopyFrom(await asyncio.shield(attempt.done))
        await context.write(evaluator_service_pb2.WatchAttemptResponse(event=event))

    async def CancelAttempt(self, request: Any, context: Any) -> Any:  # noqa: N802
        attempt = self.attempts.pop(request.attempt_token, None)
        if attempt is not None and attempt.task is not None:
            attempt.task.cancel()
            attempt.done.cancel()
            self.cancelled.append(attempt.request.id)
        return evaluator_service_pb2.CancelAttemptResponse()

    async def GetCapabilities(self, request: Any, context: Any) -> Any:  # noqa: N802
        return evaluator_service_pb2.EvaluatorServiceGetCapabilitiesResponse(node_id=self.node_id)

    async def _judge(self, attempt: _Attempt, script: dict[str, str]) -> None:
        await asyncio.sleep(float(script.get("sleep", "0")))
        result = evaluation_pb2.EvalResult(
            outcome=evaluation_pb2.EvalResult.Outcome.Value(script.get("outcome", "CORRECT")),
            message="x" * int(script.get("size", "0")),
        )
        result.correct = result.outcome == evaluation_pb2.EvalResult.CORRECT
        result.environment.node_id = self.node_id
        if result.outcome == evaluation_pb2.EvalResult.INFRASTRUCTURE_ERROR:
            only_here = script.get("node", self.node_id) == self.node_id
            if only_here:
                result.infrastructure_error.cause = "JUDGE_DIED"
                result.infrastructure_error.retryable = script.get("retryable", "yes") == "yes"
            else:
                result.outcome = evaluation_pb2.EvalResult.CORRECT
        attempt.done.set_result(result)

    def report(self) -> fleet_service_pb2.SynchronizeRequest:
        """What it tells the scheduler."""
        report = fleet_service_pb2.SynchronizeRequest(
            node_id=self.node_id,
            instance_id=self.instance_id,
            address=self.address,
            state=fleet_service_pb2.NODE_STATE_SERVING,
            backends=self.backends,
            toolkits=["kernelbench", "kernel_simple"],
            attempt_tokens=list(self.attempts),
        )
        report.devices.add(
            name=f"{self.kind}:0", kind=self.kind, model=self.model, memory_bytes=8 << 30, lanes=self.lanes, ready=True
        )
        return report

    async def _report_forever(self, scheduler: str) -> None:
        async with grpc.aio.insecure_channel(channel.target(scheduler), options=channel.client_options()) as peer:
            stub = FleetServiceStub(peer)
            while True:
                pause = 0.05
                if self.reporting:
                    try:
                        answer = await stub.Synchronize(self.report(), timeout=5)
                        pause = min(0.2, answer.next_synchronize.ToNanoseconds() / 1e9)
                        for token in answer.cancel_attempt_tokens:
                            await self.CancelAttempt(
                                evaluator_service_pb2.CancelAttemptRequest(attempt_token=token), None
                            )
                    except grpc.aio.AioRpcError:
                        pass
                await asyncio.sleep(pause)


@asynccontextmanager
async def node(scheduler: object, node_id: str, **options: Any) -> AsyncIterator[ScriptedNode]:
    """Run a node that reports to `scheduler` ("host:port") while the context lasts; leaving it is a sudden death."""
    fake = ScriptedNode(node_id, **options)
    server = serving.make_server(ServerInterceptor(CollectorRegistry()))
    add_EvaluatorServiceServicer_to_server(fake, server)
    fake.address = str(serving.listen(server, serving.Address("127.0.0.1", 0)))
    await server.start()
    reporter = asyncio.get_running_loop().create_task(fake._report_forever(str(scheduler)))
    try:
        yield fake
    finally:
        reporter.cancel()
        await asyncio.gather(reporter, return_exceptions=True)
        await server.stop(0)
        tasks = [a.task for a in fake.attempts.values() if a.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""What the scheduler's service tests share: a running scheduler, a client's end of the Evaluate stream, requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
from kerneldyno.rpc import channel
from kerneldyno.scheduler.app import RunningScheduler, running
from kerneldyno.scheduler.settings import Settings
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.scheduler_service_pb2 import EvaluateRequest, EvaluateResponse
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub

Outcome = evaluation_pb2.EvalResult.Outcome


def settings(**changes: Any) -> Settings:
    """Settings for tests: free ports, short leases."""
    return Settings(
        **{
            "listen": "127.0.0.1:0",
            "metrics": "off",
            "heartbeat_seconds": 0.2,
            "lease_seconds": 1.0,
            "drain_seconds": 5.0,
            **changes,
        }
    )


def request(request_id: str, script: str = "pass", **fields: Any) -> EvalRequest:
    """A well-formed request; `script` tells the fake node what to answer."""
    return EvalRequest(id=request_id, reference_code=fields.pop("reference", "ref"), kernel_code=script, **fields)


@asynccontextmanager
async def scheduler(**changes: Any) -> AsyncIterator[tuple[RunningScheduler, Any]]:
    """A running scheduler and a stub of its SchedulerService."""
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(running(settings(**changes)))
        peer = await stack.enter_async_context(connect(app))
        yield app, SchedulerServiceStub(peer)


def connect(app: RunningScheduler) -> grpc.aio.Channel:
    """A channel of its own to `app`."""
    options = channel.client_options(own_connection=True)
    return grpc.aio.insecure_channel(channel.target(str(app.address)), options=options)


class Client:
    """A client's end of one Evaluate stream."""

    def __init__(self, stub: Any, client_id: str = "c") -> None:
        self.client_id = client_id
        self.call = stub.Evaluate()
        self.accepted: list[str] = []
        self.unknown: list[str] = []
        self.results: dict[str, EvalResult] = {}
        self.order: list[str] = []

    async def send(self, *requests: EvalRequest, cancel: tuple[str, ...] = (), attach: tuple[str, ...] = ()) -> None:
        """Send one message."""
        await self.call.write(
            EvaluateRequest(client_id=self.client_id, requests=requests, cancel_ids=cancel, attach_ids=attach)
        )

    async def until(self, met: Callable[[], bool], seconds: float = 20) -> None:
        """Read until `met()`."""
        async with asyncio.timeout(seconds):
            while not met():
                response = await self.call.read()
                assert response is not grpc.aio.EOF, "the stream ended early"
                self._take(response)

    async def finish(self, seconds: float = 20) -> dict[str, EvalResult]:
        """Half-close, read to the end, and return the results."""
        await self.call.done_writing()
        async with asyncio.timeout(seconds):
            while (response := await self.call.read()) is not grpc.aio.EOF:
                self._take(response)
        return self.results

    def _take(self, response: EvaluateResponse) -> None:
        match response.WhichOneof("event"):
            case "accepted":
                self.accepted += response.accepted.ids
            case "unknown":
                self.unknown += response.unknown.ids
            case "result":
                assert response.result.id not in self.results, "a result came twice"
                self.results[response.result.id] = response.result
                self.order.append(response.result.id)


async def eventually(met: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until `met()`."""
    async with asyncio.timeout(seconds):
        while not met():  # noqa: ASYNC110 - the thing watched has no event
            await asyncio.sleep(0.01)

"""Errors, metrics and limits of calls, over a real server with one small service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from kerneldyno.rpc import channel, errors, serving
from kerneldyno.rpc.interceptor import ServerInterceptor
from kerneldyno.rpc.validation import Violation
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1.fleet_service_pb2_grpc import (
    FleetServiceServicer,
    FleetServiceStub,
    add_FleetServiceServicer_to_server,
)

SERVICE = pb.DESCRIPTOR.services_by_name["FleetService"]


class Moody(FleetServiceServicer):
    """A service whose `Synchronize` does what `node_id` says."""

    async def ListNodes(self, request: Any, context: Any) -> pb.ListNodesResponse:  # noqa: N802
        return pb.ListNodesResponse()

    async def DrainNode(self, request: Any, context: Any) -> pb.DrainNodeResponse:  # noqa: N802
        return pb.DrainNodeResponse()

    async def UndrainNode(self, request: Any, context: Any) -> pb.UndrainNodeResponse:  # noqa: N802
        return pb.UndrainNodeResponse()

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def Synchronize(self, request: pb.SynchronizeRequest, context: Any) -> pb.SynchronizeResponse:  # noqa: N802
        match request.node_id:
            case "invalid":
                violations = [Violation(f"field{i}", "x" * 400) for i in range(20)]
                raise errors.InvalidRequestError(violations=violations)
            case "full":
                raise errors.QueueFullError("full", retry_seconds=1.5)
            case "bug":
                raise RuntimeError("a secret")
            case "slow":
                self.begun.set()
                try:
                    await asyncio.sleep(60)
                finally:
                    self.cancelled.set()
        return pb.SynchronizeResponse()

    async def WatchCluster(self, request: pb.WatchClusterRequest, context: Any) -> Any:  # noqa: N802
        for queued in range(3):
            yield pb.WatchClusterResponse(queued=queued)
        raise errors.ShuttingDownError("later", retry_seconds=2)


@asynccontextmanager
async def serve() -> AsyncIterator[tuple[Any, Moody, CollectorRegistry]]:
    registry, moody = CollectorRegistry(), Moody()
    server = serving.make_server(ServerInterceptor(registry, [SERVICE]))
    add_FleetServiceServicer_to_server(moody, server)
    health = await serving.add_health_and_reflection(server, [SERVICE.full_name])
    address = serving.listen(server, serving.Address("127.0.0.1", 0))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(channel.target(str(address)), options=channel.client_options()) as peer:
            yield FleetServiceStub(peer), moody, registry
    finally:
        await serving.stop_server(server, health, grace_seconds=1)


def handled(registry: CollectorRegistry, method: str, code: str, kind: str = "unary") -> float | None:
    labels = {"grpc_type": kind, "grpc_service": SERVICE.full_name, "grpc_method": method, "grpc_code": code}
    return registry.get_sample_value("grpc_server_handled_total", labels)


async def count(registry: CollectorRegistry, method: str, code: str, kind: str = "unary") -> float | None:
    """Wait until a call is counted. That is when its handler has ended; its status may have arrived before."""
    for _ in range(1000):
        if seen := handled(registry, method, code, kind):
            return seen
        await asyncio.sleep(0.01)
    return None


async def fail(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value


async def test_errors_arrive_as_they_were_raised() -> None:
    async with serve() as (stub, _, registry):
        invalid = errors.from_rpc_error(await fail(stub.Synchronize(pb.SynchronizeRequest(node_id="invalid"))))
        assert isinstance(invalid, errors.InvalidRequestError)
        assert invalid.violations[0] == Violation("field0", "x" * 400)
        assert 5 < len(invalid.violations) < 20, "cut, so that the status fits and the code is not lost"

        full = errors.from_rpc_error(await fail(stub.Synchronize(pb.SynchronizeRequest(node_id="full"))))
        assert isinstance(full, errors.QueueFullError)
        assert (full.message, full.retry_seconds) == ("full", 1.5)
        assert await count(registry, "Synchronize", "RESOURCE_EXHAUSTED") == 1


async def test_a_bug_tells_the_caller_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with serve() as (stub, _, registry):
        error = await fail(stub.Synchronize(pb.SynchronizeRequest(node_id="bug")))
        assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "internal error")
        assert errors.from_rpc_error(error) is None
        assert await count(registry, "Synchronize", "INTERNAL") == 1
        assert "a secret" in caplog.text, "the log has it"


async def test_deadlines_and_cancellations_reach_the_handler_and_are_told_apart() -> None:
    async with serve() as (stub, moody, registry):
        await stub.Synchronize(pb.SynchronizeRequest())  # connect first, so that the deadline passes in the handler
        error = await fail(stub.Synchronize(pb.SynchronizeRequest(node_id="slow"), timeout=1))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(moody.cancelled.wait(), 10)

        moody.cancelled.clear()
        moody.begun.clear()
        call = stub.Synchronize(pb.SynchronizeRequest(node_id="slow"))
        await asyncio.wait_for(moody.begun.wait(), 10)
        call.cancel()
        await asyncio.wait_for(moody.cancelled.wait(), 10)
        assert await count(registry, "Synchronize", "DEADLINE_EXCEEDED") == 1
        assert await count(registry, "Synchronize", "CANCELLED") == 1


async def test_streams_are_observed_to_their_end() -> None:
    async with serve() as (stub, _, registry):
        seen = []

        async def read() -> None:
            async for response in stub.WatchCluster(pb.WatchClusterRequest()):
                seen.append(response.queued)

        error = errors.from_rpc_error(await fail(read()))
        assert (seen, type(error)) == ([0, 1, 2], errors.ShuttingDownError)
        assert await count(registry, "WatchCluster", "UNAVAILABLE", "server_stream") == 1
        assert handled(registry, "WatchCluster", "OK", "server_stream") == 0


async def test_every_code_of_every_method_starts_at_zero() -> None:
    registry = CollectorRegistry()
    ServerInterceptor(registry, [SERVICE])
    assert {handled(registry, "ListNodes", code.name) for code in grpc.StatusCode} == {0}


async def test_an_oversized_message_is_refused_and_the_server_lives_on() -> None:
    async with serve() as (stub, _, _registry):
        large = pb.SynchronizeRequest(node_id="x" * (channel.MAX_MESSAGE_BYTES + 1))
        assert (await fail(stub.Synchronize(large))).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await stub.Synchronize(pb.SynchronizeRequest())


#: Only errors of this module: the client has errors of its own, which are never sent.
ON_THE_WIRE = [kind for kind in errors.KernelDynoError.__subclasses__() if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", ON_THE_WIRE)
def test_every_error_has_a_code_and_a_reason_of_its_own(kind: type[errors.KernelDynoError]) -> None:
    assert kind.code is not grpc.StatusCode.UNKNOWN
    assert sum(other.reason == kind.reason for other in ON_THE_WIRE) == 1
    assert kind.__name__ in (errors.__doc__ or "")
    assert errors.to_status(kind("x" * 100_000)).code is kind.code


def test_addresses() -> None:
    assert str(serving.Address.parse("[::1]:50051")) == "[::1]:50051"
    for bad in ("50051", "host:", ":1", "host:70000", "host:port", "http://host:1"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            serving.Address.parse(bad)

"""A real server of all four services. Every RPC answers at once, so only admission decides the status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass
from prometheus_client import CollectorRegistry

from kerneldyno.rpc import auth, channel, serving
from kerneldyno.rpc.auth import Gate
from kerneldyno.rpc.credentials import NONE, Credentials
from kerneldyno.rpc.interceptor import ServerInterceptor
from kerneldyno.rpc.tls import ServerTls
from kerneldyno.rpc.tokens import Principal
from kerneldyno.v1 import evaluator_service_pb2, fleet_service_pb2, reward_service_pb2, scheduler_service_pb2

MODULES = (scheduler_service_pb2, fleet_service_pb2, reward_service_pb2, evaluator_service_pb2)
SERVICES = [service for module in MODULES for service in module.DESCRIPTOR.services_by_name.values()]
#: All our RPCs, by "/package.Service/Name".
METHODS = {f"/{service.full_name}/{method.name}": method for service in SERVICES for method in service.methods}


@dataclass
class Served:
    """A running server, and what its handlers saw."""

    address: str
    callers: list[Principal] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)  # of the latest call
    ask: Callable[[], None] | None = None  # called by every unary handler

    @asynccontextmanager
    async def dial(self, credentials: Credentials = NONE) -> AsyncIterator[grpc.aio.Channel]:
        """Open a connection that is not shared."""
        async with channel.open(self.address, credentials, own_connection=True) as peer:
            yield peer


@asynccontextmanager
async def serve(gate: Gate | None = None, encryption: ServerTls | None = None) -> AsyncIterator[Served]:
    """Serve on a free port of 127.0.0.1."""
    server = serving.make_server(ServerInterceptor(CollectorRegistry(), SERVICES, gate))
    served = Served("")
    for service in SERVICES:
        handlers = {method.name: _handler(method, served) for method in service.methods}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
    health = await serving.add_health_and_reflection(server, [service.full_name for service in SERVICES])
    served.address = str(serving.listen(server, serving.Address("127.0.0.1", 0), encryption))
    await server.start()
    try:
        yield served
    finally:
        await serving.stop_server(server, health, grace_seconds=0)


async def call(peer: grpc.aio.Channel, path: str, request: Any = None, messages: int = 1) -> grpc.StatusCode:
    """Call one of our methods to its end and return the status. A streamed request has `messages` messages."""
    while True:
        error = await _call(peer, path, request, messages)
        # A write that fails while the call ends hides the server's status (https://github.com/grpc/grpc/issues/36066).
        if error is None or error.details() != "Internal error from Core":
            return grpc.StatusCode.OK if error is None else error.code()


async def _call(peer: grpc.aio.Channel, path: str, request: Any, messages: int) -> grpc.aio.AioRpcError | None:
    method = METHODS[path]
    make = getattr(peer, _shape(method))(
        path,
        request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    request = GetMessageClass(method.input_type)() if request is None else request
    started = make(iter([request] * messages) if method.client_streaming else request, timeout=30)
    try:
        if method.server_streaming:
            async for _ in started:
                pass
        else:
            await started
    except grpc.aio.AioRpcError as error:
        return error
    return None


def _shape(method: Any) -> str:
    return f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"


def _handler(method: Any, served: Served) -> Any:
    answer = GetMessageClass(method.output_type)

    async def one(request: Any, context: Any) -> Any:
        served.callers.append(auth.principal())
        served.metadata = dict(context.invocation_metadata())
        if served.ask is not None:
            served.ask()
        return answer()

    async def many(request: Any, context: Any) -> AsyncIterator[Any]:
        if method.client_streaming:
            async for _ in request:
                await auth.pace(1)
        async with asyncio.TaskGroup() as group:  # as our streams do their work in tasks
            who = group.create_task(_who())
        served.callers.append(who.result())
        yield answer()

    make: Any = getattr(grpc, f"{_shape(method)}_rpc_method_handler")
    return make(
        many if method.server_streaming else one,
        request_deserializer=GetMessageClass(method.input_type).FromString,
        response_serializer=answer.SerializeToString,
    )


async def _who() -> Principal:
    return auth.principal()

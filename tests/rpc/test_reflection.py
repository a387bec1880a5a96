"""Reflection over a real socket, in both versions: services, their files, and the types of error details."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.rpc import status_pb2
from grpc_reflection.v1alpha import reflection_pb2

from kerneldyno.rpc import errors, reflection
from kerneldyno.rpc.validation import Violation
from tests.rpc.open_services import SERVICES, serve

Answer: Any = reflection_pb2.ServerReflectionResponse


async def ask(peer: grpc.aio.Channel, service: str, **question: str) -> Any:
    method = peer.stream_stream(
        f"/{service}/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=Answer.FromString,
    )
    (answer,) = [one async for one in method(iter([reflection_pb2.ServerReflectionRequest(**question)]), timeout=30)]
    return answer


@pytest.mark.parametrize("service", reflection.NAMES)
async def test_services_are_listed_in_both_versions(service: str) -> None:
    async with serve() as served, served.dial() as peer:
        listed = (await ask(peer, service, list_services="")).list_services_response.service
    assert {one.name for one in listed} == {
        *(one.full_name for one in SERVICES),
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }


@pytest.mark.parametrize("service", reflection.NAMES)
async def test_an_errors_details_can_be_read_by_reflection_alone(service: str) -> None:
    error = errors.InvalidRequestError(violations=[Violation("kernel_code", "missing")], retry_seconds=1.5)
    sent = status_pb2.Status.FromString(dict(errors.to_status(error).trailing_metadata)["grpc-status-details-bin"])
    read: dict[str, Any] = {}
    async with serve() as served, served.dial() as peer:
        for detail in sent.details:
            name = detail.type_url.rpartition("/")[2]
            files = (await ask(peer, service, file_containing_symbol=name)).file_descriptor_response
            pool = descriptor_pool.DescriptorPool()  # like that of a client that knows none of these types
            described = map(descriptor_pb2.FileDescriptorProto.FromString, files.file_descriptor_proto)
            waiting = {file.name: file for file in described}
            while waiting:
                file = next(one for one in waiting.values() if not waiting.keys() & set(one.dependency))
                pool.Add(waiting.pop(file.name))
            kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
            read[name] = kind.FromString(detail.value)
    assert read["google.rpc.BadRequest"].field_violations[0].field == "kernel_code"
    assert read["google.rpc.ErrorInfo"].reason == "INVALID_REQUEST"
    assert read["google.rpc.RetryInfo"].retry_delay.ToTimedelta().total_seconds() == 1.5


@pytest.mark.parametrize("service", reflection.NAMES)
async def test_every_service_that_is_listed_is_described(service: str) -> None:
    async with serve() as served, served.dial() as peer:
        for listed in (await ask(peer, service, list_services="")).list_services_response.service:
            files = (await ask(peer, service, file_containing_symbol=listed.name)).file_descriptor_response
            described = [descriptor_pb2.FileDescriptorProto.FromString(file) for file in files.file_descriptor_proto]
            names = {f"{file.package}.{one.name}" for file in described for one in file.service}
            assert listed.name in names

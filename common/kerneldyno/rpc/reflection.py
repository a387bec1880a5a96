"""Server reflection in both versions: `grpc.reflection.v1`, which current tools ask for first, and `v1alpha`.

grpcio-reflection has only v1alpha. The messages of both are the same on the wire and differ only in their package, so
its servicer answers for v1 too. It describes every message type that this process has imported, including the types of
error details (`google.rpc.BadRequest`, `ErrorInfo`, `RetryInfo`) that kerneldyno.rpc.errors sends.
"""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import SERVICE_NAME, aio

#: Full names of the reflection services.
NAMES = ("grpc.reflection.v1.ServerReflection", SERVICE_NAME)


def add(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Add reflection to `server`, describing `services` (full names) and reflection itself."""
    _describe_v1()
    method = grpc.stream_stream_rpc_method_handler(
        aio.ReflectionServicer([*services, *NAMES]).ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    for name in NAMES:
        handlers = grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method})
        server.add_generic_rpc_handlers((handlers,))


def _describe_v1() -> None:
    """Add v1's file to the descriptor pool: a copy of v1alpha's under v1's name. Tools ask for every listed service."""
    pool = descriptor_pool.Default()
    try:
        pool.FindServiceByName(NAMES[0])
    except KeyError:
        file = descriptor_pb2.FileDescriptorProto()
        reflection_pb2.DESCRIPTOR.CopyToProto(file)
        text = text_format.MessageToString(file).replace("v1alpha", "v1")
        pool.AddSerializedFile(text_format.Parse(text, descriptor_pb2.FileDescriptorProto()).SerializeToString())

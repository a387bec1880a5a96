"""Server reflection in both versions: `grpc.reflection.v1`, which today's tools ask for first, and `v1alpha`.

grpcio-reflection has v1alpha alone. The messages of both are the same on the wire and differ only in their package, so its
servicer answers for v1 too, under the other name. It describes whatever this process has imported, which includes the
types of error details (`google.rpc.BadRequest`, `ErrorInfo`, `RetryInfo`): kerneldyno.rpc.errors sends them.
"""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import SERVICE_NAME, aio

#: Reflection's own services.
NAMES = ("grpc.reflection.v1.ServerReflection", SERVICE_NAME)


def add(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Let `server` describe `services`, by their full names, and reflection itself."""
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
    """Have v1's own file in the descriptor pool: v1alpha's under the other name. Tools ask for every listed service."""
    pool = descriptor_pool.Default()
    try:
        pool.FindServiceByName(NAMES[0])
    except KeyError:
        file = descriptor_pb2.FileDescriptorProto()
        reflection_pb2.DESCRIPTOR.CopyToProto(file)
        text = text_format.MessageToString(file).replace("v1alpha", "v1")
        pool.AddSerializedFile(text_format.Parse(text, descriptor_pb2.FileDescriptorProto()).SerializeToString())

"""The edge of the judge: messages of the contract become JSON in frames to the server, and JSON becomes messages.

No other file of the judge reads or writes the JSON of a message. The service calls this file; the server's end is
`server/cell.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb

from ..shared import wire


def request(said: wire.Frame) -> pb.EvalRequest:
    """Return the request of a frame `evaluate`. Raises ParseError."""
    return json_format.ParseDict(said, pb.EvalRequest(), ignore_unknown_fields=True)


def ready(
    device: fleet_pb.Device,
    environment: pb.Environment,
    layers: Sequence[fleet_pb.SandboxLayer],
    *,
    spare_runners: int,
    candidate_memory_bytes: int,
    gpu_uuid: str,
) -> wire.Frame:
    """Return the frame that describes this judge's device; `gpu_uuid` is empty on the CPU."""
    return {
        "op": "ready",
        "device": _plain(device),
        "environment": _plain(environment),
        "sandbox_layers": [_plain(layer) for layer in layers],
        "spare_runners": spare_runners,
        "candidate_memory_bytes": str(candidate_memory_bytes),
        "gpu_uuid": gpu_uuid,
    }


def stage(attempt: str, reached: pb.Stage.ValueType) -> wire.Frame:
    """Return the frame that names the stage which an attempt has reached."""
    return {"op": "stage", "attempt": attempt, "stage": pb.Stage.Name(reached)}


def result(attempt: str, verdict: pb.EvalResult) -> wire.Frame:
    """Return the frame that ends an attempt.

    A number that is not finite becomes a string ("NaN"), which the server can read.
    """
    return {"op": "result", "attempt": attempt, "result": _plain(verdict)}


def _plain(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )

"""The edge of the judge: the frames with messages of the contract that it reads from the server, and sends to it.

No other file of the judge packs or unpacks a message. The service calls this file; the server's end is
`server/cell.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb

from ..shared import messages, wire


def request(frame: wire.Frame) -> pb.EvalRequest:
    """Return the request of a frame `evaluate`. Raises ProtocolError."""
    return messages.unpack(pb.EvalRequest, frame.get("request"))


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
        "device": messages.pack(device),
        "environment": messages.pack(environment),
        "sandbox_layers": [messages.pack(layer) for layer in layers],
        "spare_runners": spare_runners,
        "candidate_memory_bytes": candidate_memory_bytes,
        "gpu_uuid": gpu_uuid,
    }


def stage(attempt: str, reached: pb.Stage.ValueType) -> wire.Frame:
    """Return the frame that names the stage which an attempt has reached."""
    return {"op": "stage", "attempt": attempt, "stage": pb.Stage.Name(reached)}


def result(attempt: str, verdict: pb.EvalResult) -> wire.Frame:
    """Return the frame that ends an attempt."""
    return {"op": "result", "attempt": attempt, "result": messages.pack(verdict)}

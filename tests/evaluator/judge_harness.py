"""A real judge with a real zygote. The tests talk to it over the same socket as the evaluator server does.

Frames carry messages as packed bytes. Tests write and read proto-JSON; `pack_request` and `unpacked` convert.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import socket
import subprocess
import sys
from types import TracebackType
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from kerneldyno.evaluator.judge.request import read_request
from kerneldyno.evaluator.shared import messages, wire
from kerneldyno.evaluator.shared.spec import EvalSpec
from kerneldyno.rpc.jsonio import result_to_json
from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb

#: Environment variable of the judge that tests share. No candidate may see it.
SECRET = {"MY_API_TOKEN": "kerneldyno-test-secret-value"}
DEVICE = "cuda:0" if os.environ.get("KERNELDYNO_REQUIRE_GPU") else "cpu:0"

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features, scale=1.0):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = scale

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale

def get_inputs():
    return [torch.randn(32, 128)]

def get_init_inputs():
    return [[128], {"scale": 2.0}]
"""

_CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
{prologue}

@triton.jit
def scaled_relu(x_ptr, y_ptr, count, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(y_ptr + at, tl.maximum(tl.load(x_ptr + at, inside), {floor}) * scale, inside)

class ModelNew(nn.Module):
    def __init__(self, features, scale=1.0):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = scale
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        {body}
        h = self.linear(x)
        y = torch.empty_like(h)
        scaled_relu[(triton.cdiv(h.numel(), 1024),)](h, y, h.numel(), self.scale, BLOCK=1024)
        {end}
        return y
"""


def candidate(*, prologue: str = "", body: str = "pass", end: str = "pass", floor: str = "0.0") -> str:
    """Return a correct candidate for REFERENCE, with extra code at the given places.

    Args:
        prologue: Code after the imports.
        body: Code at the start of `forward`.
        end: Code before `forward` returns.
        floor: The value that the kernel uses in place of 0.
    """
    return _CANDIDATE.format(prologue=prologue, body=body, end=end, floor=floor)


def request(kernel_code: str, **changes: Any) -> dict[str, Any]:
    """Return the proto-JSON of an effective EvalRequest."""
    return {
        "reference_code": REFERENCE,
        "kernel_code": kernel_code,
        "entry_point": "Model",
        "backend": "triton",
        "toolkit": "kernelbench",
        "num_correct_trials": 2,
        "num_perf_trials": 12,
        "num_warmup": 1,
        "tolerance": {"preset": "PRESET_CALIBRATED"},
        "timeouts": {f"{stage}_timeout": "30s" for stage in ("load", "compile", "correctness", "timing")},
        "run_performance": False,
        **changes,
    }


def spec(kernel_code: str, **changes: Any) -> EvalSpec:
    """Return the EvalSpec that a judge reads from such a `request`."""
    return read_request(json_format.ParseDict(request(kernel_code, **changes), pb.EvalRequest()))


def pack_request(asked: dict[str, Any]) -> str:
    """Return the proto-JSON of a request as it stands in a frame."""
    return messages.pack(json_format.ParseDict(asked, pb.EvalRequest()))


def unpacked(frame: wire.Frame) -> wire.Frame:
    """Return a frame of a judge or a builder, with proto-JSON in place of its packed messages."""
    plain = dict(frame)
    if frame["op"] == "ready" and "device" in frame:
        plain["device"] = _plain(fleet_pb.Device, frame["device"])
        plain["environment"] = _plain(pb.Environment, frame["environment"])
        plain["sandbox_layers"] = [_plain(fleet_pb.SandboxLayer, layer) for layer in frame["sandbox_layers"]]
    elif frame.get("result") is not None:
        plain["result"] = result_to_json(messages.unpack(pb.EvalResult, frame["result"]))
    return plain


def _plain(kind: type[Message], said: str) -> dict[str, Any]:
    return json_format.MessageToDict(
        messages.unpack(kind, said), preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def with_workload(asked: EvalSpec, number: int) -> EvalSpec:
    """Return a spec of the workload, or of the case, with this number."""
    return dataclasses.replace(asked, problem=dataclasses.replace(asked.problem, workload=number))


def beside_library(asked: EvalSpec, code: str) -> EvalSpec:
    """Return a spec that times a candidate beside a program in place of the reference."""
    form = dataclasses.replace(asked.timing.form, baseline_code=code)
    return dataclasses.replace(asked, timing=dataclasses.replace(asked.timing, form=form))


def limits(**seconds: float) -> dict[str, Any]:
    """Return `timeouts` of a request: 30 s for each stage, except for the stages given here."""
    stages = ("load", "compile", "correctness", "timing")
    return {"timeouts": {f"{stage}_timeout": f"{seconds.get(stage, 30)}s" for stage in stages}}


class Judge:
    """Context manager that runs a judge and its zygote. `evaluate` blocks until the result is there."""

    def __init__(
        self,
        *arguments: str,
        sandbox: str = "auto",
        environment: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
    ) -> None:
        self._arguments = arguments
        self._prefix = prefix
        self._sandbox = sandbox
        self._environment = {**os.environ, **(environment or {})}
        self._tokens = itertools.count()
        self.frames: list[wire.Frame] = []
        self.stats: dict[str, Any] = {}

    def __enter__(self) -> Judge:
        self._socket, control = socket.socketpair()
        ours, theirs = socket.socketpair()
        life = ["--exit-with-parent", str(os.getpid()), "--device", DEVICE]
        python = [*self._prefix, sys.executable, "-P", "-m"]
        self.zygote = subprocess.Popen(
            [*python, "kerneldyno.evaluator.runner.zygote", "--fd", str(theirs.fileno()), *life],
            pass_fds=[theirs.fileno()],
            env=self._environment,
        )
        sockets = ["--control-fd", str(control.fileno()), "--zygote-fd", str(ours.fileno())]
        capacity = ["--lanes", "2", "--spares", "1", "--sandbox", self._sandbox]
        self.process = subprocess.Popen(
            [*python, "kerneldyno.evaluator.judge", *sockets, *capacity, *self._arguments, *life],
            pass_fds=[control.fileno(), ours.fileno()],
            env=self._environment,
        )
        for end in (control, ours, theirs):
            end.close()
        self._socket.settimeout(120)
        self.ready = self._next()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        try:
            self.process.wait(30)
            self.zygote.wait(30)
        finally:
            self.process.kill()
            self.zygote.kill()

    def _next(self) -> wire.Frame:
        received = wire.receive(self._socket)
        assert received is not None, "the judge closed the connection"
        return unpacked(received[0])

    def submit(self, asked: dict[str, Any]) -> str:
        """Send a request and return its attempt token."""
        token = f"attempt-{next(self._tokens)}"
        wire.send(self._socket, {"op": "evaluate", "attempt": token, "request": pack_request(asked)})
        return token

    def cancel(self, token: str) -> None:
        """Cancel an attempt."""
        wire.send(self._socket, {"op": "cancel", "attempt": token})

    def wait_for(self, token: str, operation: str) -> wire.Frame:
        """Return the next frame of kind `operation` about the attempt. Keep all frames but statistics in `frames`."""
        while True:
            frame = self._next()
            if frame["op"] == "stats":
                self.stats = frame
                continue
            self.frames.append(frame)
            if frame.get("attempt") == token and frame["op"] == operation:
                return frame

    def next_stats(self) -> dict[str, Any]:
        """Return the next statistics. The judge sends them once a second."""
        while (frame := self._next())["op"] != "stats":
            self.frames.append(frame)
        self.stats = frame
        return frame

    def evaluate(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Evaluate one candidate and return its result."""
        result: dict[str, Any] = self.wait_for(self.submit(asked), "result")["result"]
        return result

    def evaluate_together(self, *asked: dict[str, Any]) -> list[dict[str, Any]]:
        """Evaluate candidates at the same time and return their results in the order of `asked`."""
        tokens = [self.submit(each) for each in asked]
        results: dict[str, dict[str, Any]] = {}
        while len(results) < len(tokens):
            frame = self._next()
            if frame["op"] == "result":
                results[frame["attempt"]] = frame["result"]
        return [results[token] for token in tokens]


def printed(judge: Judge, code: str) -> str:
    """Run `code` at the top of a candidate, and return what it printed."""
    result = judge.evaluate(request(candidate(prologue=code)))
    assert result["outcome"] == "CORRECT", result["message"]
    logs: str = result["logs"]
    return logs

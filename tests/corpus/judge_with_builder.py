"""A real judge with a real builder beside it: native code is built before a candidate gets a lane, as in the server."""

from __future__ import annotations

import select
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from google.protobuf import json_format

from kerneldyno.evaluator.server import settings
from kerneldyno.evaluator.server.builders import BuilderSettings
from kerneldyno.evaluator.shared import wire
from kerneldyno.rpc.native import may_need_build
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator.judge_harness import DEVICE, Judge, pack_request, unpacked

#: Candidates that are built at once, and the size of the build cache in bytes.
_PLACES, _CACHE_BYTES = 2, 1 << 30


class JudgeWithBuilder(Judge):
    """A judge, and a builder that starts with the first candidate that may need it. Its cache ends with it."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        super().__init__(*arguments, environment=environment)
        self._builder: socket.socket | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        #: Requests of the attempts that are being built.
        self._building: dict[str, dict[str, Any]] = {}
        self._cache = tempfile.TemporaryDirectory(prefix="kerneldyno-builds-")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._builder is not None:
            self._builder.close()
        try:
            for process in self._processes:
                process.wait(30)
        finally:
            for process in self._processes:
                process.kill()
            self._cache.cleanup()
            super().__exit__(kind, error, trace)

    def submit(self, asked: dict[str, Any]) -> str:
        """Send a request, to the builder first if its candidate may have native code, and return its attempt token."""
        if not may_need_build(json_format.ParseDict(asked, pb.EvalRequest())):
            return super().submit(asked)
        token = f"attempt-{next(self._tokens)}"
        if self._builder is None:
            self._builder = self._start()
        self._building[token] = asked
        wire.send(self._builder, {"op": "build", "attempt": token, "request": pack_request(asked)})
        return token

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        builder_end, zygote_end = socket.socketpair()
        architecture = settings.load(["--devices", DEVICE]).architecture
        chosen = BuilderSettings(_PLACES, Path(self._cache.name), _CACHE_BYTES, architecture, self._sandbox)
        for command, ends in (
            (chosen.zygote(zygote_end.fileno()), [zygote_end]),
            (chosen.builder(theirs.fileno(), builder_end.fileno()), [theirs, builder_end]),
        ):
            fds = [end.fileno() for end in ends]
            self._processes.append(subprocess.Popen(command, pass_fds=fds, env=self._environment))
        for end in (theirs, builder_end, zygote_end):
            end.close()
        ours.settimeout(120)
        received = wire.receive(ours)
        assert received is not None, "the builder closed the connection"
        assert received[0]["op"] == "ready", received[0]
        return ours

    def _next(self) -> wire.Frame:
        """Return the judge's next frame. Candidates that are built get a lane meanwhile, or their verdict."""
        while self._building and self._builder is not None:
            readable, _, _ = select.select([self._socket, self._builder], [], [], 120)
            assert readable, "neither the judge nor the builder says anything"
            if self._socket in readable:
                break
            received = wire.receive(self._builder)
            assert received is not None, "the builder closed the connection"
            if (frame := received[0])["op"] == "built" and (result := self._go_on(unpacked(frame))) is not None:
                return result
        return super()._next()

    def _go_on(self, built: wire.Frame) -> wire.Frame | None:
        """Give an attempt a lane, or return the frame with its verdict."""
        token, asked = built["attempt"], self._building.pop(built["attempt"])
        if built["result"] is not None:
            return {"op": "result", "attempt": token, "result": built["result"]}
        libraries = {
            "built": [[digest, key, f"{self._cache.name}/{key}.library"] for digest, key in built["libraries"]],
            "failures": built["failures"],
        }
        order = {"op": "evaluate", "attempt": token, "request": pack_request(asked), "libraries": libraries}
        wire.send(self._socket, order)
        return None

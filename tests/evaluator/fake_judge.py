"""A fake judge and a fake zygote: real processes that speak the real protocol, but run a script instead of a candidate.

`fake_judge.py [--fatal TEXT] [--die-at-start] --control-fd N ...` is a judge, `fake_judge.py --fd N ...` a zygote. The
judge executes the text of an attempt's `kernel_code` as a script, one step per line; see `_step`. Both end with their
parent.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from kerneldyno.evaluator.shared import wire
from kerneldyno.evaluator.shared.messages import pack, unpack
from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb


def exists(path: str) -> bool:
    return Path(path).exists()


def append(path: str, text: str) -> None:
    with Path(path).open("a") as log:
        log.write(text)


def first_time(mark: str) -> bool:
    """Return True for the first call with the file `mark`, counting the calls of all processes."""
    first = not exists(mark)
    append(mark, "")
    return first


class FakeJudge:
    """The judge's side of the control socket."""

    def __init__(self, options: argparse.Namespace, writer: asyncio.StreamWriter) -> None:
        self.options = options
        self.writer = writer
        self.attempts: dict[str, asyncio.Task[None]] = {}
        self.spawns = 0

    def say(self, op: str, **fields: Any) -> None:
        wire.write_frame(self.writer, {"op": op, **fields})

    async def serve(self, reader: asyncio.StreamReader) -> None:
        device = self.options.device
        kind = device.partition(":")[0]
        self.say(
            "ready",
            device=pack(fleet_pb.Device(name=device, kind=kind, model="Fake 100", memory_bytes=1000)),
            environment=pack(pb.Environment(node_id=self.options.node_id, device=device, torch_version="0.fake")),
            sandbox_layers=[pack(fleet_pb.SandboxLayer(name="pid_namespace", active=True, detail="fake"))],
            spare_runners=self.options.spares,
            candidate_memory_bytes=4096,
        )
        stats = asyncio.create_task(self.stats())
        while (frame := await wire.read_frame(reader)) is not None and frame["op"] != "shutdown":
            token = frame.get("attempt", "")
            if frame["op"] == "evaluate":
                self.attempts[token] = asyncio.create_task(
                    self.evaluate(token, unpack(pb.EvalRequest, frame["request"]))
                )
                await asyncio.sleep(0)  # let the task start: an immediate cancel must find it running
            elif token in self.attempts:
                self.attempts[token].cancel()
        stats.cancel()

    async def stats(self) -> None:
        while True:
            self.say("stats", runner_spawns=self.spawns, runner_exits={"clean": self.spawns}, spares=1)
            await asyncio.sleep(0.1)

    async def evaluate(self, token: str, request: pb.EvalRequest) -> None:
        self.spawns += 1
        try:
            for line in request.kernel_code.splitlines():
                await self._step(token, *line.split(maxsplit=1))
        except asyncio.CancelledError:
            cancelled = pb.InfrastructureEvidence(cause="CANCELLED", detail="told to", retryable=False)
            self.result(token, outcome="INFRASTRUCTURE_ERROR", infrastructure_error=cancelled)

    def result(self, token: str, **fields: Any) -> None:
        result = pb.EvalResult(compiled=True, **fields)
        span = result.stages.add(stage=pb.STAGE_LOADING)
        span.start_time.FromJsonString("2026-01-01T00:00:00Z")
        span.duration.FromMilliseconds(250)
        self.say("result", attempt=token, result=pack(result))
        del self.attempts[token]

    async def _step(self, token: str, verb: str, rest: str = "") -> None:
        match verb:
            case "stage":
                self.say("stage", attempt=token, stage=rest)
            case "reference":
                self.say("reference", attempt=token, state=rest)
            case "result":
                self.result(token, outcome=rest)
            case "killed":  # SIGKILL ended the candidate's process
                killed = pb.CrashEvidence(kind="signal", stage="compile", signal=9)
                self.result(token, outcome="RUNTIME_ERROR", runtime_error=killed)
            case "zygote-killed-once":
                if first_time(rest):
                    os.write(self.options.zygote_fd, b"die")
                    await self._step(token, "killed")
                    await asyncio.Event().wait()
            case "leave-once":  # as a judge does that has lost its zygote: cancel everything, then exit
                mark, status = rest.split()
                if first_time(mark):
                    asyncio.get_running_loop().call_later(0.2, os._exit, int(status))
                    for task in self.attempts.values():
                        task.cancel()
                    await asyncio.Event().wait()
            case "raw-once":
                mark, expression = rest.split(maxsplit=1)
                if first_time(mark):
                    self.writer.write(eval(expression))
                    await asyncio.Event().wait()
            case "sleep":
                await asyncio.sleep(float(rest))
            case "await-file":
                while not exists(rest):  # noqa: ASYNC110  # another process creates the file
                    await asyncio.sleep(0.02)
            case "touch":
                append(rest, token + "\n")
            case "hang":
                await asyncio.Event().wait()
            case "block":  # block the whole judge, as a reference does that never returns
                await self.writer.drain()
                signal.pause()
            case "die-after-zygote":  # the server notices the zygote's end before the judge's
                await self.writer.drain()
                os.close(self.options.zygote_fd)
                time.sleep(0.7)  # noqa: ASYNC251  # a dying process runs nothing else
                os.kill(os.getpid(), int(rest))
            case "die":
                await self.writer.drain()
                os.kill(os.getpid(), int(rest))
            case "die-once":
                if first_time(rest):
                    await self.writer.drain()
                    os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                await self.writer.drain()
                os._exit(int(rest))
            case "kill-zygote":
                os.write(self.options.zygote_fd, b"die")
            case "print":
                print(rest, flush=True)
            case _:
                raise ValueError(verb)


async def judge(options: argparse.Namespace) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=options.control_fd))
    if options.fatal:
        wire.write_frame(writer, {"op": "fatal", "detail": options.fatal})
        await writer.drain()
        sys.exit(3)
    if options.die_at_start:
        sys.exit("no such device")
    await FakeJudge(options, writer).serve(reader)


def zygote(options: argparse.Namespace) -> None:
    with socket.socket(fileno=options.fd) as end:
        if end.recv(16):
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in (
        "--fd",
        "--control-fd",
        "--zygote-fd",
        "--lanes",
        "--spares",
        "--number",
        "--devices",
        "--exit-with-parent",
    ):
        parser.add_argument(flag, type=int)
    for flag in ("--device", "--sandbox", "--node-id", "--fatal"):
        parser.add_argument(flag)
    parser.add_argument("--reference-seconds", type=float)
    parser.add_argument("--die-at-start", action="store_true")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != options.exit_with_parent:
        sys.exit("orphan")
    if options.control_fd is None:
        zygote(options)
    else:
        asyncio.run(judge(options))


if __name__ == "__main__":
    main()

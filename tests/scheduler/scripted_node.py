"""A node for the scheduler's tests, chaos tests and load benchmark: everything about it is real but the judging.

It dials the scheduler, keeps its lease by Synchronize and its Work stream open, holds results until they are acknowledged,
and takes an assignment of a token that it holds for the same attempt. The candidate's source is the script, words such as

    sleep=0.2               takes this long (seconds); otherwise the node's own `mean_seconds` and `spread`
    outcome=INCORRECT       ends so; CORRECT otherwise
    cause=JUDGE_DIED        of an INFRASTRUCTURE_ERROR; `retryable=no` makes it final
    speedup=2.5             of a CORRECT one, with times to match; otherwise the node's own `speedup`, and none for 0
    coverage=0.4            in its profile, if the request asks for one, by every definition
    findings=S19,B01        of a REJECTED one, as rejections
    field=entry_point       an INVALID one's violation; kernel_code otherwise
    needs=20                GiB: PROBLEM_TOO_LARGE on a device with less memory; `says=no` keeps the number to itself
    size=1000               has a message of so many characters
    refuse=FULL             is refused so: FULL, DRAINING, INVALID or NO_MATCHING_DEVICE
    die=1                   takes the node with it; the whole process, where this runs as one
    again.speedup=2         (or any other word) goes before `speedup` when the work is measured again for a reward
    node=n1                 `refuse`, `die` and an INFRASTRUCTURE_ERROR happen on this node only
    id=a                    what `started` and `cancelled` call it; otherwise the request's id, or else the token

`async with node(scheduler, "n1", lanes=2)` runs one in this process. `python scripted_node.py --scheduler HOST:PORT
--node-id n1 --nodes 50 --devices 8` runs many in a process of their own, each with its own connection, and prints a line
when all have their Work stream.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import socket
import uuid
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
from scripted_verdict import verdict

from kerneldyno.rpc import channel, credentials
from kerneldyno.rpc.credentials import Credentials
from kerneldyno.v1 import evaluation_pb2, fleet_service_pb2
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub

Result = evaluation_pb2.EvalResult
Refusal = fleet_service_pb2.AttemptRefusal

#: Pauses (seconds) before a broken stream is opened again, and after a Synchronize that failed.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
#: Events of one message, in bytes; far from the limit of a message.
BATCH_BYTES = 1 << 20
#: When to come back after a refusal, in milliseconds.
RETRY_MS = 100


@dataclass(eq=False)
class Held:
    """An attempt that runs or waits, or whose result nobody has acknowledged."""

    token: str
    name: str
    script: dict[str, str]
    device: int | None = None
    timer: asyncio.Handle | None = None
    result: Result | None = None


@dataclass(eq=False)
class ScriptedNode:
    """One node; `started` and `cancelled` tell what it was asked to do, in order."""

    node_id: str
    memory_bytes: int = 8 << 30
    """Of each device."""
    lanes: int = 2
    """Attempts at once on each device; one more may wait."""
    devices: int = 1
    kind: str = "cpu"
    model: str = "Fake CPU"
    backends: tuple[str, ...] = ("triton", "torch")
    labels: dict[str, str] = field(default_factory=dict)
    profiling: bool = False
    environment: evaluation_pb2.Environment = field(
        default_factory=lambda: evaluation_pb2.Environment(torch_version="scripted")
    )
    mean_seconds: float = 0.0
    spread: float = 0.0
    """What an attempt takes without `sleep`: evenly distributed over the mean times 1 - spread to 1 + spread."""
    speedup: float = 0.0
    """Of a CORRECT candidate that does not say."""
    credentials: Credentials = credentials.NONE
    """What it shows the scheduler; as a process, what the environment says."""
    kills_process: bool = False
    """Whether `die` kills the process rather than the node alone."""
    instance_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    address: str = ""
    reporting: bool = True
    """Whether it synchronizes; without it the Work stream goes on, and the lease ends."""
    silent: bool = False
    """Whether it neither says nor does what it hears, with its connections open: as a stopped process, which judges on."""
    draining: bool = False
    breaks: int = 0
    """How many Work streams to break, each after its first events."""

    started: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    """Those killed before they had a result."""
    acknowledged: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    attempts: dict[str, Held] = field(default_factory=dict)
    """By token: all that it holds."""
    most_at_once: int = 0
    streams: int = 0
    """Work streams opened so far."""
    at_work: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while a Work stream is open and its first message was sent."""

    def __post_init__(self) -> None:
        self._busy = [0] * self.devices
        self._unfinished = 0
        self._waiting: deque[Held] = deque()
        self._unsent: dict[str, None] = {}
        self._refusals: list[Refusal] = []
        self._to_send, self._registered, self._news = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._listener: socket.socket | None = None
        self._running: asyncio.Task[None] | None = None

    # Its life

    async def listen(self) -> None:
        """Open the port that tells the scheduler whether anybody is alive here."""
        listener = self._listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        # No asyncio server: one that ends in the turn in which it accepts leaves the connection open (tests/accepting.py).
        asyncio.get_running_loop().add_reader(listener, _take_and_close, listener)
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"

    async def run(self, scheduler: str) -> None:
        """Serve `scheduler` ("host:port") until it dies."""
        self._running = asyncio.current_task()
        while True:
            async with channel.open(scheduler, self.credentials, own_connection=True) as connection:
                stub = FleetServiceStub(connection)
                self._registered.clear()
                async with asyncio.TaskGroup() as group:
                    working = group.create_task(self._work(stub))
                    await self._synchronize(stub)
                    working.cancel()

    def die(self) -> None:
        """End at once, without a word: what it held is gone, and its port is closed."""
        if self.kills_process:
            os.kill(os.getpid(), signal.SIGKILL)
        listener, self._listener = self._listener, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for held in self.attempts.values():
            if held.timer is not None:
                held.timer.cancel()
        if self._running is not None:
            self._running.cancel()

    # Synchronize

    def report(self) -> fleet_service_pb2.SynchronizeRequest:
        """What it tells the scheduler."""
        report = fleet_service_pb2.SynchronizeRequest(
            node_id=self.node_id,
            instance_id=self.instance_id,
            address=self.address,
            state=fleet_service_pb2.NODE_STATE_DRAINING if self.draining else fleet_service_pb2.NODE_STATE_SERVING,
            backends=self.backends,
            toolkits=["kernelbench", "kernel_simple"],
            attempt_tokens=list(self.attempts),
            environment=self.environment,
            labels=self.labels,
            profiling=self.profiling,
        )
        for index in range(self.devices):
            report.devices.add(
                name=f"{self.kind}:{index}",
                kind=self.kind,
                model=self.model,
                memory_bytes=self.memory_bytes,
                lanes=self.lanes,
                ready=True,
            )
        return report

    async def _synchronize(self, stub: Any) -> None:
        """Report until a lease passes without an answer: the connection may be dead without having said so."""
        loop = asyncio.get_running_loop()
        answered, lease = loop.time(), 10.0
        while loop.time() - answered <= lease:
            self._news.clear()
            pause = SHORTEST_PAUSE / 2  # for a test that lets it speak again
            if self.reporting and not self.silent:
                try:
                    answer = await stub.Synchronize(self.report(), timeout=2)
                except grpc.aio.AioRpcError:
                    pause = random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE)
                else:
                    answered, lease = loop.time(), answer.lease.ToNanoseconds() / 1e9
                    self._registered.set()
                    pause = answer.next_synchronize.ToNanoseconds() / 1e9
                    for token in answer.cancel_attempt_tokens:
                        self._cancel(token)
            else:
                answered = loop.time()  # it has not asked
            # Not asyncio.wait_for: Python 3.11's loses a cancellation that comes together with news.
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()

    # Work

    async def _work(self, stub: Any) -> None:
        loop = asyncio.get_running_loop()
        pause = SHORTEST_PAUSE
        while True:
            await self._registered.wait()
            opened = loop.time()
            await self._stream(stub.Work())
            self._registered.clear()  # a scheduler that was restarted has to hear what this is first
            self._news.set()
            pause = SHORTEST_PAUSE if loop.time() - opened > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(random.uniform(pause / 2, pause))

    async def _stream(self, call: Any) -> None:
        self.streams += 1
        self._unsent, self._refusals = dict.fromkeys(self.attempts), []
        try:
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(self._read(call))
                writer = group.create_task(self._write(call, reader))
                await asyncio.wait([reader])
                writer.cancel()
        finally:
            self.at_work.clear()
            call.cancel()

    async def _read(self, call: Any) -> None:
        with suppress(grpc.aio.AioRpcError):
            while (response := await call.read()) is not grpc.aio.EOF:
                await self._while_silent()
                for assignment in response.assignments:
                    self._take(assignment)
                for token in response.cancel_attempt_tokens:
                    self._cancel(token)
                for token in response.acknowledged_attempt_tokens:
                    self._acknowledge(token)

    async def _write(self, call: Any, reader: asyncio.Task[None]) -> None:
        message = fleet_service_pb2.WorkRequest(
            node_id=self.node_id, instance_id=self.instance_id, held_attempt_tokens=self.attempts
        )
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader is told why
            while True:
                self._fill(message)
                await call.write(message)
                self.at_work.set()
                if self.breaks > 0 and message.events:
                    self.breaks -= 1
                    reader.cancel()
                    return
                if not self._unsent and not self._refusals:
                    self._to_send.clear()
                    await self._to_send.wait()
                await self._while_silent()
                message = fleet_service_pb2.WorkRequest()

    def _fill(self, message: fleet_service_pb2.WorkRequest) -> None:
        """Put into `message` what the scheduler has not heard: of each attempt only where it is now."""
        message.refusals.extend(self._refusals)
        self._refusals.clear()
        size = 0
        while self._unsent and size < BATCH_BYTES:
            token = next(iter(self._unsent))
            del self._unsent[token]
            held = self.attempts.get(token)
            if held is None:
                continue
            event = message.events.add(attempt_token=token)
            if held.device is None:
                event.stage = evaluation_pb2.STAGE_QUEUED
                continue
            event.device = f"{self.kind}:{held.device}"
            event.stage = evaluation_pb2.STAGE_LOADING
            if held.result is not None:
                event.stage = evaluation_pb2.STAGE_DONE
                event.result.CopyFrom(held.result)
                size += len(held.result.message) + 200

    async def _while_silent(self) -> None:
        while self.silent:  # noqa: ASYNC110 - a test sets it
            await asyncio.sleep(SHORTEST_PAUSE / 5)

    # Attempts

    def _take(self, assignment: fleet_service_pb2.Assignment) -> None:
        token, request = assignment.attempt_token, assignment.request
        script = dict(word.split("=", 1) for word in request.kernel_code[:1000].split() if "=" in word)
        if request.salt.endswith("~again"):
            again = {word: value for word, value in script.items() if word.startswith("again.")}
            script |= {word.removeprefix("again."): value for word, value in again.items()}
        if not request.enable_profiling:
            script.pop("coverage", None)
        held = Held(token, script.get("id") or request.id or token, script)
        if token in self.attempts:
            self.duplicates.append(held.name)
            self._changed(token)
        elif "refuse" in script and self._is_meant(script):
            self._refuse(held, f"WHY_{script['refuse']}")
        elif self.draining:
            self._refuse(held, "WHY_DRAINING")
        elif self._unfinished >= self.devices * (self.lanes + 1):
            self._refuse(held, "WHY_FULL")
        else:
            self.attempts[token] = held
            self.started.append(held.name)
            self._unfinished += 1
            self.most_at_once = max(self.most_at_once, self._unfinished)
            self._waiting.append(held)
            self._start_next()
            self._changed(token)

    def _refuse(self, held: Held, why: str) -> None:
        self.refused.append(held.name)
        refusal = Refusal(attempt_token=held.token, why=Refusal.Why.Value(why), detail="scripted")
        refusal.retry_delay.FromMilliseconds(RETRY_MS)
        if refusal.why == Refusal.WHY_INVALID:
            refusal.violations.add(field="kernel_code", description="the script says so")
        self._refusals.append(refusal)
        self._to_send.set()

    def _start_next(self) -> None:
        while self._waiting:
            device = self._busy.index(min(self._busy))
            if self._busy[device] >= max(1, self.lanes):
                return
            held = self._waiting.popleft()
            held.device = device
            self._busy[device] += 1
            seconds = self.mean_seconds * (1 + self.spread * random.uniform(-1, 1))
            loop = asyncio.get_running_loop()
            held.timer = loop.call_later(float(held.script.get("sleep", seconds)), self._finish, held)
            self._changed(held.token)

    def _finish(self, held: Held) -> None:
        script = held.script
        if "die" in script and self._is_meant(script):
            self.die()
            return
        outcome = Result.Outcome.Value(script.get("outcome", "CORRECT"))
        if outcome == Result.INFRASTRUCTURE_ERROR and not self._is_meant(script):
            outcome = Result.CORRECT
        needed = int(float(script.get("needs", "0")) * (1 << 30))
        if needed > self.memory_bytes:
            outcome = Result.PROBLEM_TOO_LARGE
        result = held.result = verdict(outcome, script, self.speedup)
        if outcome == Result.PROBLEM_TOO_LARGE:
            evidence = result.problem_too_large
            evidence.device_bytes = self.memory_bytes * 15 // 16  # the rest is the driver's
            evidence.needed_bytes = needed if needed and script.get("says") != "no" else evidence.device_bytes + 1
        result.environment.CopyFrom(self.environment)
        result.environment.node_id = self.node_id
        result.environment.device, result.environment.device_model = f"{self.kind}:{held.device}", self.model
        self._changed(held.token)
        self._free(held)

    def _cancel(self, token: str) -> None:
        held = self.attempts.pop(token, None)
        if held is not None and held.result is None:
            self.cancelled.append(held.name)
            if held.timer is not None:
                held.timer.cancel()
            self._free(held)

    def _acknowledge(self, token: str) -> None:
        if token in self.attempts:
            self.acknowledged.append(self.attempts[token].name)
        self._cancel(token)

    def _free(self, held: Held) -> None:
        self._unfinished -= 1
        if held.device is None:
            self._waiting.remove(held)
        else:
            self._busy[held.device] -= 1
        self._start_next()

    def _changed(self, token: str) -> None:
        self._unsent[token] = None
        self._to_send.set()

    def _is_meant(self, script: dict[str, str]) -> bool:
        return script.get("node", self.node_id) == self.node_id


def _take_and_close(listener: socket.socket) -> None:
    with suppress(OSError):  # the other end may have gone
        listener.accept()[0].close()


@asynccontextmanager
async def node(scheduler: object, node_id: str, **options: Any) -> AsyncIterator[ScriptedNode]:
    """Run a node for `scheduler` ("host:port") while the context lasts; leaving it is a sudden death."""
    scripted = ScriptedNode(node_id, **options)
    await scripted.listen()
    running = asyncio.get_running_loop().create_task(scripted.run(str(scheduler)))
    try:
        yield scripted
    finally:
        scripted.die()
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()


async def _main(options: argparse.Namespace) -> None:
    many = options.nodes > 1
    nodes = [
        ScriptedNode(
            f"{options.node_id}-{index}" if many else options.node_id,
            lanes=options.lanes,
            devices=options.devices,
            kind=options.kind,
            model=options.model,
            labels=dict(label.split("=", 1) for label in options.label),
            mean_seconds=options.mean_seconds,
            spread=options.spread,
            credentials=credentials.choose(),
            kills_process=True,
        )
        for index in range(options.nodes)
    ]
    async with asyncio.TaskGroup() as group:
        for one in nodes:
            await one.listen()
            group.create_task(one.run(options.scheduler))
        for one in nodes:
            await one.at_work.wait()
        print(f"scripted-node ready nodes={len(nodes)} pid={os.getpid()}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Simulate nodes, for tests and benchmarks of the scheduler.")
    add = parser.add_argument
    add("--scheduler", required=True, metavar="HOST:PORT")
    add("--node-id", default=socket.gethostname()[:90], help="with several nodes, each adds its number")
    add("--nodes", type=int, default=1)
    add("--devices", type=int, default=1, help="devices of each node")
    add("--lanes", type=int, default=2, help="lanes of each device")
    add("--kind", default="cpu")
    add("--model", default="Fake CPU")
    add("--label", action="append", default=[], metavar="KEY=VALUE")
    add("--mean-seconds", type=float, default=0.0, help="what an attempt takes unless its script says")
    add("--spread", type=float, default=0.0, help="0 to 1: how far from the mean, evenly distributed")
    return parser


if __name__ == "__main__":
    asyncio.run(_main(_parser().parse_args()))

"""Simulate an evaluator node: everything about it is real except the judging.

The node dials the scheduler, keeps its lease by Synchronize and its Work stream open, holds results until they are
acknowledged, and recognises an assignment whose token it already holds. The candidate's source is the script; script.py
lists its words. Only nodes know these:

    id=a                    what `started` and `cancelled` call the work; otherwise the request's id, or else the token
    refuse=FULL             the node refuses the assignment: FULL, DRAINING, INVALID or NO_MATCHING_DEVICE
    die=1                   the node dies; `python -m kerneldyno.testing` dies with all its nodes
    needs=20                GiB: PROBLEM_TOO_LARGE on a device with less memory; `says=no` hides the number
    builds=hang             a build order is not answered; `lost`, `busy` (once) and `die` are other ways to answer it
    node=n1                 `refuse`, `die` and an INFRASTRUCTURE_ERROR happen on this node only

`async with node(scheduler, "n1", lanes=2)` runs one in this process, `python -m kerneldyno.testing` many in a process of
their own. cluster.py starts a scheduler as well.
"""

from __future__ import annotations

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

from kerneldyno.rpc import channel, credentials
from kerneldyno.rpc.credentials import Credentials
from kerneldyno.testing import script as scripts
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
    """An attempt that waits or runs, or whose result is not acknowledged yet."""

    token: str
    name: str
    script: dict[str, str]
    device: int | None = None
    timer: asyncio.Handle | None = None
    result: Result | None = None


@dataclass(eq=False)
class ScriptedNode:
    """One node. `started`, `cancelled`, `acknowledged` and `refused` list the work that it saw, in order."""

    node_id: str
    memory_bytes: int = 8 << 30
    """Memory of each device."""
    lanes: int = 2
    """Attempts that run at once on each device; one more may wait."""
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
    """Attempts without `sleep` take `mean_seconds` times a factor, evenly distributed from 1 - spread to 1 + spread."""
    builders: int = 0
    """Candidates that it builds at once."""
    takes_build_orders: bool = True
    speedup: float = 0.0
    """Speedup of a CORRECT candidate whose script does not say; 0 for none."""
    credentials: Credentials = credentials.NONE
    """Credentials for the scheduler."""
    kills_process: bool = False
    """Whether `die` kills the whole process, not only this node."""
    instance_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    address: str = ""
    reporting: bool = True
    """Whether the node calls Synchronize. If not, its Work stream goes on and its lease expires."""
    silent: bool = False
    """Whether the node ignores all messages and sends none, with its connections open. Its attempts still finish."""
    draining: bool = False
    breaks: int = 0
    """Number of Work streams to break, each after its first events."""

    started: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    """Attempts that were cancelled before they had a result."""
    acknowledged: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    builds_cancelled: list[str] = field(default_factory=list)
    """Build orders that came, and those that were cancelled, by the names of their work."""
    duplicates: list[str] = field(default_factory=list)
    attempts: dict[str, Held] = field(default_factory=dict)
    """All attempts that the node holds, by token."""
    most_at_once: int = 0
    streams: int = 0
    """Number of Work streams opened so far."""
    at_work: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while a Work stream is open and its first message has been sent."""

    def __post_init__(self) -> None:
        self._busy = [0] * self.devices
        self._unfinished = 0
        self._waiting: deque[Held] = deque()
        self._unsent: dict[str, None] = {}
        self._refusals: list[Refusal] = []
        self._orders: dict[str, str] = {}
        self._build_reports: list[fleet_service_pb2.BuildReport] = []
        self._to_send, self._registered, self._news = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._listener: socket.socket | None = None
        self._running: asyncio.Task[None] | None = None

    # Life

    async def listen(self) -> None:
        """Open the port that the scheduler connects to when it checks whether the node is alive."""
        listener = self._listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        # Not an asyncio server: if it is closed in the loop's turn in which it accepts, the connection stays open.
        asyncio.get_running_loop().add_reader(listener, _take_and_close, listener)
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"

    async def run(self, scheduler: str) -> None:
        """Work for `scheduler` ("HOST:PORT") until the node dies."""
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
        """Die at once: everything that the node held is lost, its port is closed, and nobody is told."""
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
        """Return what the node tells the scheduler in Synchronize."""
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
            builders=self.builders,
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
        """Report until a lease passes without an answer, since a dead connection may look open."""
        loop = asyncio.get_running_loop()
        answered, lease = loop.time(), 10.0
        while loop.time() - answered <= lease:
            self._news.clear()
            pause = SHORTEST_PAUSE / 2  # a test may let it report again
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
                answered = loop.time()  # nothing was asked
            # Not asyncio.wait_for: in Python 3.11 it loses a cancellation that arrives together with the result.
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
            self._registered.clear()  # a restarted scheduler needs a report first
            self._news.set()
            pause = SHORTEST_PAUSE if loop.time() - opened > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(random.uniform(pause / 2, pause))

    async def _stream(self, call: Any) -> None:
        self.streams += 1
        self._unsent, self._refusals, self._build_reports, self._orders = dict.fromkeys(self.attempts), [], [], {}
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
                for order in response.build_orders:
                    self._build(order)
                self.builds_cancelled += [
                    self._orders.pop(id) for id in response.cancel_build_ids if id in self._orders
                ]

    async def _write(self, call: Any, reader: asyncio.Task[None]) -> None:
        message = fleet_service_pb2.WorkRequest(
            node_id=self.node_id,
            instance_id=self.instance_id,
            held_attempt_tokens=self.attempts,
            takes_build_orders=self.takes_build_orders,
        )
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader gets the reason
            while True:
                self._fill(message)
                await call.write(message)
                self.at_work.set()
                if self.breaks > 0 and message.events:
                    self.breaks -= 1
                    reader.cancel()
                    return
                if not self._unsent and not self._refusals and not self._build_reports:
                    self._to_send.clear()
                    await self._to_send.wait()
                await self._while_silent()
                message = fleet_service_pb2.WorkRequest()

    def _fill(self, message: fleet_service_pb2.WorkRequest) -> None:
        """Add to `message` the present state of each attempt that the scheduler has not been told."""
        message.refusals.extend(self._refusals)
        self._refusals.clear()
        message.build_reports.extend(self._build_reports)
        self._build_reports.clear()
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

    # Build orders

    def _build(self, order: fleet_service_pb2.BuildOrder) -> None:
        script = scripts.read(order.request)
        name, how = script.get("id") or order.build_id, script.get("builds", "") if self._is_meant(script) else ""
        again = name in self.built
        self.built.append(name)
        report = fleet_service_pb2.BuildReport(build_id=order.build_id, compilation=scripts.compilation(script))
        report.compilation.node_id = self.node_id
        if how == "die":
            self.die()
            return
        if how == "hang":
            self._orders[order.build_id] = name
            return
        if how == "lost" or (how == "busy" and not again):
            reason = evaluation_pb2.Compilation.Reason.Value({"lost": "REASON_NODE_LOST"}.get(how, "REASON_BUSY"))
            report.compilation.state, report.compilation.reason = evaluation_pb2.Compilation.STATE_NOT_COMPILED, reason
        self._build_reports.append(report)
        self._to_send.set()

    # Attempts

    def _take(self, assignment: fleet_service_pb2.Assignment) -> None:
        token, request = assignment.attempt_token, assignment.request
        script = scripts.read(request)
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
        outcome = scripts.outcome_of(script)
        if outcome == Result.INFRASTRUCTURE_ERROR and not self._is_meant(script):
            outcome = Result.CORRECT
        needed = int(float(script.get("needs", "0")) * (1 << 30))
        if needed > self.memory_bytes:
            outcome = Result.PROBLEM_TOO_LARGE
        result = held.result = scripts.result(script, outcome, self.speedup)
        if outcome == Result.PROBLEM_TOO_LARGE:
            evidence = result.problem_too_large
            evidence.device_bytes = self.memory_bytes * 15 // 16  # the driver takes the rest
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
    """Run a node in this process until the block ends; then it dies at once.

    Args:
        scheduler: address of the scheduler, "HOST:PORT".
        node_id: name of the node.
        options: fields of ScriptedNode.

    Yields:
        The node. Its `at_work` is set once it can get work.
    """
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

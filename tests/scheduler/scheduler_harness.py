"""Shared parts of the scheduler's tests: a state machine on a fake clock, a running scheduler, a client's stream."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import grpc
import pytest

from kerneldyno.rpc import channel, errors
from kerneldyno.scheduler import failpoints
from kerneldyno.scheduler.app import RunningScheduler, running
from kerneldyno.scheduler.core.core import Core
from kerneldyno.scheduler.core.model import (
    Attempt,
    ClientKind,
    Device,
    Evaluation,
    Job,
    Key,
    Node,
    Priority,
    Report,
    Requirement,
    Spec,
    SubmitRequest,
    SubmitStatus,
    Verdict,
)
from kerneldyno.scheduler.core.observer import Observer
from kerneldyno.scheduler.core.ports import Store
from kerneldyno.scheduler.core.records import Record
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.store.journal import ImmediateJournal
from kerneldyno.scheduler.store.memory import MemoryStore
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1 import scheduler_service_pb2 as pb
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub

Outcome = evaluation_pb2.EvalResult.Outcome

# The state machine, without sockets

NEED = Requirement("triton", "kernelbench")
#: The environment that nodes of `World` report. Its fingerprint adds a slash and the model of the device.
ENVIRONMENT = b"environment"
CORRECT = Verdict("CORRECT", b"payload", environment=ENVIRONMENT + b"/CPU")
CRASH = Verdict.failed("NODE_LOST", "it is gone", retryable=True)


def spec(need: Requirement = NEED, *, reference: bytes = b"ref", payload: bytes = b"p") -> Spec:
    """Return work that takes 240 s at most."""
    return Spec(need, reference, payload, 240.0)


def digest_of(work: str) -> bytes:
    """Return the digest of the work that tests call `work`."""
    return hashlib.sha256(work.encode()).digest()


class FakeClock:
    """A clock that stands still between calls of `World.pass_by`."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + 1e9


class HeldJournal:
    """A journal that writes only when told to. A crash loses what it has not written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records: list[Record] = []
        self._calls: list[Callable[[], None]] = []

    def append(self, record: Record) -> None:
        self._records.append(record)

    def after_commit(self, call: Callable[[], None]) -> None:
        if self._records:
            self._calls.append(call)
        else:
            call()

    def has_room(self) -> bool:
        return True

    def commit(self) -> None:
        """Write what was appended so far, as one batch, and make the calls that waited for it."""
        if self._records:
            self._store.write(self._records)
        calls, self._records, self._calls = self._calls, [], []
        for call in calls:
            call()


class Log(Observer):
    """An observer that keeps what a state machine tells it, in order."""

    def __init__(self) -> None:
        self.dropped: list[tuple[str, bool]] = []
        self.retries: list[str] = []
        self.stale: list[str] = []
        self.lost: list[tuple[str, str]] = []
        self.joined: list[str] = []
        self.deduplications: list[str] = []
        self.quarantines: list[tuple[str, str]] = []
        self.done: list[Key] = []

    def attempt_dropped(self, attempt: Attempt, *, node_lost: bool) -> None:
        self.dropped.append((attempt.token, node_lost))

    def retried(self, job: Job, cause: str) -> None:
        self.retries.append(cause)

    def stale_completion(self, token: str) -> None:
        self.stale.append(token)

    def node_joined(self, node: Node) -> None:
        self.joined.append(node.id)

    def node_lost(self, node: Node, *, expired: bool) -> None:
        self.lost.append((node.id, "expired" if expired else "dead"))

    def deduplicated(self, how: str) -> None:
        self.deduplications.append(how)

    def quarantined(self, kind: str, subject: str, reason: str) -> None:
        self.quarantines.append((kind, subject))

    def evaluation_done(self, evaluation: Evaluation) -> None:
        self.done.append(evaluation.key)


class Reader:
    """A watcher that waits for evaluations."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def evaluation_done(self, evaluation: Evaluation) -> None:
        self.seen.append(evaluation.key.id)


class World:
    """A state machine, a log of what it told, and helpers. Its journal writes at once unless another is given."""

    def __init__(self, store: Store | None = None, journal: HeldJournal | None = None, **changes: Any) -> None:
        self.clock = FakeClock()
        self.store = store or MemoryStore()
        tokens = (f"t{i}" for i in itertools.count())
        self.core = Core(
            Settings(**changes),
            self.clock,
            lambda: next(tokens),
            self.store,
            journal or ImmediateJournal(self.store),
            fingerprint=lambda environment, model: environment + b"/" + model.encode(),
        )
        self.log = Log()
        self.core.observers.append(self.log)
        if store is None:
            weakref.finalize(self, self.store.close)

    def submit(
        self, name: str, priority: Priority = Priority.NORMAL, need: Requirement = NEED, **more: Any
    ) -> Evaluation:
        """Submit work and let it be accepted. Without `work`, no other evaluation shares the job."""
        submission, evaluation = self.offer(name, priority, need, **more)
        assert submission is SubmitStatus.NEW
        assert evaluation is not None
        return evaluation

    def offer(
        self, name: str, priority: Priority = Priority.NORMAL, need: Requirement = NEED, **more: Any
    ) -> tuple[SubmitStatus, Evaluation | None]:
        """Submit work; return the answer and the evaluation."""
        work = more.pop("work", name)
        return self.core.requests.submit(
            SubmitRequest(
                key=Key(more.pop("client", "c"), name),
                kind=more.pop("kind", ClientKind.STREAM),
                spec=spec(need, reference=more.pop("reference", b"ref"), payload=more.pop("payload", work.encode())),
                digest=digest_of(work),
                fingerprint=more.pop("body", work).encode(),
                priority=priority,
                **more,
            )
        )

    def report(self, node_id: str, lanes: int = 1, *, connect: bool = True, **changes: Any) -> list[str] | None:
        """Synchronize a node, and open its Work stream if it is closed; return what the node is told to drop."""
        fields: dict[str, Any] = {
            "instance_id": "i",
            "address": f"{node_id}:1",
            "devices": (Device("cpu:0", "cpu", "CPU", 1 << 30, lanes, True),),
            "backends": frozenset({"triton"}),
            "toolkits": frozenset({"kernelbench"}),
            "environment": ENVIRONMENT,
        }
        report = Report(node_id=node_id, **(fields | changes))
        told = self.core.nodes.synchronize(report)
        if told is not None and connect:
            assert self.core.nodes.connect(node_id, report.instance_id) is self.node(node_id)
        return told

    def node(self, node_id: str) -> Node:
        return self.core.fleet.nodes[node_id]

    def pass_by(self, seconds: float, *reporting: str, step: float = 1.0) -> None:
        """Let time pass in ticks. At each tick, the `reporting` nodes repeat their last report."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now = min(end, self.clock.now + step)
            for node_id in reporting:
                self.core.nodes.synchronize(self.node(node_id).report)
            self.core.tick()

    def place(self) -> dict[str, Attempt]:
        """Place the waiting jobs; return each attempt by the id of one evaluation that waits for it."""
        return {key.id: attempt for attempt in self.core.placement.place() for key in list(attempt.job.evaluations)[:1]}

    def placed(self) -> dict[str, str]:
        """Place the waiting jobs; return the node of each evaluation."""
        return {name: attempt.node.id for name, attempt in self.place().items()}

    def run(self, name: str, verdict: Verdict = CORRECT) -> Attempt:
        """Place the waiting jobs, and end the attempt of `name` with `verdict`."""
        attempt = self.place()[name]
        assert self.core.results.complete(attempt.token, verdict)
        return attempt


def outcome(evaluation: Evaluation) -> str | None:
    return evaluation.verdict.outcome if evaluation.verdict else None


def cause(evaluation: Evaluation) -> str | None:
    """Return why infrastructure failed the evaluation; None if it did not."""
    return evaluation.verdict.failure.cause if evaluation.verdict and evaluation.verdict.failure else None


# Running schedulers


def settings(**changes: Any) -> Settings:
    """Return settings for tests: free ports, short leases."""
    return Settings(
        **{
            "listen": "127.0.0.1:0",
            "metrics": "off",
            "heartbeat_seconds": 0.4,
            "lease_seconds": 1.5,
            "drain_seconds": 5.0,
            **changes,
        }
    )


def request(request_id: str, script: str = "pass", *, work: str | None = None, **fields: Any) -> EvalRequest:
    """Return a well-formed request; the scripted node follows `script`. Without `work`, its work is unique."""
    fields.setdefault("reference_code", "ref")
    fields.setdefault("kernel_code", f"id={work or request_id} {script}")
    return EvalRequest(id=request_id, **fields)


def once(*args: Any, client_id: str = "", **fields: Any) -> pb.EvaluateOnceRequest:
    """Return the same request for EvaluateOnce."""
    return pb.EvaluateOnceRequest(request=request(*args, **fields), client_id=client_id)


@asynccontextmanager
async def scheduler(**changes: Any) -> AsyncIterator[tuple[RunningScheduler, Any]]:
    """Run a scheduler; yield it and a stub of its SchedulerService."""
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(running(settings(**changes)))
        peer = await stack.enter_async_context(connect(app))
        yield app, SchedulerServiceStub(peer)


def connect(app: RunningScheduler) -> grpc.aio.Channel:
    """Return a channel to `app` with its own connection."""
    options = channel.client_options(own_connection=True)
    return grpc.aio.insecure_channel(channel.target(str(app.address)), options=options)


async def failure(call: Any) -> errors.KernelDynoError:
    """Return the error that refused a call, and check that the status agrees with it."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    error = errors.from_rpc_error(failed.value)
    assert error is not None, failed.value
    assert failed.value.code() is error.code
    return error


@contextmanager
def failing(place: str) -> Iterator[None]:
    """Arm a failpoint of this process, as KERNELDYNO_FAILPOINTS does when a process starts."""
    armed, failpoints._armed = failpoints._armed, failpoints.parse(place)
    try:
        yield
    finally:
        failpoints._armed = armed


def sample(app: RunningScheduler, name: str, **labels: str) -> float | None:
    """Return the value of a metric from the scheduler's metrics page."""
    return app.registry.get_sample_value(f"kerneldyno_{name}", labels)


class Stream:
    """A client's end of one stream. `call` delivers the messages, and `_take` handles them."""

    def __init__(self, call: Any, client_id: str) -> None:
        self.client_id = client_id
        self.call = call

    async def until(self, met: Callable[[], bool], seconds: float = 20) -> None:
        """Read until `met()` is true."""
        async with asyncio.timeout(seconds):
            while not met():
                response = await self.call.read()
                assert response is not grpc.aio.EOF, "the stream ended early"
                self._take(response)

    async def read_to_the_end(self, seconds: float = 20) -> None:
        """Half-close and read what is left."""
        await self.call.done_writing()
        async with asyncio.timeout(seconds):
            while (response := await self.call.read()) is not grpc.aio.EOF:
                self._take(response)

    def _take(self, response: Any) -> None:
        raise NotImplementedError


class Client(Stream):
    """A client's end of one Evaluate stream."""

    def __init__(self, stub: Any, client_id: str = "c") -> None:
        super().__init__(stub.Evaluate(), client_id)
        self.accepted: list[str] = []
        self.unknown: list[str] = []
        self.results: dict[str, EvalResult] = {}
        self.order: list[str] = []

    async def send(self, *requests: EvalRequest, cancel: tuple[str, ...] = (), attach: tuple[str, ...] = ()) -> None:
        """Send one message."""
        await self.call.write(
            pb.EvaluateRequest(client_id=self.client_id, requests=requests, cancel_ids=cancel, attach_ids=attach)
        )

    async def finish(self, seconds: float = 20) -> dict[str, EvalResult]:
        """Half-close, read to the end, and return the results."""
        await self.read_to_the_end(seconds)
        return self.results

    def _take(self, response: pb.EvaluateResponse) -> None:
        match response.WhichOneof("event"):
            case "accepted":
                self.accepted += response.accepted.ids
            case "unknown":
                self.unknown += response.unknown.ids
            case "result":
                assert response.result.id not in self.results, "a result came twice"
                self.results[response.result.id] = response.result
                self.order.append(response.result.id)

"""Clients that write history: the real client library with a recording ledger, readers of every kind, and workloads.

The library repairs failures, so it would submit a lost evaluation again without a word. `recording` therefore notes
every answer of the scheduler before the library acts on it.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import grpc.aio

from kerneldyno.client import AsyncClient
from kerneldyno.client.evaluation_ledger import EvaluationLedger
from kerneldyno.rpc import channel
from kerneldyno.v1.evaluation_pb2 import STAGE_DONE, EvalRequest, EvalResult
from kerneldyno.v1.scheduler_service_pb2 import (
    EvaluateRequest,
    EvaluateResponse,
    Evaluation,
    GetEvaluationRequest,
    ListEvaluationsRequest,
)
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.chaos.history import History

#: Outcomes of a workload's candidates, and their weights.
MIX = {
    "CORRECT": 60,
    "INCORRECT": 15,
    "COMPILE_ERROR": 8,
    "RUNTIME_ERROR": 6,
    "TIMEOUT": 5,
    "OUT_OF_MEMORY": 3,
    "REJECTED": 3,
}
#: Seconds for which a reader tries to reach the scheduler.
PATIENCE_SECONDS = 60.0

_numbers = itertools.count(1)  # numbers of the streams and listings of this process


# Workloads


def request(
    id: str, work: str, *, outcome: str = "CORRECT", seconds: float = 0.02, more: str = "", **fields: Any
) -> EvalRequest:
    """Return a request whose candidate is a script for the scripted node."""
    script = f"work={work} sleep={seconds:.4f} outcome={outcome} {more}".strip()
    return EvalRequest(id=id, reference_code=fields.pop("reference", "ref"), kernel_code=script, **fields)


def workload(
    prefix: str, count: int, draw: random.Random, *, seconds: tuple[float, float] = (0.005, 0.05), repeats: float = 0.05
) -> Iterator[EvalRequest]:
    """Yield `count` requests with mixed outcomes. A share of them, `repeats`, asks for the work of an earlier one."""
    earlier: list[EvalRequest] = []
    for number in range(count):
        if earlier and draw.random() < repeats:
            again = EvalRequest()
            again.CopyFrom(draw.choice(earlier))
            again.id = f"{prefix}-{number}"
            yield again
            continue
        outcome = draw.choices(list(MIX), list(MIX.values()))[0]
        one = request(f"{prefix}-{number}", f"{prefix}-{number}", outcome=outcome, seconds=draw.uniform(*seconds))
        if len(earlier) < 1000 and outcome not in (
            "TIMEOUT",
            "OUT_OF_MEMORY",
        ):  # these are never answered from the store
            earlier.append(one)
        yield one


def script_of(one: EvalRequest) -> dict[str, str]:
    """Return the words of a candidate's script."""
    return dict(word.split("=", 1) for word in one.kernel_code.split() if "=" in word)


# The client library, with a record of what it does


@contextmanager
def recording(history: History) -> Iterator[None]:
    """Make every AsyncClient of this process note in `history` what it submits and hears."""

    class Recording(RecordingLedger):
        notes = history

    with mock.patch("kerneldyno.client.aio.EvaluationLedger", Recording):
        yield


class RecordingLedger(EvaluationLedger):
    """The library's memory of one call. It notes everything that passes through it."""

    notes: History

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id)
        self._name = client_id
        self._heard = False
        self._open_stream()

    def add(self, request: EvalRequest) -> None:
        note_submit(self.notes, self._name, request)
        super().add(request)

    def reconnected(self) -> None:
        self._open_stream()
        self.notes.note("stream", "info", client=self._name, number=self._stream)
        super().reconnected()

    def receive(self, response: EvaluateResponse) -> EvalResult | None:
        if not self._heard:
            self._heard = True
            self.notes.note("stream", "ok", client=self._name, number=self._stream)
        note_response(self.notes, self._name, response, reader="stream", stream=self._stream, since=self._opened_at)
        return super().receive(response)

    def _open_stream(self) -> None:
        self._stream, self._opened_at = next(_numbers), time.monotonic()
        self._heard = False


def note_submit(history: History, client: str, one: EvalRequest) -> None:
    """Note that `one` is submitted. Its script says which outcomes to expect."""
    script = script_of(one)
    expect = script.get("expect", script.get("outcome", "CORRECT")).split("|")
    history.note(
        "submit",
        "invoke",
        client=client,
        id=one.id,
        work=script.get("work", one.id),
        expect=expect,
        fresh=one.skip_cache,
    )


def note_response(
    history: History, client: str, response: EvaluateResponse, *, reader: str, stream: int, since: float
) -> None:
    """Note a message of an Evaluate stream."""
    match response.WhichOneof("event"):
        case "accepted":
            for id in response.accepted.ids:
                history.note("submit", "ok", client=client, id=id, stream=stream)
        case "unknown":
            for id in response.unknown.ids:
                note_unknown(history, client, id, reader=reader, since=since)
        case "result":
            note_result(history, client, response.result, reader=reader, since=since, stream=stream)


def note_unknown(history: History, client: str, id: str, *, reader: str, since: float) -> None:
    """Note that the scheduler does not know an evaluation."""
    history.note(
        "state", "ok", client=client, id=id, reader=reader, since=since, known=False, accepted=None, attempts=0
    )


def note_result(history: History, client: str, result: EvalResult, **fields: Any) -> None:
    """Note a result from any reader. `seen` is a digest of all its bytes."""
    token = re.search(r"token=(\w+)", result.message)
    history.note(
        "result",
        "ok",
        client=client,
        id=result.id,
        outcome=EvalResult.Outcome.Name(result.outcome),
        cause=result.infrastructure_error.cause,
        token=token[1] if token else "",
        attempts=result.attempts,
        cached=result.cached,
        merged=result.merged,
        accepted=result.accept_time.ToNanoseconds(),
        seen=hashlib.sha256(result.SerializeToString(deterministic=True)).hexdigest()[:16],
        **fields,
    )


# Readers


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Any]:
    """Connect to the scheduler, or to the one of a list that serves, by a separate connection; yield a stub."""
    async with channel.open(address, own_connection=True) as connection:
        yield SchedulerServiceStub(connection)


class Reader:
    """A reader of one client's evaluations. It reads them in every way there is, and notes what it sees."""

    def __init__(self, stub: Any, client: str, history: History) -> None:
        self._stub = stub
        self._client = client
        self._history = history

    async def get(self, id: str) -> bool:
        """Read one evaluation by GetEvaluation; return whether it has a result."""
        since = time.monotonic()
        try:
            message = GetEvaluationRequest(client_id=self._client, id=id)
            answer = await self._stub.GetEvaluation(message, timeout=10)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                note_unknown(self._history, self._client, id, reader="get", since=since)
            else:
                self._failed("get", error)
            return False
        return self._note(answer.evaluation, reader="get", since=since)

    async def list_all(self) -> int:
        """Page through ListEvaluations to its end; return the number of evaluations."""
        number, since, seen = next(_numbers), time.monotonic(), 0
        message = ListEvaluationsRequest(client_id=self._client, page_size=200, full_results=True)
        while True:
            try:
                page = await self._stub.ListEvaluations(message, timeout=30)
            except grpc.aio.AioRpcError as error:
                self._failed("list", error)
                await asyncio.sleep(0.2)
                if time.monotonic() - since > PATIENCE_SECONDS:
                    raise
                continue
            for evaluation in page.evaluations:
                self._note(evaluation, reader="list", since=since, listing=number)
            seen += len(page.evaluations)
            message.page_token = page.next_page_token
            if not message.page_token:
                return seen

    async def attach(self, ids: Sequence[str], seconds: float = PATIENCE_SECONDS) -> int:
        """Ask for the results of `ids` on a new stream, like a client that came back; return the number of results."""
        stream, since = next(_numbers), time.monotonic()
        call = self._stub.Evaluate(timeout=seconds)
        results = 0
        try:
            for start in range(0, len(ids), 1000):
                await call.write(EvaluateRequest(client_id=self._client, attach_ids=ids[start : start + 1000]))
            await call.done_writing()
            while isinstance(response := await call.read(), EvaluateResponse):
                results += response.HasField("result")
                note_response(self._history, self._client, response, reader="attach", stream=stream, since=since)
        except grpc.aio.AioRpcError as error:
            self._failed("attach", error)
        return results

    def _note(self, evaluation: Evaluation, **fields: Any) -> bool:
        if evaluation.stage == STAGE_DONE:
            note_result(self._history, self._client, evaluation.result, **fields)
            return True
        self._history.note(
            "state",
            "ok",
            client=self._client,
            id=evaluation.id,
            known=True,
            accepted=evaluation.accept_time.ToNanoseconds(),
            attempts=evaluation.attempts,
            **fields,
        )
        return False

    def _failed(self, reader: str, error: grpc.aio.AioRpcError) -> None:
        code, detail = error.code().name, error.details()
        self._history.note("read", "fail", client=self._client, reader=reader, code=code, detail=detail)


async def audit(address: str, client: str, ids: Iterable[str], history: History) -> None:
    """Read every evaluation of `client` in each way, at the end of a run."""
    ids = list(ids)
    async with connected(address) as stub:
        reader = Reader(stub, client, history)
        for start in range(0, len(ids), 32):
            await asyncio.gather(*(reader.get(id) for id in ids[start : start + 32]))
        await reader.list_all()
        await reader.attach(ids)


async def spy(address: str, client: str, ids: Sequence[str], history: History, draw: random.Random) -> None:
    """Read random evaluations during the run, until cancelled."""
    async with connected(address) as stub:
        reader = Reader(stub, client, history)
        while True:
            await asyncio.sleep(draw.expovariate(20))
            if ids:
                await reader.get(draw.choice(ids[-500:]))


async def drive(
    address: str, client: str, requests: Iterable[EvalRequest], history: History, *, window: int = 64, seed: int = 0
) -> list[str]:
    """Evaluate `requests` by the client library while a spy reads; return the ids in the order of their results."""
    ids: list[str] = []

    def taken() -> Iterator[EvalRequest]:
        for one in requests:
            ids.append(one.id)
            yield one

    done = []
    watching = asyncio.create_task(spy(address, client, ids, history, random.Random(seed)))
    try:
        async with AsyncClient(address, client_id=client, window=window, reconnect_timeout=120) as library:
            async for result in library.evaluate(taken()):
                done.append(result.id)
    except Exception as error:
        history.note("read", "fail", client=client, reader="library", code=type(error).__name__, detail=str(error))
        raise
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    return done


def events_file(directory: Path) -> Path:
    """Return the file that the processes of a run write to."""
    return directory / "events.jsonl"

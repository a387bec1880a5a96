"""Tests of traces of a scheduler with scripted nodes, also when nodes, schedulers or the collector fail."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from kerneldyno.client import AsyncClient
from kerneldyno.rpc import tracing
from kerneldyno.scheduler.store.sqlite import SqliteStore
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.fleet_service_pb2 import NODE_STATE_LOST, Assignment, Node
from kerneldyno.v1.scheduler_service_pb2 import EvaluateOnceRequest, GetEvaluationRequest
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests import ROOT
from tests.e2e import e2e_harness as e2e
from tests.scheduler.rewards_harness import PLAIN, Trainer, turn
from tests.scheduler.scheduler_harness import connect, request, scheduler
from tests.scheduler.store_records import accepted
from tests.tracing.collector import Collector, Span, environment, settings, traced_client
from tests.waiting import free_port

WHOLE, ATTEMPT, QUEUE = (f"kerneldyno.scheduler.{name}" for name in ("evaluation", "attempt", "queue"))
CLIENT = "kerneldyno.client.evaluate"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as one, traced_client(one.endpoint):
        yield one


@contextmanager
def traced_scheduler(endpoint: str, *options: str, **more: str) -> Iterator[e2e.Service]:
    with environment(**settings(endpoint, **more)):
        service = e2e.scheduler("--heartbeat", "0.4", "--lease", "1.5", "--log-level", "WARNING", *options)
        service.__enter__()
    try:
        yield service
    finally:
        service.__exit__(None, None, None)


@pytest.fixture(scope="module")
def address(collector: Collector) -> Iterator[str]:
    with traced_scheduler(collector.endpoint) as service:
        yield service.address


async def judge(address: str, *requests: EvalRequest, client_id: str = "c") -> dict[str, EvalResult]:
    async with AsyncClient(address, client_id=client_id) as client:
        return {result.id: result async for result in client.evaluate(requests)}


def named(spans: list[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


async def test_a_retry_after_a_killed_node_is_an_attempt_of_its_own(address: str, collector: Collector) -> None:
    async with node(address, "n1"):
        judging = asyncio.create_task(judge(address, request("killed", "die=1 node=n1 sleep=0.05")))
        while (await _nodes(address))["n1"].state != NODE_STATE_LOST:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
    async with node(address, "n2"):
        assert (await judging)["killed"].attempts == 2
    spans = collector.whole("killed", CLIENT)
    (whole,), (first, second) = named(spans, WHOLE), named(spans, ATTEMPT)
    assert [one.parent_id for one in (first, second)] == [whole.span_id] * 2
    assert (first.failed, first.attributes["error.type"]) == (True, "NODE_LOST")
    assert (second.failed, second.attributes["kerneldyno.outcome"]) == (False, "CORRECT")
    assert [one.attributes["kerneldyno.attempt.number"] for one in (first, second)] == [1, 2]
    assert [one.attributes["kerneldyno.node.id"] for one in (first, second)] == ["n1", "n2"]
    assert second.links == ((first.trace_id, first.span_id),)
    waits = named(spans, QUEUE)
    assert len(waits) == 2
    assert waits[1].start >= first.end - 1_000_000, "the second wait begins when the first attempt has ended"
    assert not whole.failed


async def test_a_wait_after_a_refusal_begins_with_it(address: str, collector: Collector) -> None:
    async with node(address, "n1") as worker:
        judging = asyncio.create_task(judge(address, request("refused", "refuse=FULL node=n1")))
        while not worker.refused:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
        async with node(address, "n2"):
            await judging
    spans = collector.whole("refused", CLIENT)
    waits, attempts = named(spans, QUEUE), named(spans, ATTEMPT)
    assert len(waits) == len(attempts) > 1
    for wait, before in zip(waits[1:], attempts, strict=False):
        assert wait.start >= before.end - 1_000_000


async def _nodes(address: str) -> dict[str, Node]:
    async with AsyncClient(address) as client:
        found = {one.node_id: one for one in await client.nodes()}
    return {"n1": Node(), **found}


async def test_merged_requests_are_linked(address: str, collector: Collector) -> None:
    async with node(address, "n1"):
        first, second = request("m1", "sleep=0.4", work="m"), request("m2", "sleep=0.4", work="m")
        results = await judge(address, first, second)
        assert [results[id].merged for id in ("m1", "m2")] == [False, True]
        again = await judge(address, request("m3", "sleep=0.4", work="m"))
        assert again["m3"].cached
    spans = {id: collector.whole(id, CLIENT) for id in ("m1", "m2", "m3")}
    assert len({found[0].trace_id for found in spans.values()}) == 3
    (whole1,), (whole2,), (whole3,) = (named(found, WHOLE) for found in spans.values())
    assert whole2.links == ((whole1.trace_id, whole1.span_id),)
    assert (whole1.links, whole3.links) == ((), ())
    assert [one.attributes["kerneldyno.answered_by"] for one in (whole1, whole2, whole3)] == ["run", "merged", "cached"]
    assert [len(named(found, ATTEMPT)) for found in spans.values()] == [1, 0, 0]


async def test_the_trace_goes_on_after_a_crash_of_the_scheduler(collector: Collector, tmp_path: Path) -> None:
    where = f"127.0.0.1:{free_port()}"
    # A long lease: on a busy machine the node takes a while to find the second scheduler.
    options = ("--listen", where, "--store", f"sqlite:{tmp_path / 'journal'}", "--lease", "60")
    requests = [request("running", "sleep=2.5"), request("waiting", "sleep=0.1")]
    with traced_scheduler(collector.endpoint, *options) as first:
        async with node(where, "n1", lanes=1) as worker:
            judging = asyncio.create_task(judge(where, *requests))
            async with asyncio.timeout(20):
                while not worker.started:  # noqa: ASYNC110 - the thing watched has no event
                    await asyncio.sleep(0.02)
            before = [span.name for span in collector.of("running")]
            first.process.kill()
            first.process.wait()
            with traced_scheduler(collector.endpoint, *options):
                results = await judging
                assert {EvalResult.Outcome.Name(one.outcome) for one in results.values()} == {"CORRECT"}
                assert results["running"].attempts == 1
                for id in ("running", "waiting"):
                    spans = collector.whole(id, CLIENT, ATTEMPT)
                    (client,), (whole,), (attempt,) = (named(spans, name) for name in (CLIENT, WHOLE, ATTEMPT))
                    assert (whole.parent_id, attempt.parent_id) == (client.span_id, whole.span_id)
                    assert client.start <= whole.start <= attempt.start
                    assert attempt.end <= whole.end <= client.end + 50_000_000
    assert WHOLE not in before, "it was unfinished when the scheduler died"


async def test_a_store_of_before_is_taken_over(tmp_path: Path) -> None:
    """The journal has no table of traces, as with an older version."""
    path = tmp_path / "journal"
    SqliteStore(path).close()
    with sqlite3.connect(path) as older:
        older.executescript("DROP TRIGGER trace_forgotten; DROP TABLE traces;")
    older.close()
    store = SqliteStore(path)
    traced = replace(accepted("a"), trace=f"00-{'1' * 32}-{'2' * 16}-01")
    store.write([traced, accepted("b")])
    store.close()
    store = SqliteStore(path)
    found = store.recover()
    assert [one.trace for one in found.evaluations] == [traced.trace, ""]
    assert [one.trace for one in found.jobs] == [traced.trace, ""]
    store.close()


@pytest.mark.parametrize("id", ["named", ""])
async def test_a_single_call_of_a_request_that_names_its_trace(address: str, collector: Collector, id: str) -> None:
    """The client's span is below the span that the request names, and above the scheduler's span."""
    trace, above = f"{len(id) + 1:032x}", "b" * 16
    one = request(id, work="single")
    one.trace_context.traceparent = f"00-{trace}-{above}-01"
    before = EvalRequest.FromString(one.SerializeToString())
    async with node(address, "n1"), AsyncClient(address) as client:
        result = await client.evaluate_once(one)
    spans = collector.whole(result.id, CLIENT)
    (mine,), (whole,) = named(spans, CLIENT), named(spans, WHOLE)
    assert (whole.trace_id, whole.parent_id, mine.parent_id) == (trace, mine.span_id, above)
    assert mine.attributes["kerneldyno.outcome"] == "CORRECT"
    assert one == before


@pytest.mark.parametrize("above", ["", f"00-{'d' * 32}-{'e' * 16}-01"])
async def test_a_second_measurement_is_in_the_trace_of_the_first(
    address: str, collector: Collector, above: str
) -> None:
    """This is true for a turn that names a trace, and for one that names none."""
    one = turn(f"measured {len(above)}", "speedup=9 again.speedup=2")
    if above:
        one.request.trace_context.traceparent = above
    async with node(address, "n1"), grpc.aio.insecure_channel(address) as peer:
        trainer = Trainer(peer)
        await trainer.send(one)
        await trainer.finish()
    name = one.request.id
    spans = collector.until(lambda: len(found := named(collector.of(name), WHOLE)) == 2 and found)
    first, second = spans
    assert [span.attributes["kerneldyno.evaluation.id"] for span in spans] == [name, f"{name}~again"]
    assert (first.parent_id, second.parent_id) == (("e" * 16,) * 2 if above else ("", first.span_id))


class TestSampling:
    async def test_the_schedulers_own_sampler_decides_on_traces_that_it_begins(self, collector: Collector) -> None:
        none = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}
        with traced_scheduler(collector.endpoint, **none) as service:
            async with node(service.address, "n1"):
                await _untraced(service.address, request("root"))
                await judge(service.address, request("child"))  # the client's span is sampled, so its children are
                collector.whole("child", CLIENT, ATTEMPT)
        assert collector.of("root") == []

    async def test_a_client_that_records_nothing_has_nobody_record_it(self, address: str) -> None:
        with Collector() as own, traced_client(own.endpoint, OTEL_TRACES_SAMPLER="always_off"):
            async with node(address, "n1"):
                await judge(address, request("dark"))
            await asyncio.sleep(0.3)
            assert own.spans == []


async def _untraced(address: str, one: EvalRequest) -> None:
    """Have a request judged through a client without tracing."""
    async with grpc.aio.insecure_channel(address) as channel:
        await SchedulerServiceStub(channel).EvaluateOnce(EvaluateOnceRequest(request=one), timeout=20)


class TestCollectorAway:
    async def test_nobody_notices(self) -> None:
        """A collector that is not there, or never answers, slows neither evaluations nor the end of the scheduler."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            for port in (free_port(), silent.getsockname()[1]):
                with traced_scheduler(f"http://127.0.0.1:{port}", OTEL_BSP_MAX_QUEUE_SIZE="64") as service:
                    async with node(service.address, "n1", lanes=8):
                        begun = time.monotonic()
                        results = await judge(service.address, *(request(f"r{index}") for index in range(200)))
                        assert time.monotonic() - begun < 10
                        assert {EvalResult.Outcome.Name(one.outcome) for one in results.values()} == {"CORRECT"}
                    begun = time.monotonic()
                    service.process.terminate()
                    assert service.exit_status(20) == 0
                    assert time.monotonic() - begun < 10


_PROGRAM = """
import asyncio, sys, threading
from kerneldyno.client import AsyncClient
from kerneldyno.rpc import tracing
from tests.scheduler.scheduler_harness import request, scheduler
from kerneldyno.testing.scripted_node import node
import kerneldyno.evaluator.__main__

async def main():
    async with scheduler() as (app, _), node(str(app.address), "n1"), AsyncClient(str(app.address)) as client:
        print(len([result async for result in client.evaluate([request("a"), request("b")])]))

asyncio.run(main())
print(sum(name.partition(".")[0] == "opentelemetry" for name in sys.modules))
"""


@pytest.mark.parametrize(
    ("values", "imported"), [({"OTEL_SERVICE_NAME": "x"}, False), ({"OTEL_TRACES_EXPORTER": "otlp"}, True)]
)
def test_without_configuration_nothing_is_imported(values: dict[str, str], imported: bool) -> None:
    with environment(**values):
        ran = subprocess.run([sys.executable, "-c", _PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    judged, modules = ran.stdout.split()
    assert (judged, int(modules) > 0) == ("2", imported)


ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("values", "on"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, True),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "TRUE"}, False),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, False),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "console,otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
    ],
)
def test_what_counts_as_configuration(values: dict[str, str], on: bool) -> None:
    assert tracing.configured(values) is on


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier/pigeon"}, "known are grpc and http/protobuf"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "1", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "9"}, "docs/tracing.md"),
    ],
)
def test_settings_of_no_use_are_told_and_stop_nothing(values: dict[str, str], why: str) -> None:
    program = "from kerneldyno.rpc import tracing; print(tracing.start('test'))"
    with environment(**ENDPOINT, **values):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "None\n")
    assert "event=tracing_off" in ran.stderr
    assert why in ran.stderr


async def test_an_open_turn_under_another_trace_is_the_same_turn() -> None:
    """A trainer that restarts while the stream of its predecessor is open sends such a turn."""
    async with scheduler() as (app, _), node(str(app.address), "n1") as worker, connect(app) as peer:
        trainer = Trainer(peer)
        for index, trace in enumerate("12"):
            one = turn("t", "sleep=0.3")
            one.request.trace_context.traceparent = f"00-{trace * 32}-{trace * 16}-01"
            await trainer.send(one, reward=PLAIN if not index else None)
        answers = await trainer.finish()
        assert [EvalResult.Outcome.Name(one.result.outcome) for one in trainer.order] == ["CORRECT"]
        assert (list(answers), worker.started) == (["t"], ["t"])


async def test_without_tracing_here_a_node_is_told_of_the_clients_span() -> None:
    """A scheduler that exports nothing passes the trace context on to the node, and keeps the trace id."""
    told: list[str] = []
    async with scheduler() as (app, stub), node(str(app.address), "n1") as worker:
        take, one = worker._take, request("passed on")

        def tell(assignment: Assignment) -> None:
            told.append(assignment.trace_context.traceparent)
            take(assignment)

        worker._take = tell  # type: ignore[method-assign]
        one.trace_context.traceparent = f"00-{'1' * 32}-{'2' * 16}-01"
        await stub.EvaluateOnce(EvaluateOnceRequest(request=one))
        await stub.EvaluateOnce(EvaluateOnceRequest(request=request("plain")))
        evaluation = (await stub.GetEvaluation(GetEvaluationRequest(id="passed on"))).evaluation
    assert told == [one.trace_context.traceparent, ""]
    assert evaluation.trace_id == "1" * 32

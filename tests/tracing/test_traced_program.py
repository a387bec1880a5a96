"""Tests of programs that set up OpenTelemetry: the client uses their provider and open span. And of one that ends."""

from __future__ import annotations

import json
import subprocess
import sys

from tests import ROOT
from tests.tracing.collector import Collector, environment, settings

_PROGRAM = """
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from kerneldyno.client import AsyncClient, Client, turn
from tests.scheduler.scheduler_harness import request, scheduler
from kerneldyno.testing.scripted_node import node

kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
mine = trace.get_tracer("program")

def blocking(address):
    with mine.start_as_current_span("blocking"), Client(address) as client:
        list(client.evaluate([request("a"), request("b")]))
        client.evaluate_once(request("c"))

async def score(stream, name):
    with mine.start_as_current_span(name):
        await stream.score(turn("g", 0, 0, reference_code="ref", kernel_code=f"id={name} sleep=0.1", labels={"n": name}))

async def main():
    async with scheduler() as (app, _), node(str(app.address), "n1", lanes=4):
        address = str(app.address)
        await asyncio.to_thread(blocking, address)
        async with AsyncClient(address) as client, client.reward_stream("kevin") as stream:
            await asyncio.gather(score(stream, "x"), score(stream, "y"))
        async with AsyncClient(address) as client:
            with mine.start_as_current_span("cut short"):
                async for _ in client.evaluate([request("d"), request("e", "sleep=30")]):
                    break

asyncio.run(main())
spans = kept.get_finished_spans()
names = {span.context.span_id: span.name for span in spans}
print(json.dumps([
    (span.name, names.get(span.parent.span_id) if span.parent else None, dict(span.attributes), span.status.is_ok)
    for span in spans
]))
"""


def test_its_provider_is_used_and_its_spans_are_above_ours() -> None:
    with environment():
        ran = subprocess.run([sys.executable, "-c", _PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    spans = [span for span in json.loads(ran.stdout) if span[0].startswith("kerneldyno.")]
    above = {span[2]["kerneldyno.evaluation.id"]: span[1] for span in spans}
    assert {id: above[id] for id in "abcde"} == dict.fromkeys("abc", "blocking") | dict.fromkeys("de", "cut short")
    rewards = [span for span in spans if span[0] == "kerneldyno.client.reward"]
    assert sorted(span[1] for span in rewards) == ["x", "y"]
    (given_up,) = [span for span in spans if not span[3]]
    assert (given_up[2]["kerneldyno.evaluation.id"], given_up[2]["error.type"]) == ("e", "ClientClosedError")
    assert "kerneldyno.outcome" not in given_up[2]


_LAST_WORDS = """
import os
from kerneldyno.client.request_tracing import item_spans
from kerneldyno.v1.evaluation_pb2 import EvalRequest

spans = item_spans("127.0.0.1:1", "client", "SchedulerService/Evaluate")
spans.begin(EvalRequest(id="last"))
spans.close()
if os.fork() == 0:
    raise SystemExit
os.wait()
"""


def test_a_program_that_ends_sends_its_last_spans() -> None:
    with Collector() as collector:
        with environment(**settings(collector.endpoint, OTEL_BSP_SCHEDULE_DELAY="3600000")):
            program = [sys.executable, "-W", "ignore::DeprecationWarning:__main__", "-c", _LAST_WORDS]  # of its fork
            ran = subprocess.run(program, capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert [span.attributes["kerneldyno.evaluation.id"] for span in collector.spans] == ["last"]

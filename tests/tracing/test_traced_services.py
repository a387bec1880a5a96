"""Tests of the traces of a real client, in this process, and a real scheduler and CPU evaluator, each a process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path

import grpc
import psutil
import pytest

from kerneldyno.client import AsyncClient, turn
from kerneldyno.v1.evaluation_pb2 import EvalResult, Stage
from kerneldyno.v1.scheduler_service_pb2 import EvaluateOnceRequest, EvaluateRequest
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.client.command import invoke
from tests.e2e import e2e_harness as e2e
from tests.tracing.collector import Collector, Span, environment, settings, traced_client
from tests.waiting import wait_until

#: Code for a candidate: print every environment variable of the services that it can see.
SPY = """
import os, glob
        for path in ["/proc/self/environ", *glob.glob("/proc/[0-9]*/environ")]:
            try:
                print("SEEN", path, open(path).read().replace(chr(0), " "))
            except OSError:
                pass
        print("SEEN", dict(os.environ))
""".strip()

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "tracing.md"
SECRET = "a-key-of-the-collector"
STAGES = ("preparing", "loading", "compiling", "checking")


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as one:
        yield one


@pytest.fixture(scope="module")
def services(collector: Collector) -> Iterator[tuple[e2e.Service, e2e.Service]]:
    """A scheduler with one evaluator, both traced. The client in this process is traced as well."""
    with ExitStack() as stack:
        with environment(**settings(collector.endpoint, OTEL_EXPORTER_OTLP_HEADERS=f"x-key={SECRET}")):
            scheduler = stack.enter_context(e2e.scheduler())
            evaluator = stack.enter_context(e2e.evaluator(scheduler.address, "--node-id", "n1"))
        stack.enter_context(traced_client(collector.endpoint))
        asyncio.run(_until_registered(scheduler.address))
        yield scheduler, evaluator


@pytest.fixture(scope="module")
def scheduler(services: tuple[e2e.Service, e2e.Service]) -> str:
    """The address of the scheduler."""
    return services[0].address


async def _until_registered(address: str) -> None:
    async with AsyncClient(address) as client, asyncio.timeout(60):
        while not (await client.capabilities()).nodes:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def judge(address: str, *requests: e2e.EvalRequest) -> dict[str, EvalResult]:
    async with AsyncClient(address, client_id="team/run") as client:
        return {result.id: result async for result in client.evaluate(requests)}


def only(spans: list[Span], name: str) -> Span:
    (found,) = [span for span in spans if span.name == name]
    return found


@pytest.fixture(scope="module")
def result(scheduler: str) -> EvalResult:
    return asyncio.run(judge(scheduler, e2e.request("one", SPY)))["one"]


@pytest.fixture(scope="module")
def spans(collector: Collector, result: EvalResult) -> list[Span]:
    return collector.whole("one", "kerneldyno.client.evaluate", "kerneldyno.stage.checking")


class TestOneRequest:
    def test_the_trace_is_one_tree(self, spans: list[Span]) -> None:
        by_id = {span.span_id: span for span in spans}
        assert len(by_id) == len(spans), "no span is sent twice"
        (root,) = [span for span in spans if not span.parent_id]
        assert root.name == "kerneldyno.client.evaluate"
        shown = sorted((by_id[span.parent_id].name, span.name) for span in spans if span.parent_id)
        scheduler, node = "kerneldyno.scheduler", "kerneldyno.evaluator.attempt"
        assert shown == sorted(
            [
                (root.name, f"{scheduler}.evaluation"),
                (f"{scheduler}.evaluation", f"{scheduler}.accept"),
                (f"{scheduler}.evaluation", f"{scheduler}.queue"),
                (f"{scheduler}.evaluation", f"{scheduler}.attempt"),
                (f"{scheduler}.attempt", node),
                *((node, f"kerneldyno.stage.{stage}") for stage in STAGES),
            ]
        )

    def test_children_are_within_their_parents(self, spans: list[Span]) -> None:
        by_id = {span.span_id: span for span in spans}
        for span in spans:
            assert span.start <= span.end
            if span.parent_id:
                above = by_id[span.parent_id]
                assert above.start <= span.start, (above.name, span.name)
                # The client and the scheduler end a span only when they have the result from the process below.
                assert span.end <= above.end, (above.name, span.name)

    def test_stages_are_the_judges(self, spans: list[Span], result: EvalResult) -> None:
        stages = [span for span in spans if span.name.startswith("kerneldyno.stage.")]
        assert [span.name.removeprefix("kerneldyno.stage.") for span in stages] == list(STAGES)
        for before, after in pairwise(stages):
            assert before.end <= after.start + 2_000  # the judge writes times in microseconds
        told = [stage for stage in result.stages if stage.stage != Stage.STAGE_QUEUED]
        for span, stage in zip(stages, told, strict=True):
            assert abs(span.start - stage.start_time.ToNanoseconds()) < 2_000
            assert abs(span.end - span.start - stage.duration.ToNanoseconds()) < 2_000

    def test_each_process_has_its_name(self, spans: list[Span]) -> None:
        assert {(span.name.split(".")[1], span.service) for span in spans} == {
            ("client", "kerneldyno-client"),
            ("scheduler", "kerneldyno-scheduler"),
            ("evaluator", "kerneldyno-evaluator"),
            ("stage", "kerneldyno-evaluator"),
        }

    def test_attributes_tell_what_came_of_it(self, spans: list[Span], scheduler: str) -> None:
        client, whole = only(spans, "kerneldyno.client.evaluate"), only(spans, "kerneldyno.scheduler.evaluation")
        host, _, port = scheduler.rpartition(":")
        assert client.attributes == {
            "rpc.system.name": "grpc",
            "rpc.method": "kerneldyno.v1.SchedulerService/Evaluate",
            "server.address": host,
            "server.port": int(port),
            "kerneldyno.client.id": "team/run",
            "kerneldyno.evaluation.id": "one",
            "kerneldyno.outcome": "CORRECT",
            "kerneldyno.attempts": 1,
            "kerneldyno.answered_by": "run",
        }
        assert (client.kind, whole.kind) == ("CLIENT", "SERVER")
        for span in (whole, only(spans, "kerneldyno.scheduler.attempt"), only(spans, "kerneldyno.evaluator.attempt")):
            assert span.attributes["kerneldyno.outcome"] == "CORRECT"
        assert only(spans, "kerneldyno.evaluator.attempt").attributes["kerneldyno.node.id"] == "n1"
        assert not any(span.failed for span in spans)

    def test_no_source_is_in_any_span(self, spans: list[Span]) -> None:
        for span in spans:
            for word in ("ModelNew", "import", "SEEN", "forward"):
                assert word not in span.raw

    def test_the_candidate_sees_nothing_of_it(
        self, result: EvalResult, collector: Collector, spans: list[Span]
    ) -> None:
        assert "SEEN /proc/self/environ" in result.logs, "the candidate has looked"
        trace_id = spans[0].trace_id
        for word in ("OTEL", SECRET, str(collector.port), "opentelemetry", trace_id, "traceparent"):
            assert word not in result.logs

    def test_neither_does_any_child_of_the_evaluator(self, services: tuple[e2e.Service, e2e.Service]) -> None:
        seen: list[dict[str, str]] = []

        def look() -> bool:
            seen.clear()
            for process in e2e.descendants(services[1].process.pid):
                with suppress(psutil.NoSuchProcess):  # some processes end together with their candidate
                    seen.append(process.environ())
            return len(seen) >= 4

        wait_until(look, "judge, zygote, warden and runner")
        for variables in seen:
            assert "PATH" in variables
            assert not [name for name in variables if name.startswith("OTEL_")]

    def test_the_collector_gets_the_key(self, spans: list[Span], collector: Collector) -> None:
        assert collector.keys == {SECRET}

    async def test_the_command_line_shows_the_trace_id(self, spans: list[Span], scheduler: str) -> None:
        ran = await invoke("trace", "one", "--address", scheduler, COLUMNS="120")
        assert re.search(rf"^trace id +{spans[0].trace_id}", ran.out, re.MULTILINE)
        ran = await invoke("trace", "one", "--address", scheduler, "--json")
        assert ran.json["evaluations"][0]["trace_id"] == spans[0].trace_id


async def test_requests_of_one_message_have_a_trace_each(scheduler: str, collector: Collector) -> None:
    await judge(scheduler, *(e2e.request(f"many{index}") for index in range(4)))
    found = [collector.whole(f"many{index}", "kerneldyno.client.evaluate") for index in range(4)]
    assert len({spans[0].trace_id for spans in found}) == 4


async def test_a_wrong_candidate_is_no_error_of_the_service(scheduler: str, collector: Collector) -> None:
    await judge(scheduler, e2e.request("wrong", "return x"))
    spans = collector.whole("wrong", "kerneldyno.client.evaluate", "kerneldyno.evaluator.attempt")
    assert only(spans, "kerneldyno.client.evaluate").attributes["kerneldyno.outcome"] == "INCORRECT"
    assert not any(span.failed for span in spans)


async def test_turns_are_traced_like_requests(scheduler: str, collector: Collector) -> None:
    one = turn("g", 2, 3, reference_code=e2e.REFERENCE, kernel_code=e2e.candidate(mark="turn"), backend="torch")
    one.request.id = "turn"
    one.request.run_performance = False
    async with AsyncClient(scheduler) as client, client.reward_stream("kevin") as stream:
        answer = await stream.score(one)
    spans = collector.whole("turn", "kerneldyno.client.reward", "kerneldyno.stage.checking")
    root = only(spans, "kerneldyno.client.reward")
    assert not root.parent_id
    assert only(spans, "kerneldyno.scheduler.evaluation").parent_id == root.span_id
    assert root.attributes["rpc.method"] == "kerneldyno.v1.RewardService/StreamRewards"
    place = [root.attributes[f"kerneldyno.turn.{name}"] for name in ("group", "sample", "index")]
    assert place == ["g", 2, 3]
    assert root.attributes["kerneldyno.reward"] == answer.reward


class TestContextOfOthers:
    """Trace contexts from callers: the services follow them, and ignore a malformed one."""

    TRACE, PARENT = "a" * 31 + "1", "b" * 15 + "1"

    async def once(self, scheduler: str, id: str, traceparent: str) -> None:
        async with grpc.aio.insecure_channel(scheduler) as channel:
            message = EvaluateOnceRequest(request=e2e.request(id))
            await SchedulerServiceStub(channel).EvaluateOnce(message, metadata=(("traceparent", traceparent),))

    async def test_a_call_is_in_the_trace_of_its_metadata(self, scheduler: str, collector: Collector) -> None:
        await self.once(scheduler, "metadata", f"00-{self.TRACE}-{self.PARENT}-01")
        spans = collector.whole("metadata", "kerneldyno.stage.checking")
        whole = only(spans, "kerneldyno.scheduler.evaluation")
        assert (whole.trace_id, whole.parent_id) == (self.TRACE, self.PARENT)

    async def test_a_request_in_a_stream_is_in_its_own(self, scheduler: str, collector: Collector) -> None:
        own, other = e2e.request("own"), e2e.request("other")
        own.trace_context.traceparent = f"00-{'c' * 32}-{self.PARENT}-01"
        async with grpc.aio.insecure_channel(scheduler) as channel:
            call = SchedulerServiceStub(channel).Evaluate(metadata=(("traceparent", f"00-{'d' * 32}-{'e' * 16}-01"),))
            await call.write(EvaluateRequest(client_id="c", requests=[own, other]))
            await call.done_writing()
            async for _ in call:
                pass
        assert only(collector.whole("own"), "kerneldyno.scheduler.evaluation").trace_id == "c" * 32
        assert only(collector.whole("other"), "kerneldyno.scheduler.evaluation").trace_id == "d" * 32

    async def test_a_malformed_one_is_ignored_and_a_new_trace_begins(
        self, scheduler: str, collector: Collector
    ) -> None:
        await self.once(scheduler, "malformed", "00-xyz-1-01")
        spans = collector.whole("malformed", "kerneldyno.stage.checking")
        assert not only(spans, "kerneldyno.scheduler.evaluation").parent_id

    async def test_what_the_caller_does_not_record_nobody_does(self, scheduler: str, collector: Collector) -> None:
        await self.once(scheduler, "unsampled", f"00-{'f' * 32}-{self.PARENT}-00")
        await self.once(scheduler, "after", f"00-{'9' * 32}-{self.PARENT}-01")
        collector.whole("after", "kerneldyno.stage.checking")  # an earlier span would have arrived by now
        assert collector.trace("f" * 32) == []

    async def test_the_programs_own_span_is_above_ours(self, scheduler: str, collector: Collector) -> None:
        request = e2e.request("below")
        request.trace_context.traceparent = f"00-{'7' * 32}-{self.PARENT}-01"
        await judge(scheduler, request)
        client = only(collector.whole("below", "kerneldyno.client.evaluate"), "kerneldyno.client.evaluate")
        assert (client.trace_id, client.parent_id) == ("7" * 32, self.PARENT)


def test_the_documentation_names_all_that_is_sent(collector: Collector, spans: list[Span]) -> None:
    """Check all that the services sent in the tests of this file."""
    named = set(re.findall(r"`([a-z_.]+)`", DOCUMENTATION.read_text()))
    sent = {span.name for span in collector.spans} | {key for span in collector.spans for key in span.attributes}
    assert len(sent) > 20
    assert sent <= named

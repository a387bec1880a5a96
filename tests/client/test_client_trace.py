"""Tests of `kerneldyno trace` with a real scheduler: the steps of an evaluation, and ids that match none or several."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from kerneldyno.cli.common import lasting
from kerneldyno.cli.trace import _steps
from kerneldyno.client import AsyncClient, turn
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1.evaluation_pb2 import (
    STAGE_CHECKING,
    STAGE_COMPILING,
    STAGE_QUEUED,
    STAGE_TIMING,
    EvalRequest,
    EvalResult,
    Stage,
)
from tests.client.command import NOBODY, Ran, invoke
from tests.scheduler.scheduler_harness import request, scheduler
from tests.waiting import eventually


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """The address of a scheduler with one node."""
    async with scheduler() as (app, _), node(str(app.address), "n1"):
        yield str(app.address)


async def judge(address: str, client_id: str, *requests: EvalRequest) -> None:
    async with AsyncClient(address, client_id=client_id) as client:
        assert len([result async for result in client.evaluate(requests)]) == len(requests)


async def trace(address: str, *arguments: str) -> Ran:
    return await invoke("trace", *arguments, "--address", address, COLUMNS="120")


def facts(ran: Ran) -> dict[str, str]:
    """Return the lines above the stages: the text of each by its first words."""
    assert ran.status == 0, ran.err
    head = ran.out.split("\n\n")[0]
    return dict(re.split(r" {2,}", line.rstrip(), maxsplit=1) for line in head.splitlines())


class TestUnhappy:
    async def test_nobody_there(self) -> None:
        ran = await trace(NOBODY, "a")
        assert (ran.status, ran.out, ran.err.count("\n")) == (3, "", 1)

    async def test_an_id_that_nobody_used(self, address: str) -> None:
        ran = await trace(address, "a")
        assert (ran.status, ran.out) == (1, "")
        assert "no evaluation has the id 'a'" in ran.err

    async def test_an_id_that_was_cut_off(self, address: str) -> None:
        await judge(address, "c", request("step-1/sample-2"))
        ran = await trace(address, "step-1")
        assert ran.status == 1
        assert "did you mean step-1/sample-2?" in ran.err

    async def test_an_id_of_another_client(self, address: str) -> None:
        await judge(address, "c", request("a"))
        ran = await trace(address, "a", "--client-id", "d")
        assert ran.status == 1
        assert "client 'd' has no evaluation 'a'; `kerneldyno evaluations --client d` lists" in ran.err

    async def test_an_id_of_several_clients(self, address: str) -> None:
        for client_id in ("c", "d"):
            await judge(address, client_id, request("a"))
        ran = await trace(address, "a", "--json")
        assert (ran.status, ran.out) == (2, "")
        assert "--client-id: 'c', 'd'" in ran.err
        assert facts(await trace(address, "a", "--client-id", "d"))["client"] == "d"

    async def test_what_a_candidate_wrote_steers_no_terminal(self, address: str) -> None:
        await judge(address, "c", request("a", labels={"step": "[red]1\x1b[2J"[:6]}))
        ran = await trace(address, "a")
        assert facts(ran)["labels"] == "step=[red]1"
        assert "\x1b" not in ran.out


async def test_one_that_waits() -> None:
    async with scheduler() as (app, _):
        address = str(app.address)
        client = asyncio.create_task(judge(address, "c", request("a", labels={"step": "7"})))
        found: list[Ran] = []
        while not found or found[-1].status:
            found.append(await trace(address, "a"))
        shown = facts(found[-1])
        assert shown["now"].startswith("queued, ")
        assert (shown["attempts"], shown["labels"], shown["client"]) == ("0", "step=7", "c")
        async with node(address, "n1"):
            await client
            assert facts(await trace(address, "a"))["outcome"] == "CORRECT"


async def test_one_that_runs(address: str) -> None:
    client = asyncio.create_task(judge(address, "c", request("a", "sleep=60")))
    while "loading on n1" not in (shown := await trace(address, "a", "--client-id", "c")).out:
        pass
    assert facts(shown)["now"].startswith("loading on n1, ")
    client.cancel()


async def test_one_that_is_done(address: str) -> None:
    await judge(address, "c", request("a", "sleep=0.2 outcome=INCORRECT size=3", labels={"step": "7"}))
    ran = await trace(address, "a")
    shown = facts(ran)
    assert (shown["evaluation"], shown["client"], shown["outcome"], shown["because"]) == ("a", "c", "INCORRECT", "xxx")
    assert (shown["answered by"], shown["ran on"], shown["attempts"]) == (
        "a run of its own",
        "n1, cpu:0, Fake CPU",
        "1",
    )
    assert len(shown["digest"]) == 64
    assert [line.split()[0] for line in ran.out.split("\n\n")[1].splitlines()] == ["stage", "queued", "not"]
    (evaluation,) = (await trace(address, "a", "--json")).json["evaluations"]
    assert evaluation["result"]["outcome"] == "INCORRECT"
    queued, gap = evaluation["timeline"]
    assert (queued["step"], queued["start_seconds"], gap["gap"]) == ("queued", 0.0, True)
    assert gap["seconds"] >= 0.19


async def test_stored_and_shared_results_say_whose_run_it_was(address: str) -> None:
    same = {"kernel_code": "speedup=2", "reference_code": "ref"}
    await judge(address, "c", EvalRequest(id="first", **same))
    await judge(address, "d", EvalRequest(id="second", **same))
    shown = await trace(address, "second")
    assert facts(shown)["answered by"].startswith("the stored result of an earlier run")
    assert facts(shown)["attempts"] == "0"
    assert next(line.split() for line in shown.out.splitlines() if line.startswith("first"))[::4] == ["first", "run"]
    assert [one["id"] for one in (await trace(address, "first", "--json")).json["same_work"]] == ["second"]


async def test_lost_attempts_are_counted() -> None:
    async with scheduler() as (app, _), node(str(app.address), "n1") as first:
        client = asyncio.create_task(judge(str(app.address), "c", request("a", "sleep=0.3")))
        await eventually(lambda: first.started == ["a"])
        async with node(str(app.address), "n2"):
            first.die()
            await client
            ran = await trace(str(app.address), "a")
    assert facts(ran)["attempts"] == "2"
    assert facts(ran)["ran on"].startswith("n2")


@pytest.mark.parametrize("id", ["t", "t~again"])
async def test_both_measurements_of_a_turn(address: str, id: str) -> None:
    async with AsyncClient(address, client_id="c") as client:
        one = turn("g", 0, 0, id="t", reference_code="ref", kernel_code="speedup=9 again.speedup=2")
        answers = [answer async for answer in client.rewards([one], "kevin")]
    assert answers[0].remeasured.speedup == 2
    ran = await trace(address, id)
    first, _, second = ran.out.partition("second measurement of the turn")
    assert "CORRECT  9.00x" in first
    assert "CORRECT  2.00x" in second
    assert "again=true" in second
    found = (await trace(address, id, "--json")).json["evaluations"]
    assert [one["id"] for one in found] == ["t", "t~again"]


class TestSteps:
    @staticmethod
    def result(*spans: tuple[Stage.ValueType, float, float], finish: float, **fields: bool | int) -> EvalResult:
        result = EvalResult(**fields)
        for stage, start, length in spans:
            span = result.stages.add(stage=stage)
            span.start_time.FromNanoseconds(int((1_000 + start) * 1e9))
            span.duration.FromNanoseconds(int(length * 1e9))
        result.finish_time.FromNanoseconds(int((1_000 + finish) * 1e9))
        return result

    def test_stages_and_what_lies_between_add_up_to_the_whole(self) -> None:
        spans = ((STAGE_QUEUED, 0, 2), (STAGE_COMPILING, 2.5, 1), (STAGE_CHECKING, 3.5, 0.25), (STAGE_TIMING, 4, 1))
        steps = _steps(self.result(*spans, finish=5.5))
        assert [(step.name, step.is_gap) for step in steps] == [
            ("queued", False),
            ("at the node", True),
            ("compiling", False),
            ("checking", False),
            ("between stages", True),
            ("timing", False),
            ("the result's way", True),
        ]
        assert sum(step.seconds for step in steps) == pytest.approx(5.5)

    def test_a_stored_result_ended_long_after_its_stages(self) -> None:
        steps = _steps(self.result((STAGE_COMPILING, 0, 1), (STAGE_TIMING, 1, 1), finish=9_000, cached=True))
        assert [(step.name, step.start) for step in steps] == [("compiling", 0), ("timing", 1)]

    def test_a_run_that_began_before_the_request_came(self) -> None:
        steps = _steps(self.result((STAGE_QUEUED, 3, 0), (STAGE_COMPILING, 0, 5), finish=5, merged=True))
        assert [(step.name, step.start) for step in steps] == [("compiling", 0), ("queued", 3)]

    def test_clocks_that_disagree_break_nothing(self) -> None:
        steps = _steps(self.result((STAGE_QUEUED, 0, 1), (STAGE_COMPILING, 30, 1), finish=2))
        assert [step.name for step in steps] == ["queued", "at the node", "compiling"]

    def test_attempts_that_were_lost(self) -> None:
        steps = _steps(self.result((STAGE_QUEUED, 0, 1), (STAGE_COMPILING, 30, 1), finish=31, attempts=3))
        assert [(step.name, step.seconds) for step in steps] == [("queued", 1), ("lost attempts", 29), ("compiling", 1)]

    def test_no_stages(self) -> None:
        assert _steps(self.result(finish=1)) == []


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 ms"),
        (0.00123, "1.23 ms"),
        (0.9999, "1 s"),
        (45.31, "45.3 s"),
        (1_234.0, "21 min"),
        (9_000.0, "2 h 30 min"),
    ],
)
def test_durations_for_people(seconds: float, words: str) -> None:
    assert lasting(seconds) == words

"""The server's end of the socket to a builder, with a scripted builder in a real process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kerneldyno.evaluator.server.attempt import BuildOutcome
from kerneldyno.evaluator.server.builders import Builders, BuilderSettings
from kerneldyno.evaluator.server.metrics import Metrics
from kerneldyno.rpc.validation import effective
from kerneldyno.v1 import evaluation_pb2 as pb

FAKE = (sys.executable, str(Path(__file__).with_name("fake_builder.py")))


@asynccontextmanager
async def running(cache: Path) -> AsyncIterator[Builders]:
    settings = BuilderSettings(2, cache, 1 << 20, zygote_command=FAKE, builder_command=FAKE)
    builders = Builders(settings, lambda *_: None, Metrics(CollectorRegistry(), ["cpu:0"]))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(builders.run())
        try:
            yield builders
        finally:
            task.cancel()


async def built(builders: Builders, token: str, answer: str) -> BuildOutcome:
    """Have a request built whose builder answers with these fields."""
    done: asyncio.Future[BuildOutcome] = asyncio.get_running_loop().create_future()
    builders.build(token, effective(pb.EvalRequest(reference_code="r", kernel_code=answer)), done.set_result)
    async with asyncio.timeout(20):
        return await done


async def test_an_answer_brings_builds_libraries_and_the_verdict(tmp_path: Path) -> None:
    build = "pb.NativeBuild(name='a', seconds=1.5, headers=pb.NativeBuild.HEADERS_LEAN)"
    result = "pb.EvalResult(outcome=pb.EvalResult.COMPILE_ERROR, compiled=False)"
    answer = f"{{'builds': [pack({build})], 'libraries': [['d', 'k']], 'result': pack({result})}}"
    async with running(tmp_path) as builders:
        found = await built(builders, "t1", answer)
    assert found.builds == [pb.NativeBuild(name="a", seconds=1.5, headers=pb.NativeBuild.HEADERS_LEAN)]
    assert found.result == pb.EvalResult(outcome=pb.EvalResult.COMPILE_ERROR, compiled=False)
    assert found.libraries["built"] == [["d", "k", str(tmp_path / "k.library")]]
    assert found.broken == ""


@pytest.mark.parametrize(
    "answer",
    [
        "{'builds': ['AAAA']}",
        "{'builds': [{'name': 'a'}]}",
        "{'builds': 7}",
        "{'result': {'outcome': 'COMPILE_ERROR'}}",
        "{'result': 'COMPILE_ERROR!'}",
    ],
)
async def test_a_builder_that_breaks_the_protocol_is_replaced(
    answer: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as builders:
        found = await built(builders, "t1", answer)
        assert (found.builds, found.result, found.libraries["built"]) == ([], None, [])
        assert "the builder ended before it answered" in found.broken
        assert (await built(builders, "t2", "{}")).broken == ""
    restarts = [each.getMessage() for each in caplog.records if "event=builder_restart" in each.getMessage()]
    assert len(restarts) == 1
    assert "the builder broke the protocol" in restarts[0]

"""Does it compile? Real scheduler, evaluator, builder and g++; nothing is judged until a test says so."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from kerneldyno.client.aio import AsyncClient
from kerneldyno.client.errors import DeadlineExceededError
from kerneldyno.v1.evaluation_pb2 import Compilation, EvalRequest, EvalResult
from tests.client.command import run
from tests.e2e import e2e_harness
from tests.evaluator.builds_harness import (
    ENDLESS,
    ENDLESS_FLAGS,
    NATIVE_PYTHON,
    NATIVE_SOURCE,
    REFERENCE,
    BuildServer,
    building,
    native,
    request,
    serving,
)
from tests.evaluator.test_build_answers import state
from tests.waiting import eventually

pytestmark = pytest.mark.slow

#: Two libraries: the compilers refuse the first, and the candidate does without it.
CATCHING = """
try:
    module = build("fast", 3, SOURCE.replace("static PyObject*", "static PyObjekt*"))
except RuntimeError:
    module = build("slow", 3)
"""
#: A flag that builders refuse.
FLAGGED = 'module = build("flagged", 3, extra_cflags=["-fplugin=/tmp/scratch/none.so"])'


class Cluster:
    """A scheduler and one evaluator."""

    def __init__(self, scheduler: e2e_harness.Service, server: BuildServer) -> None:
        self.scheduler = scheduler
        self.server = server

    @asynccontextmanager
    async def client(self) -> AsyncIterator[AsyncClient]:
        async with AsyncClient(self.scheduler.address) as client:
            await eventually(lambda: bool(self.server.service.ready), what="the evaluator")
            for _ in range(100):
                if (await client.capabilities()).nodes:
                    break
                await asyncio.sleep(0.1)
            yield client

    async def compile(self, asked: EvalRequest, timeout: float = 120.0) -> Compilation:
        async with self.client() as client:
            return (await client.validate(asked, compile=True, timeout=timeout)).compilation

    async def judge(self, asked: EvalRequest) -> EvalResult:
        async with self.client() as client:
            return await client.evaluate_once(asked)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with (
        e2e_harness.scheduler("--store", "memory") as scheduler,
        serving(tmp_path_factory.mktemp("cache") / "builds", "--builders", "2", scheduler=scheduler.address) as running,
    ):
        yield Cluster(scheduler, running)
        assert running.service.process.poll() is None


def endless(mark: str) -> dict[str, Any]:
    """Return the fields of a candidate that compiles for minutes."""
    return native(f"{NATIVE_SOURCE}\n{ENDLESS}\n// {mark}", build_flags=ENDLESS_FLAGS)


async def test_an_evaluation_finds_the_library_in_the_cache(cluster: Cluster) -> None:
    asked = request(**native(f"// first\n{NATIVE_SOURCE}"))
    found = await cluster.compile(asked)
    assert (state(found), found.detail) == ("COMPILED", "")
    assert [(build.name, build.cached, build.failed) for build in found.builds] == [("native", False, False)]
    assert found.builds[0].seconds > 0
    assert found.seconds > 0
    assert found.node_id
    assert (await cluster.compile(asked)).builds[0].cached
    judged = await cluster.judge(asked)
    assert (EvalResult.Outcome.Name(judged.outcome), judged.attempts) == ("CORRECT", 1), judged.message
    assert [build.cached for build in judged.builds] == [True]


async def test_libraries_of_the_candidates_python_are_found_too(cluster: Cluster) -> None:
    asked = request(building('module = build("checked", 3)'))
    found = await cluster.compile(asked)
    assert (state(found), [build.name for build in found.builds]) == ("COMPILED", ["checked"])
    assert [build.cached for build in (await cluster.judge(asked)).builds] == [True]


async def test_an_error_has_the_lines_that_a_verdict_has(cluster: Cluster) -> None:
    asked = request(**native(NATIVE_SOURCE.replace("3 * x[i]", "3 * x[i] +")))
    found = await cluster.compile(asked)
    assert (state(found), [build.failed for build in found.builds]) == ("FAILED", [True])
    assert "scale.cpp:3:" in found.error.message
    judged = await cluster.judge(asked)
    assert judged.compile_error == found.error
    assert judged.message == found.detail


async def test_a_message_is_short_and_has_no_control_characters(cluster: Cluster) -> None:
    line = '#error "\x1b[2J\x07 is a terminal\'s"\n'
    found = await cluster.compile(request(**native(line * 2000)))
    assert state(found) == "FAILED"
    assert len(found.error.message) <= 4096
    assert not {"\x1b", "\x07"} & set(found.error.message)


async def test_an_error_that_the_candidate_catches_is_told(cluster: Cluster) -> None:
    found = await cluster.compile(request(building(CATCHING)))
    assert state(found) == "FAILED"
    assert "PyObjekt" in found.error.message
    assert "catches" in found.detail
    assert {build.name: build.failed for build in found.builds} == {"fast": True, "slow": False}


async def test_a_library_that_is_too_large(cluster: Cluster) -> None:
    found = await cluster.compile(request(**native(f"char large[45u << 20] = {{1}};\n{NATIVE_SOURCE}")))
    assert state(found) == "FAILED"
    assert "at most 40 MiB" in found.error.message


@pytest.mark.parametrize("path", ["/etc/shadow", "/proc/1/environ", "{entry}"], ids=["shadow", "environ", "cache"])
async def test_a_source_reads_no_file_of_the_evaluator(cluster: Cluster, path: str) -> None:
    await cluster.compile(request(**native()))
    path = path.replace("{entry}", str(cluster.server.cache / next(iter(cluster.server.cached()))))
    found = await cluster.compile(request(**native(f'#include "{path}"\n{NATIVE_SOURCE}')))
    assert state(found) == "FAILED"
    assert "root:" not in str(found)
    assert any(why in found.error.message for why in ("No such file", "Permission denied")), found.error.message


async def test_a_build_that_takes_too_long(cluster: Cluster) -> None:
    found = await cluster.compile(request(**endless("late"), timeouts={"build_timeout": 1}))
    assert (state(found), found.detail) == ("TIMED_OUT", "build took longer than 1 s")
    await eventually(lambda: not cluster.server.compilers(), what="the end of the compilers")


async def test_a_caller_that_goes_away_stops_its_compilers(cluster: Cluster) -> None:
    with pytest.raises(DeadlineExceededError):
        await cluster.compile(request(**endless("left")), timeout=5.0)
    await eventually(lambda: not cluster.server.compilers(), what="the end of the compilers")


async def test_what_a_builder_leaves_to_the_lane_is_not_known(cluster: Cluster) -> None:
    found = await cluster.compile(request(building(FLAGGED)))
    assert state(found) == "NOT_COMPILED LEFT_TO_LANE"
    assert "flagged: -fplugin" in found.detail


async def test_a_candidate_without_a_build_has_nothing_to_compile(cluster: Cluster) -> None:
    assert state(await cluster.compile(request("# cpp_extension is only named\nclass ModelNew: ...\n"))) == (
        "NOTHING_TO_COMPILE"
    )


async def test_a_builder_that_dies_is_named_and_the_next_check_finds_another(cluster: Cluster) -> None:
    await cluster.compile(request(**native()))
    call = asyncio.ensure_future(cluster.compile(request(**endless("killed"))))
    await eventually(cluster.server.compilers, what="a compiler")
    builder = cluster.server.builder()
    assert builder is not None
    os.kill(builder.pid, signal.SIGKILL)
    assert state(await call) == "NOT_COMPILED BUILDER_FAILED"
    found = await cluster.compile(request(**native(f"// after it\n{NATIVE_SOURCE}")))
    assert state(found) == "COMPILED"


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch may build CUDA")
async def test_a_builder_without_cuda_does_not_blame_the_source(cluster: Cluster) -> None:
    asked = request(**{**native(), "kernel_files": {"scale.cu": NATIVE_SOURCE}})
    found = await cluster.compile(asked)
    assert state(found) == "NOT_COMPILED NO_BUILDER"
    assert "finds no CUDA" in found.detail


async def test_the_command_line(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.compile(request(**native()))  # the evaluator is there
    reference, folder = tmp_path / "reference.py", tmp_path / "candidate"
    folder.mkdir()
    reference.write_text(REFERENCE)
    (folder / "candidate.py").write_text(NATIVE_PYTHON)
    asked = ("check", reference, folder, "--backend", "torch", "--compile", "--address", cluster.scheduler.address)
    (folder / "scale.cpp").write_text(f"// by command\n{NATIVE_SOURCE}")
    ran = await run(*asked)
    assert (ran.status, ran.out.splitlines()[0]) == (0, "valid: the fields, and the syntax of the sources"), ran
    assert "\ncompiled in " in ran.out
    assert "\n  native: lean headers, " in ran.out
    assert " cached, " in (await run(*asked)).out
    (folder / "scale.cpp").write_text(NATIVE_SOURCE.replace("3 * x[i]", "3 * x[i] +"))
    ran = await run(*asked)
    assert ran.status == 1
    assert "compile: does not compile:\n" in ran.out
    assert "scale.cpp:3:" in ran.out


async def test_an_evaluator_without_builders(tmp_path: Path) -> None:
    with (
        e2e_harness.scheduler("--store", "memory") as scheduler,
        serving(tmp_path / "builds", "--builders", "0", scheduler=scheduler.address) as server,
    ):
        found = await Cluster(scheduler, server).compile(request(**native()))
        async with asyncio.timeout(60):
            while state(found) == "NOT_COMPILED NO_NODE":  # it has registered, and takes no work yet
                await asyncio.sleep(0.1)
                found = await Cluster(scheduler, server).compile(request(**native()))
        assert state(found) == "NOT_COMPILED NO_BUILDER"

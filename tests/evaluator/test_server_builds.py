"""Builds of a real evaluator server on the CPU device: what is built before a lane, what the cache keeps, what dies."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator.builds_harness import (
    ENDLESS,
    ENDLESS_FLAGS,
    NATIVE_SOURCE,
    BuildServer,
    building,
    ended,
    native,
    request,
    serving,
    together,
)
from tests.waiting import eventually

pytestmark = pytest.mark.slow

#: As most candidates are written: torch's headers, in the preamble and in the binding.
INLINE = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
torch::Tensor tripled(torch::Tensor x) {
  return x * 3;WRONG
}
"""
module = load_inline(name="tripled", cpp_sources=SOURCE, functions=["tripled"])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.tripled(x)
'''
#: Two libraries, neither of which is built when the source is imported.
LATE = """
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.doubling = build("doubling", 2)
        self.rest = None

    def forward(self, x):
        if self.rest is None:
            self.rest = build("rest", 1.5)
        return scaled(self.rest, scaled(self.doubling, x))
"""
#: The first library does not compile, and the candidate can do without it.
CATCHING = """
try:
    module = build("fast", 3, SOURCE.replace("static PyObject*", "static PyObjekt*"))
except RuntimeError as error:
    print("no fast one:", "PyObjekt" in str(error))
    module = build("slow", 3)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildServer]:
    """A server that these tests may disturb if it works again afterwards."""
    with serving(tmp_path_factory.mktemp("cache") / "builds", "--builders", "2") as running:
        yield running
        assert running.service.process.poll() is None


def endless(mark: str) -> dict[str, Any]:
    """Return the fields of a candidate that compiles for minutes."""
    return native(f"{NATIVE_SOURCE}\n{ENDLESS}\n// {mark}", build_flags=ENDLESS_FLAGS)


def slow(mark: str) -> dict[str, Any]:
    """Return the fields of a right candidate that compiles for about three seconds."""
    spins = ENDLESS.replace("3000000000ul", "500000ul")
    return native(f"{spins}{NATIVE_SOURCE}// {mark}", build_flags=ENDLESS_FLAGS)


async def test_a_load_inline_candidate_is_built_first_and_from_the_cache_the_second_time(server: BuildServer) -> None:
    first = await server.judge(request(INLINE.replace("WRONG", "")))
    assert first.outcome == "CORRECT", first.result.message
    assert first.stages[0] == "STAGE_BUILDING", "it had no lane yet"
    assert first.stages.index("STAGE_LOADING") > 0
    assert first.spans[0] == "STAGE_BUILDING"
    assert first.result.attempts == 1
    build = first.builds["tripled"]
    assert (build.headers, build.cached, build.failed) == (pb.NativeBuild.HEADERS_LEAN, False, False)
    assert build.seconds > 0
    assert [step.name for step in build.steps] == ["c++ main.cpp", "link"]
    again = await server.judge(request(INLINE.replace("WRONG", "")))
    assert (again.outcome, again.builds["tripled"].cached) == ("CORRECT", True)
    building, *_ = again.result.stages
    assert building.duration.ToNanoseconds() < first.result.stages[0].duration.ToNanoseconds()
    await eventually(lambda: server.metric("kerneldyno_build_cache_entries") >= 1, what="the cache's metrics")


async def test_a_candidate_that_does_not_compile_gets_its_own_lines_and_no_device(server: BuildServer) -> None:
    judged = await server.judge(request(INLINE.replace("WRONG", "no_such_thing")))
    assert judged.outcome == "COMPILE_ERROR"
    assert "cpp_sources:3" in judged.result.compile_error.message
    assert "no_such_thing" in judged.result.compile_error.message
    assert "load_inline" in judged.result.compile_error.traceback, "the candidate's line"
    assert judged.result.attempts == 0
    assert set(judged.stages) <= {"STAGE_BUILDING", "STAGE_DONE", "STAGE_UNSPECIFIED"}
    assert judged.spans == ["STAGE_BUILDING"]
    assert judged.builds["tripled"].failed
    assert judged.result.environment.node_id


async def test_the_lines_of_files_are_named_too(server: BuildServer) -> None:
    source = NATIVE_SOURCE.replace("3 * x[i]", "3 * x[i] +")
    judged = await server.judge(request(**native(source)))
    assert (judged.outcome, judged.result.attempts) == ("COMPILE_ERROR", 0)
    assert "scale.cpp:3:" in judged.result.compile_error.message


async def test_builds_in_a_constructor_and_in_the_first_call_are_found(server: BuildServer) -> None:
    judged = await server.judge(request(building("", LATE)))
    assert judged.outcome == "CORRECT", judged.result.message
    assert set(judged.builds) == {"doubling", "rest"}
    again = await server.judge(request(building("", LATE)))
    assert all(build.cached for build in again.builds.values())


async def test_a_candidate_that_catches_the_error_of_its_build_is_judged(server: BuildServer) -> None:
    judged = await server.judge(request(building(CATCHING)))
    assert (judged.outcome, judged.result.attempts) == ("CORRECT", 1), judged.result.message
    assert {name: build.failed for name, build in judged.builds.items()} == {"fast": True, "slow": False}
    assert "no fast one: True" in judged.result.logs


IN_FOLDERS = {
    "kernels/scale.cpp": NATIVE_SOURCE.replace("3 *", "BY *").replace("\nextern", '#include "parts/factor.h"\nextern'),
    "kernels/parts/factor.h": "#pragma once\n#define BY 3\n",
}
BINDING = """
#include <torch/extension.h>
torch::Tensor tripled(torch::Tensor x) { return x.mul(3); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("tripled", &tripled); }
"""


async def test_native_files_with_a_header_in_a_folder(server: BuildServer) -> None:
    judged = await server.judge(request(**{**native(), "kernel_files": IN_FOLDERS}))
    assert judged.outcome == "CORRECT", judged.result.message
    assert list(judged.builds) == ["native"]


async def test_native_files_with_a_binding_need_no_python(server: BuildServer) -> None:
    cases = [{"inputs": [{"tensor": [1.0, -2.0]}], "expected": {"tensor": [3.0, -6.0]}}]
    asked = {"toolkit": "kernel_simple", "reference_code": "", "entry_point": "tripled", "cases": cases}
    judged = await server.judge(request("", kernel_files={"tripled.cpp": BINDING}, **asked))
    assert judged.outcome == "CORRECT", judged.result.message
    assert judged.builds["native"].headers == pb.NativeBuild.HEADERS_LEAN


async def test_a_build_that_takes_too_long_is_a_timeout_without_a_device(server: BuildServer) -> None:
    judged = await server.judge(request(**endless("late"), timeouts={"build_timeout": 1}))
    assert (judged.outcome, judged.result.attempts) == ("TIMEOUT", 0)
    assert judged.result.timeout.stage == "build"
    await eventually(lambda: not server.compilers(), what="the end of the compilers")


async def test_a_cancelled_attempt_stops_its_compilers(server: BuildServer) -> None:
    call = asyncio.create_task(server.judge(request(**endless("cancelled")), token="to be cancelled"))
    await eventually(server.compilers, what="a compiler")
    await server.cancel("to be cancelled")
    judged = await call
    assert judged.outcome == "INFRASTRUCTURE_ERROR"
    assert judged.result.infrastructure_error.cause == "CANCELLED"
    await eventually(lambda: not server.compilers(), what="the end of the compilers")
    await eventually(lambda: server.metric("kerneldyno_running_builds") == 0, what="the builder's count")


async def test_two_candidates_share_one_build(server: BuildServer) -> None:
    asked = native(f"// shared\n{NATIVE_SOURCE}")
    both = await together(server.judge(request(**asked)), server.judge(request(**asked)))
    assert [judged.outcome for judged in both] == ["CORRECT", "CORRECT"]
    assert sorted(judged.builds["native"].cached for judged in both) == [False, True]


@pytest.mark.parametrize(
    "victim", ["builder", pytest.param("builder_zygote", marks=pytest.mark.long)], ids=["builder", "zygote"]
)
async def test_what_is_being_built_when_a_process_dies_is_judged(server: BuildServer, victim: str) -> None:
    """The attempt goes on, its runner builds it, and the next candidate finds builders again."""
    await server.judge(request(**native()))  # the builder runs
    before = server.builder()
    call = asyncio.create_task(server.judge(request(**slow(victim))))
    await eventually(server.compilers, what="a compiler")
    process = getattr(server, victim)()
    os.kill(process.pid, signal.SIGKILL)
    judged = await call
    assert judged.outcome == "CORRECT", judged.result.message
    assert (list(judged.builds), judged.result.attempts) == ([], 1)
    assert judged.spans[0] == "STAGE_BUILDING"
    assert "event=builder_restart" in server.log()
    again = await server.judge(request(**native(f"// after {victim}\n{NATIVE_SOURCE}")))
    assert (again.outcome, list(again.builds)) == ("CORRECT", ["native"])
    assert server.builder() not in (None, before)


@pytest.mark.long
async def test_another_server_shares_the_cache_and_a_stopped_one_finishes_its_builds(server: BuildServer) -> None:
    """This is also what a server finds after a restart."""
    known, new = native(f"// known\n{NATIVE_SOURCE}"), native(f"// new\n{NATIVE_SOURCE}")
    await server.judge(request(**known))
    with serving(server.cache, "--builders", "1") as other:
        found, built = await together(other.judge(request(**known)), other.judge(request(**new)))
        assert found.builds["native"].cached
        assert not built.builds["native"].cached
        back = await server.judge(request(**new))
        assert (back.outcome, back.builds["native"].cached) == ("CORRECT", True)
        call = asyncio.create_task(other.judge(request(**slow("drained"))))
        await eventually(other.compilers, what="a compiler")
        other.service.process.terminate()
        judged = await call
        assert (judged.outcome, list(judged.builds)) == ("CORRECT", ["native"])
        assert await asyncio.to_thread(ended, other.service, 30) == 0


async def test_a_builder_that_must_not_serve_leaves_the_builds_to_lanes(tmp_path: Path) -> None:
    cache = tmp_path / "builds"
    cache.mkdir()
    cache.chmod(0o777)
    with serving(cache, "--builders", "1") as server:
        judged = await server.judge(request(**native()))
        assert (judged.outcome, list(judged.builds)) == ("CORRECT", []), judged.result.message
        assert "others can write to the build cache" in server.log()
        assert "lanes_build=True" in server.log()
        assert not server.cached()
        wrong = await server.judge(request(**native(NATIVE_SOURCE.replace("3 * x[i]", "3 * x[i] +"))))
        assert (wrong.outcome, wrong.result.attempts) == ("COMPILE_ERROR", 1)
        assert "scale.cpp:3:" in wrong.result.compile_error.message


@pytest.mark.long
async def test_without_builders_lanes_build(tmp_path: Path) -> None:
    with serving(tmp_path / "builds", "--builders", "0") as server:
        for asked in (request(**native()), request(building("", LATE))):
            judged = await server.judge(asked)
            assert (judged.outcome, list(judged.builds)) == ("CORRECT", []), judged.result.message
            assert "STAGE_BUILDING" not in judged.stages
        assert not server.cache.exists()
        assert server.builder() is None

"""The workshop against compiler processes that a hostile source has taken over, and against many who want one library.

The processes here are doubles that return what such a process could return.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kerneldyno.evaluator.builder.cache import BuildCache
from kerneldyno.evaluator.builder.places import Places
from kerneldyno.evaluator.builder.workshop import BuildError, BuildLateError, Built, NotBuiltError, Workshop
from kerneldyno.evaluator.judge.runners.handle import (
    ExitReport,
    RunnerGarbled,
    RunnerGone,
    RunnerLate,
    RunnerStartError,
)
from kerneldyno.evaluator.shared.library_file import MOST_BYTES, MOST_LOG
from kerneldyno.evaluator.shared.native_build import NativeBuild
from tests.waiting import eventually

pytestmark = pytest.mark.pure

BUILD = NativeBuild("scale", (("a.cpp", "int a;"),))
OTHER = NativeBuild("other", (("a.cpp", "int b;"),))
CONTENT = b"\x7fELF" + bytes(range(256)) * 10
LIMIT = 30.0

ENDED = ExitReport(9, None, True, False, 0, "a log")

#: What a process does with an order and its memory file before it answers, and its answer.
Acts = Callable[[dict[str, Any], int], Any]


def wrote(content: bytes, **said: Any) -> Acts:
    """Return what a process does that writes a library, and then answers with `said` in place of the truth."""

    def act(order: dict[str, Any], memory_file: int) -> Any:
        os.pwrite(memory_file, content, 0)
        truth = {"lean": True, "steps": [["c++ a.cpp", 1.5], ["link", 0.5]], "size": len(content), "log": ""}
        return {"ok": {**truth, **said}}

    return act


def answers(frame: Any) -> Acts:
    def act(order: dict[str, Any], memory_file: int) -> Any:
        os.pwrite(memory_file, CONTENT, 0)
        return frame

    return act


def fails(error: BaseException) -> Acts:
    def act(order: dict[str, Any], memory_file: int) -> Any:
        os.pwrite(memory_file, CONTENT, 0)
        raise error

    return act


@dataclass
class Process:
    """A compiler process."""

    pool: Pool
    descriptors: list[int]

    async def ask(self, order: dict[str, Any], timeout: float) -> Any:
        self.pool.orders.append(order)
        self.pool.limits.append(timeout)
        if not self.pool.gate.is_set():
            try:
                await asyncio.wait_for(self.pool.gate.wait(), timeout)
            except TimeoutError:
                raise RunnerLate from None
        await asyncio.sleep(self.pool.seconds)
        return self.pool.act(order, self.descriptors[0])


@dataclass
class Pool:
    """A pool whose processes do what `act` says, once `gate` is open."""

    act: Acts = field(default_factory=lambda: wrote(CONTENT))
    report: ExitReport = ENDED
    #: What a process still writes after its answer, before it is ended.
    afterwards: Acts | None = None
    start_error: Exception | None = None
    memory_bytes: int = 1 << 30
    orders: list[dict[str, Any]] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    #: Seconds that a process takes.
    seconds: float = 0.0
    alive: int = 0
    most_alive: int = 0
    overdue: list[bool] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def spawn(self, *, role: str, descriptors: list[int]) -> Process:
        assert role == "compiler"
        if self.start_error is not None:
            for descriptor in descriptors:
                os.close(descriptor)
            raise self.start_error
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        return Process(self, descriptors)

    async def discard(self, runner: Process, *, overdue: bool = False) -> ExitReport:
        await asyncio.sleep(0)
        if self.afterwards is not None:
            self.afterwards({}, runner.descriptors[0])
        for descriptor in runner.descriptors:
            os.close(descriptor)
        self.alive -= 1
        self.overdue.append(overdue)
        return self.report


class Toolchain:
    """A toolchain whose keys can be read."""

    architecture = "9.0a"

    def key(self, build: NativeBuild) -> str:
        return f"key-{build.name}-{build.digest[:16]}"


KEY, OTHER_KEY = Toolchain().key(BUILD), Toolchain().key(OTHER)


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    """The pool, with an open gate. After the test, no process and no descriptor may be left."""
    made = Pool()
    made.gate.set()
    before = set(os.listdir("/proc/self/fd"))  # earlier tests may have left some, which the garbage collector closes
    yield made
    assert made.alive == 0
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "cache", 1 << 30)


@pytest.fixture
def workshop(pool: Pool, cache: BuildCache) -> Workshop:
    return Workshop(pool, cache, Toolchain(), Places(2))


def entries(cache: BuildCache) -> list[str]:
    """Return the keys that the cache has."""
    return sorted(path.name.partition(".")[0] for path in cache.path("x").parent.iterdir())


async def test_a_library_is_built_once_and_then_found(workshop: Workshop, cache: BuildCache, pool: Pool) -> None:
    first = await workshop.get(BUILD, LIMIT)
    assert (first.cached, first.library.content, first.library.name) == (False, CONTENT, "scale")
    assert (first.library.lean, first.library.steps) == (True, (("c++ a.cpp", 1.5), ("link", 0.5)))
    second = await workshop.get(BUILD, LIMIT)
    assert second == Built(first.library, cached=True)
    assert pool.orders == [{"op": "build", "build": BUILD.to_json(), "architecture": "9.0a"}]
    assert pool.limits == [LIMIT]
    assert entries(cache) == [KEY]


MALFORMED_VALUES: dict[str, list[Any]] = {
    "size": [None, "many", [1], {}, float("inf"), float("-inf"), float("nan"), "9" * 5000],
    "steps": [
        *(None, 3, {}, {"a": 1}, [3], ["abc"]),
        *([["a"]], [["a", "b"]], [["a", None]], [["a", 1, 2]], [["a", 10**400]]),
    ],
}
MALFORMED = {
    "no answer": {},
    "nothing": {"ok": None},
    "a number": {"ok": 3},
    "a text": {"ok": "built"},
    "a list": {"ok": [1, 2, 3, 4]},
    "no size": {"ok": {"lean": True, "steps": [], "log": ""}},
    "no log": {"ok": {"lean": True, "steps": [], "size": len(CONTENT)}},
    "no steps": {"ok": {"lean": True, "size": len(CONTENT), "log": ""}},
    **{
        f"{name} {value!r}"[:60]: {"ok": {"lean": True, "steps": [], "size": len(CONTENT), "log": "", name: value}}
        for name, values in MALFORMED_VALUES.items()
        for value in values
    },
}


@pytest.mark.parametrize("frame", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_answer_is_no_library(workshop: Workshop, cache: BuildCache, pool: Pool, frame: Any) -> None:
    pool.act = answers(frame)
    with pytest.raises(NotBuiltError, match=r"."):
        await workshop.get(BUILD, LIMIT)
    assert entries(cache) == []
    pool.act = wrote(CONTENT)
    assert (await workshop.get(BUILD, LIMIT)).library.content == CONTENT, "a later build is not spoiled"


@pytest.mark.parametrize("size", [1, -1, len(CONTENT) - 1, len(CONTENT) + 1, MOST_BYTES, MOST_BYTES + 1, 1 << 62])
async def test_a_size_that_is_not_that_of_the_library_is_refused(
    workshop: Workshop, cache: BuildCache, pool: Pool, size: int
) -> None:
    pool.act = wrote(CONTENT, size=size)
    with pytest.raises(NotBuiltError, match="another size"):
        await workshop.get(BUILD, LIMIT)
    assert entries(cache) == []


async def test_a_library_that_is_too_large_is_refused(workshop: Workshop, cache: BuildCache, pool: Pool) -> None:
    def large(order: dict[str, Any], memory_file: int) -> Any:
        os.ftruncate(memory_file, MOST_BYTES + 1)  # without memory
        return {"ok": {"lean": True, "steps": [], "size": MOST_BYTES + 1, "log": ""}}

    pool.act = large
    with pytest.raises(NotBuiltError, match="another size"):
        await workshop.get(BUILD, LIMIT)
    assert entries(cache) == []


async def test_a_file_that_grows_after_the_answer_is_refused(workshop: Workshop, cache: BuildCache, pool: Pool) -> None:
    pool.afterwards = lambda order, memory_file: os.pwrite(memory_file, b"more", len(CONTENT))
    with pytest.raises(NotBuiltError, match="another size"):
        await workshop.get(BUILD, LIMIT)
    assert entries(cache) == []


async def test_a_file_that_shrinks_after_the_answer_is_refused(
    workshop: Workshop, cache: BuildCache, pool: Pool
) -> None:
    pool.afterwards = lambda order, memory_file: os.ftruncate(memory_file, 10)
    with pytest.raises(NotBuiltError, match="another size"):
        await workshop.get(BUILD, LIMIT)
    assert entries(cache) == []


async def test_what_is_read_is_what_the_file_has_when_the_process_has_ended(workshop: Workshop, pool: Pool) -> None:
    """A process may write to its own library until it ends, and not later."""
    pool.afterwards = lambda order, memory_file: os.pwrite(memory_file, b"late", 0)
    built = await workshop.get(BUILD, LIMIT)
    assert built.library.content == b"late" + CONTENT[4:]
    found = await workshop.get(BUILD, LIMIT)
    assert found.library == built.library


async def test_an_answer_cannot_name_another_build(workshop: Workshop, cache: BuildCache, pool: Pool) -> None:
    said = {"key": OTHER_KEY, "name": "other", "digest": OTHER.digest, "build": OTHER.to_json(), "seconds": 0.0}
    pool.act = wrote(b"evil", **said)
    built = await workshop.get(BUILD, LIMIT)
    assert (built.library.key, built.library.name) == (KEY, "scale")
    assert entries(cache) == [KEY]
    pool.act = wrote(CONTENT)
    other = await workshop.get(OTHER, LIMIT)
    assert (other.cached, other.library.content) == (False, CONTENT)
    assert entries(cache) == sorted([KEY, OTHER_KEY])
    assert (await workshop.get(BUILD, LIMIT)).library.content == b"evil", "it has spoiled its own library, and no other"


async def test_steps_are_bounded(workshop: Workshop, pool: Pool) -> None:
    pool.act = wrote(CONTENT, steps=[["n" * 10_000, 1.0]] * 10_000)
    steps = (await workshop.get(BUILD, LIMIT)).library.steps
    assert len(steps) == 100
    assert {len(name) for name, _ in steps} == {200}


async def test_a_message_is_bounded_and_has_no_control_characters(workshop: Workshop, pool: Pool) -> None:
    pool.act = wrote(b"", log="\x1b[31ma.cpp:1:1: error:\n\tred\0\x9b\r" + "x" * 900_000)
    with pytest.raises(BuildError) as raised:
        await workshop.get(BUILD, LIMIT)
    assert str(raised.value).startswith("[31ma.cpp:1:1: error:\n\tredxxx")
    assert len(str(raised.value)) <= MOST_LOG


async def test_refusals_are_remembered_and_not_in_the_cache(workshop: Workshop, cache: BuildCache, pool: Pool) -> None:
    pool.act = wrote(b"", log="a.cpp:1:1: error: no")
    for _ in range(3):
        with pytest.raises(BuildError, match=r"a\.cpp:1:1: error: no"):
            await workshop.get(BUILD, LIMIT)
    assert len(pool.orders) == 1
    assert entries(cache) == []
    pool.act = wrote(CONTENT)
    assert (await workshop.get(OTHER, LIMIT)).library.content == CONTENT


async def test_only_the_latest_refusals_are_remembered(workshop: Workshop, pool: Pool) -> None:
    pool.act = wrote(b"", log="no")
    builds = [replace(BUILD, name=f"b{number}") for number in range(513)]
    for build in builds:
        with pytest.raises(BuildError):
            await workshop.get(build, LIMIT)
    pool.act = wrote(CONTENT)
    with pytest.raises(BuildError):
        await workshop.get(builds[1], LIMIT)
    assert not (await workshop.get(builds[0], LIMIT)).cached


@pytest.mark.parametrize("failure", [RunnerGone(), RunnerGarbled("no frame")])
async def test_a_process_that_ends_is_not_the_candidates_fault(
    workshop: Workshop, cache: BuildCache, pool: Pool, failure: Exception
) -> None:
    pool.act = fails(failure)
    with pytest.raises(NotBuiltError, match="a compiler process ended: a log"):
        await workshop.get(BUILD, LIMIT)
    assert entries(cache) == []
    pool.act = wrote(CONTENT)
    assert not (await workshop.get(BUILD, LIMIT)).cached


async def test_too_much_memory_is_an_error_of_the_build(workshop: Workshop, pool: Pool) -> None:
    pool.act, pool.report = fails(RunnerGone()), replace(ENDED, out_of_memory=True)
    with pytest.raises(BuildError, match="more than 1024 MiB of memory"):
        await workshop.get(BUILD, LIMIT)
    pool.act, pool.report = wrote(CONTENT), ENDED
    assert (await workshop.get(BUILD, LIMIT)).library.content == CONTENT, "another time there may be enough"


async def test_who_writes_too_large_a_file_is_told_the_limit(workshop: Workshop, pool: Pool) -> None:
    pool.act = wrote(
        b"", log="c++: internal compiler error: File size limit exceeded signal terminated program cc1plus"
    )
    with pytest.raises(BuildError, match="a file of a build may have 1024 MiB"):
        await workshop.get(BUILD, LIMIT)


async def test_the_limit_is_for_all_libraries_of_a_candidate_together(workshop: Workshop, pool: Pool) -> None:
    """Otherwise a candidate of many libraries could keep all builders for long."""
    pool.seconds = 0.2
    got, spent = await workshop.get_all(
        [replace(BUILD, name=f"n{number}") for number in range(8)], limit=0.5, spent=0.0
    )
    assert spent > 0.5
    assert sum(isinstance(each, Built) for each in got) < 8
    assert any(isinstance(each, asyncio.CancelledError) for each in got)
    assert workshop.places.running == 0


async def test_time_that_others_spent_on_a_library_does_not_count(workshop: Workshop, pool: Pool) -> None:
    pool.seconds = 0.2
    await workshop.get(BUILD, LIMIT)
    assert (await workshop.get_all([BUILD], limit=0.1, spent=0.0))[1] == 0.0


async def test_time_of_earlier_rounds_counts(workshop: Workshop, pool: Pool) -> None:
    pool.seconds = 0.2
    got, spent = await workshop.get_all([BUILD], limit=1.0, spent=0.95)
    assert isinstance(got[0], Built)
    assert spent > 1.0


async def test_a_build_that_is_late_is_ended_and_not_remembered(
    workshop: Workshop, cache: BuildCache, pool: Pool
) -> None:
    pool.act = fails(RunnerLate())
    with pytest.raises(BuildLateError):
        await workshop.get(BUILD, LIMIT)
    assert pool.overdue == [True]
    assert entries(cache) == []
    pool.act = wrote(CONTENT)
    assert not (await workshop.get(BUILD, LIMIT)).cached


async def test_a_process_that_does_not_start_is_our_fault(workshop: Workshop, pool: Pool) -> None:
    pool.start_error = RunnerStartError("no memory")
    with pytest.raises(RunnerStartError):
        await workshop.get(BUILD, LIMIT)
    assert workshop.places.running == 0
    pool.start_error = None
    assert not (await workshop.get(BUILD, LIMIT)).cached


FLAGS = {
    "a plug-in": {"cpp_flags": ("-fplugin=/tmp/evil.so",)},
    "another output": {"cuda_flags": ("-o", "/tmp/x")},
    "a file of flags": {"cuda_flags": ("@flags",)},
    "another compiler": {"cuda_flags": ("-ccbin", "evil")},
    "a script for the linker": {"link_flags": ("-Wl,-T,evil.ld",)},
    "a folder outside": {"cpp_flags": ("-I/root",)},
    "a shell's": {"cuda_flags": ("-DX=$(id)",)},
    "a shell's, for the linker": {"link_flags": ("-lm;id",)},
    "the GPU of the builder": {"cuda_flags": ("-arch=native",)},
    "the GPU of the builder, as two flags": {"cuda_flags": ("-O3", "--gpu-architecture", "native")},
    "for the other compiler": {"cuda_flags": ("-Xcompiler", "-fplugin=evil.so")},
}


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
async def test_builds_with_flags_that_are_not_allowed_are_not_started(
    workshop: Workshop, pool: Pool, flags: dict[str, tuple[str, ...]]
) -> None:
    build = replace(BUILD, **flags)
    with pytest.raises(NotBuiltError, match=r"^([-@]|native: )"):
        await workshop.get(build, LIMIT)
    assert pool.orders == []


async def test_equal_builds_at_the_same_time_run_once(workshop: Workshop, pool: Pool) -> None:
    pool.gate.clear()
    waiting = [asyncio.create_task(workshop.get(NativeBuild.from_json(BUILD.to_json()), LIMIT)) for _ in range(5)]
    await eventually(lambda: pool.orders)
    assert workshop.places.running == 1
    pool.gate.set()
    built = await asyncio.gather(*waiting)
    assert len(pool.orders) == 1
    assert [each.cached for each in built] == [False, True, True, True, True]
    assert len({each.library for each in built}) == 1
    assert workshop.places.running == 0
    assert not workshop._jobs


@pytest.mark.parametrize(
    ("act", "error"),
    [(wrote(b"", log="no"), BuildError), (answers({}), NotBuiltError), (fails(RunnerLate()), BuildLateError)],
)
async def test_all_who_wait_for_a_build_get_its_error(
    workshop: Workshop, pool: Pool, act: Acts, error: type[Exception]
) -> None:
    pool.act = act
    pool.gate.clear()
    waiting = [asyncio.create_task(workshop.get(BUILD, LIMIT)) for _ in range(3)]
    await eventually(lambda: pool.orders)
    pool.gate.set()
    got = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in got] == [error] * 3
    assert len(pool.orders) == 1
    assert not workshop._jobs


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_one_who_gives_up_does_not_disturb_the_others(workshop: Workshop, pool: Pool, which: int) -> None:
    pool.gate.clear()
    waiting = [asyncio.create_task(workshop.get(BUILD, LIMIT)) for _ in range(3)]
    await eventually(lambda: pool.orders)
    waiting[which].cancel()
    await asyncio.sleep(0)
    pool.gate.set()
    got = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(got.pop(which), asyncio.CancelledError)
    assert [each.library.content for each in got if isinstance(each, Built)] == [CONTENT, CONTENT]
    assert len(pool.orders) == 1


async def test_when_all_give_up_the_build_ends(workshop: Workshop, cache: BuildCache, pool: Pool) -> None:
    pool.gate.clear()
    waiting = [asyncio.create_task(workshop.get(BUILD, LIMIT)) for _ in range(3)]
    await eventually(lambda: pool.orders)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await eventually(lambda: not pool.alive)
    assert entries(cache) == []
    assert workshop.places.running == 0
    pool.gate.set()
    assert not (await workshop.get(BUILD, LIMIT)).cached
    assert len(pool.orders) == 2


async def test_one_who_gives_up_before_there_is_a_place_leaves_nothing(workshop: Workshop, pool: Pool) -> None:
    pool.gate.clear()
    builds = [replace(BUILD, name=f"b{number}") for number in range(3)]
    waiting = [asyncio.create_task(workshop.get(build, LIMIT)) for build in builds]
    await eventually(lambda: len(pool.orders) == 2)
    waiting[2].cancel()
    await asyncio.gather(waiting[2], return_exceptions=True)
    pool.gate.set()
    assert len(await asyncio.gather(*waiting[:2])) == 2
    assert len(pool.orders) == 2


async def test_no_more_builds_run_at_once_than_there_are_places(workshop: Workshop, pool: Pool) -> None:
    pool.gate.clear()
    builds = [replace(BUILD, name=f"b{number}") for number in range(6)]
    waiting = [asyncio.create_task(workshop.get(build, LIMIT)) for build in builds]
    await eventually(lambda: len(pool.orders) == 2)
    await asyncio.sleep(0.05)
    assert (len(pool.orders), workshop.places.running) == (2, 2)
    pool.gate.set()
    built = await asyncio.gather(*waiting)
    assert [each.library.name for each in built] == [build.name for build in builds]
    assert pool.most_alive == 2


async def test_the_short_limit_of_one_is_not_the_limit_of_another(workshop: Workshop, pool: Pool) -> None:
    pool.gate.clear()
    hurried = asyncio.create_task(workshop.get(BUILD, 0.2))
    await eventually(lambda: pool.orders)
    patient = asyncio.create_task(workshop.get(BUILD, LIMIT))
    with pytest.raises(BuildLateError):
        await hurried
    assert not patient.done()
    pool.gate.set()
    assert (await patient).library.content == CONTENT
    assert pool.limits == [0.2, LIMIT]


async def test_a_full_disk_costs_nobody_the_library(pool: Pool, tmp_path: Path) -> None:
    workshop = Workshop(pool, BuildCache(tmp_path / "small", 10), Toolchain(), Places(1))
    for number in (1, 2):
        built = await workshop.get(BUILD, LIMIT)
        assert (built.cached, built.library.content) == (False, CONTENT)
        assert len(pool.orders) == number

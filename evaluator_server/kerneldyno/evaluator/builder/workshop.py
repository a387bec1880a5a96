"""The workshop: it has libraries built, each key once at a time, and returns them from the cache when it has them."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kerneldyno.rpc.build_flags import refused

from ..judge.runners.handle import RunnerGarbled, RunnerGone, RunnerLate
from ..judge.runners.pool import Pool
from ..shared.library_file import MOST_BYTES, MOST_LOG, Library
from ..shared.native_build import NativeBuild
from ..walls.limits import MAX_FILE_BYTES
from .cache import BuildCache
from .places import Places
from .toolchain import Toolchain

_log = logging.getLogger("kerneldyno.builder")

#: Most steps of a build that are reported.
_MOST_STEPS = 100
#: Time limit in seconds to compile the header for bindings.
_HEADER_SECONDS = 120.0
#: Most builds of which it is remembered that the compilers refused them.
_MOST_REFUSALS = 512
#: What gcc prints when a file grows beyond the sandbox's limit, and what it does not say.
_FILE_LIMIT = "File size limit exceeded"
_TOO_LARGE = f"a file of a build may have {MAX_FILE_BYTES >> 20} MiB: build smaller arrays and fewer templates"
_THIS_GPU = re.compile(r"(^| )--?(arch|code|gpu-architecture|gpu-code)[= ]native\b")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class BuildError(Exception):
    """The compilers refused a library; the message is theirs."""


class BuildMemoryError(BuildError):
    """The compilers needed more memory than they may have, or than there was. That may differ the next time."""


class NotBuiltError(Exception):
    """A library could not be built here, for a reason that is not the candidate's. Its runner builds it."""


class BuildLateError(Exception):
    """The compilers were slower than the limit."""


@dataclass(slots=True)
class _Job:
    task: asyncio.Task[Library]
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Built:
    """A library, and whether it was there, or was being built for another evaluation."""

    library: Library
    cached: bool


@dataclass(slots=True)
class Workshop:
    """Builds libraries in processes of `pool`, as many at once as there are places."""

    pool: Pool
    cache: BuildCache
    toolchain: Toolchain
    places: Places
    #: Builds that run or wait, by key and time limit: who grants more time must not get the verdict of less.
    _jobs: dict[tuple[str, float], _Job] = field(default_factory=dict)
    #: The compilers' messages for builds that they have refused, by key; the oldest go first.
    _refusals: dict[str, str] = field(default_factory=dict)
    #: The header for bindings, compiled ahead; a sealed memory file.
    _header: int | None = None

    async def compile_header(self) -> None:
        """Have the header for bindings compiled ahead; later builds use it. Without it they take two seconds more."""
        memory_file = os.memfd_create("kerneldyno-header", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        runner = await self.pool.spawn(role="compiler", descriptors=[os.dup(memory_file)])
        size = 0
        try:
            order = {"op": "header", "architecture": self.toolchain.architecture}
            size = int((await runner.ask(order, _HEADER_SECONDS)).get("ok", 0))
        except (RunnerLate, RunnerGone, RunnerGarbled) as failure:
            _log.warning("event=header_not_compiled reason=%s", type(failure).__name__)
        finally:
            await self.pool.discard(runner)
            if size and size == os.fstat(memory_file).st_size:
                # All later compilers read it, and none may change it.
                fcntl.fcntl(
                    memory_file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
                )
                self._header = memory_file
            else:
                os.close(memory_file)

    async def get_all(
        self, builds: Sequence[NativeBuild], limit: float, spent: float
    ) -> tuple[list[Built | BaseException], float]:
        """Have the libraries of one candidate built, side by side. Return what became of each build, and the seconds spent.

        `spent` are seconds that compilers have spent on this candidate before. Once they exceed the limit, or one build
        alone does, the verdict is known, and the builds that still run are cancelled.
        """
        tasks = [asyncio.create_task(self.get(build, limit)) for build in builds]
        pending = set(tasks)
        try:
            while pending and spent <= limit:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                built = [task.result() for task in done if task.exception() is None]
                spent += sum(each.library.seconds for each in built if not each.cached)
                if any(isinstance(task.exception(), BuildLateError) for task in done):
                    break
        finally:
            for task in tasks:
                task.cancel()
            got = await asyncio.gather(*tasks, return_exceptions=True)
        return got, spent

    async def get(self, build: NativeBuild, limit: float) -> Built:
        """Return the library of a build.

        Args:
            build: What to build.
            limit: Time limit in seconds, from the start of the compilers.

        Raises:
            BuildError: The compilers refused it, or (BuildMemoryError) needed too much memory.
            BuildLateError: They were too slow.
            NotBuiltError: It must be built elsewhere.
        """
        key = self.toolchain.key(build)
        if (found := self.cache.find(key)) is not None:
            return Built(found, cached=True)
        if (log := self._refusals.get(key)) is not None:
            raise BuildError(log)
        if why := _refused_flags(build):
            raise NotBuiltError(why)
        shared = (key, limit) in self._jobs
        if not shared:
            self._jobs[key, limit] = _Job(asyncio.create_task(self._build(key, build, limit)))
        job = self._jobs[key, limit]
        job.waiting += 1
        try:
            return Built(await asyncio.shield(job.task), cached=shared)
        finally:
            job.waiting -= 1
            if not job.waiting:  # nobody wants it any more, or it is done
                job.task.cancel()
                if self._jobs.get((key, limit)) is job:
                    del self._jobs[key, limit]

    async def _build(self, key: str, build: NativeBuild, limit: float) -> Library:
        async with self.places.one():
            try:
                library = await self._compile(key, build, limit)
            except BuildMemoryError:
                raise
            except BuildError as error:
                self._refusals[key] = str(error)
                if len(self._refusals) > _MOST_REFUSALS:
                    del self._refusals[next(iter(self._refusals))]
                raise
        self.cache.add(library)
        return library

    async def _compile(self, key: str, build: NativeBuild, limit: float) -> Library:
        memory_file = os.memfd_create("kerneldyno-library", os.MFD_CLOEXEC)
        try:
            files = [memory_file] if self._header is None else [memory_file, self._header]
            runner = await self.pool.spawn(role="compiler", descriptors=list(map(os.dup, files)))
            began = time.monotonic()
            order = {"op": "build", "build": build.to_json(), "architecture": self.toolchain.architecture}
            late = gone = False
            answer: Any = None
            try:
                answer = (await runner.ask(order, limit)).get("ok")
            except RunnerLate:
                late = True
            except (RunnerGone, RunnerGarbled):
                gone = True
            finally:
                report = await self.pool.discard(runner, overdue=late)
            seconds = time.monotonic() - began
            if late:
                raise BuildLateError
            if gone:
                if report.out_of_memory:
                    raise BuildMemoryError(f"the compilers used more than {self.pool.memory_bytes >> 20} MiB of memory")
                raise NotBuiltError(f"a compiler process ended: {report.logs[-500:]}")
            # Read it only now: the process and all its descendants have ended, so nobody can change it any more.
            return _library(key, build, answer, seconds, memory_file)
        finally:
            os.close(memory_file)


def _library(key: str, build: NativeBuild, answer: Any, seconds: float, memory_file: int) -> Library:
    """Read what a compiler process returned. It has seen hostile text, so nothing of it is believed."""
    try:
        size, log = int(answer["size"]), str(answer["log"])
        steps = tuple((str(name)[:200], float(took)) for name, took in answer["steps"][:_MOST_STEPS])
        lean = answer["lean"] is True
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise NotBuiltError(f"malformed answer: {error}") from None
    if not size:
        hint = f"; {_TOO_LARGE}" if _FILE_LIMIT in log else ""
        raise BuildError(_CONTROL.sub("", log[:MOST_LOG]) + hint)
    if size > MOST_BYTES or size != os.fstat(memory_file).st_size:
        raise NotBuiltError("the library has another size than was said")
    return Library(key, build.name, lean, seconds, steps, os.pread(memory_file, size, 0))


def _refused_flags(build: NativeBuild) -> str:
    """Return why a build's flags are not for builders, or "". Its own runner, which nobody shares, may use them."""
    if _THIS_GPU.search(" ".join(build.cuda_flags)):
        return "native: means the GPU of this process, and builders have none"
    for flags, compiler in ((build.cuda_flags, "cuda"), (build.cpp_flags, "cpp"), (build.link_flags, "link")):
        for flag, reason in refused(flags, compiler):  # type: ignore[arg-type]
            return f"{flag}: {reason}"
    return ""

"""The builder's conversation with the evaluator server: a candidate's request becomes libraries, or its verdict.

Frames from the server: `build` (attempt, request), `cancel` (attempt), `places` (how many builds may run at once from now
on), `shutdown`. To the server: `ready`, or `fatal`
before the exit; `built` for each attempt; `stats` every second. `built` names the libraries in the cache by the digest
of their build. It has a result only if the candidate cannot be imported because a build has failed, or if a build was
too slow. In every other case the attempt goes on to a device, where its runner builds what is missing; `left` names the
libraries that were left to it, with the reasons, and `broken` says why nobody knows what is missing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable
from pathlib import Path

from kerneldyno.v1 import evaluation_pb2 as pb

from ..devices.base import Device
from ..judge.request import read_request
from ..judge.results import verdict
from ..judge.runners import ladder
from ..judge.runners.handle import RunnerStartError
from ..judge.runners.pool import Pool
from ..shared import messages, wire
from ..shared.spec import EvalSpec
from ..walls import namespaces, root
from .cache import BuildCache
from .places import Places
from .plan import Planner
from .toolchain import Toolchain
from .workshop import BuildError, BuildLateError, Built, NotBuiltError, Workshop

_log = logging.getLogger("kerneldyno.builder")

#: How often a scout runs for one candidate: again after a build has failed, because the candidate may do without it.
_ROUNDS = 3
#: Exit status if the builder must not serve.
EXIT_FATAL = 3


class Service:
    """Runs until the server closes the connection or sends `shutdown`. `serve` returns the exit status."""

    def __init__(
        self,
        device: Device,
        zygote: socket.socket,
        *,
        cache: BuildCache,
        toolchain: Toolchain,
        places: int,
        memory_bytes: int,
        sandbox: str,
    ) -> None:
        """Create it. `device` is the CPU, which the self-test of the walls needs."""
        self._pool = Pool(zygote, device, "cpu:0", spares=0, memory_bytes=memory_bytes)
        self._places = Places(places)
        self._workshop = Workshop(self._pool, cache, toolchain, self._places)
        self._planner = Planner(self._pool, toolchain.architecture)
        self._memory_bytes = memory_bytes
        self._sandbox = sandbox
        self._attempts: dict[str, asyncio.Task[None]] = {}
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self, control: socket.socket) -> int:
        """Serve one connection, and return the exit status."""
        reader, self._writer = await wire.connect(control)
        if problem := await self._prove_sandbox():
            self._send({"op": "fatal", "detail": problem})
            await self._writer.drain()
            return EXIT_FATAL
        self._send({"op": "ready"})
        header = asyncio.create_task(self._compile_header())
        teller = asyncio.create_task(self._tell_stats())
        try:
            await self._listen(reader)
        finally:
            tasks = (teller, header, *self._attempts.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._pool.close()
        return 0

    async def _prove_sandbox(self) -> str:
        """Determine which walls hold. Return the reason why the builder must not serve, or ""."""
        try:
            await ladder.climb_down(self._pool, "none", self._sandbox)
        except ladder.NoWallsError as error:
            return str(error)
        walls = self._pool.walls
        if not (walls.namespaces or walls.filters or namespaces.host_is_root()):
            return "without namespaces and Landlock, candidates of the same user could write to the build cache"
        return "" if namespaces.host_is_root() else _why_readable(self._workshop.cache.directory, root.visible_paths())

    async def _compile_header(self) -> None:
        try:
            await self._workshop.compile_header()
        except RunnerStartError as error:
            _log.warning("event=header_not_compiled reason=%r", str(error)[:500])

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while (frame := await wire.read_frame(reader)) is not None:
            match frame.get("op"):
                case "build":
                    attempt = frame["attempt"]
                    self._attempts[attempt] = asyncio.create_task(self._serve_attempt(attempt, frame.get("request")))
                case "cancel":
                    if task := self._attempts.get(frame["attempt"]):
                        task.cancel()
                case "places":
                    self._places.count = frame["places"]
                case "shutdown":
                    return

    async def _serve_attempt(self, attempt: str, request: object) -> None:
        answer: wire.Frame = {"builds": [], "libraries": [], "failures": {}, "result": None, "left": [], "broken": ""}
        try:
            await self._build(read_request(messages.unpack(pb.EvalRequest, request)), answer)
        except RunnerStartError as error:
            _log.warning("event=build_process_failed detail=%r", str(error)[:500])
            answer["broken"] = f"a process of the builder did not start: {verdict.clean(str(error), 500)}"
        except Exception as error:  # the attempt must go on
            _log.exception("event=builder_error attempt=%s", attempt)
            answer["broken"] = f"the builder failed: {type(error).__name__}"
        finally:
            self._attempts.pop(attempt, None)
        self._send({"op": "built", "attempt": attempt, **answer})

    async def _build(self, spec: EvalSpec, answer: wire.Frame) -> None:
        """Build what a candidate wants, and fill in the answer to the server."""
        failures = answer["failures"]
        seen: set[str] = set()
        spent = 0.0  # seconds of its compilers, also of those that ran side by side
        for _ in range(_ROUNDS):
            scouted = await self._planner.scout(spec, failures)
            if scouted.error is not None:
                answer["result"] = messages.pack(
                    verdict.raised("load", scouted.error, verdict.Limits(self._memory_bytes))
                )
                return
            new = [build for build in scouted.builds if build.digest not in seen]
            seen.update(build.digest for build in new)
            got, spent = await self._workshop.get_all(new, spec.candidate.limits.build, spent)
            failed = False
            if spent > spec.candidate.limits.build:
                answer["result"] = messages.pack(verdict.late("build", spec.candidate.limits.build, 0.0))
            for build, each in zip(new, got, strict=True):
                if isinstance(each, asyncio.CancelledError):
                    continue
                if isinstance(each, BuildLateError):
                    answer["result"] = messages.pack(verdict.late("build", spec.candidate.limits.build, 0.0))
                elif isinstance(each, BuildError):
                    failures[build.digest] = str(each)
                    answer["builds"].append(messages.pack(pb.NativeBuild(name=build.name, failed=True)))
                    failed = True
                elif isinstance(each, Built):
                    answer["builds"].append(messages.pack(_report(each)))
                    answer["libraries"].append([build.digest, each.library.key])
                elif isinstance(each, NotBuiltError):
                    _log.info("event=not_built name=%s reason=%r", build.name, str(each)[:500])
                    answer["left"].append([verdict.clean(build.name, 200), verdict.clean(str(each), 500)])
                else:
                    raise each
            if not failed or answer["result"] is not None:
                return

    async def _tell_stats(self) -> None:
        while True:
            cache = self._workshop.cache
            self._send(
                {
                    "op": "stats",
                    "running": self._places.running,
                    "cache_bytes": cache.size,
                    "cache_entries": cache.entries,
                    "cache_evictions": cache.evictions,
                }
            )
            await asyncio.sleep(1)

    def _send(self, frame: wire.Frame) -> None:
        assert self._writer is not None
        wire.write_frame(self._writer, frame)


def _why_readable(cache: Path, visible: Iterable[str]) -> str:
    """Return why candidates of the same user could read the build cache, or ""."""
    for path in visible:
        if cache.resolve().is_relative_to(path):
            return f"the build cache {cache} lies in {path}, which candidates may read; set --build-cache"
    return ""


def _report(built: Built) -> pb.NativeBuild:
    library = built.library
    headers = pb.NativeBuild.HEADERS_LEAN if library.lean else pb.NativeBuild.HEADERS_FULL
    report = pb.NativeBuild(name=library.name, headers=headers, cached=built.cached, seconds=library.seconds)
    for name, seconds in library.steps:
        report.steps.add(name=verdict.clean(name, 200), seconds=seconds)
    return report

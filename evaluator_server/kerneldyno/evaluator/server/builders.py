"""The node's builders: one child process that has native code built before an attempt gets a lane (`..builder`).

The node submits attempts, and gets each back once: with the libraries that were built, or with the candidate's verdict.
If the builder dies, hangs or must not serve, attempts come back without libraries, and their runners build in lanes.
What is built without an attempt (`build_checks`) waits in the same line, and comes back in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kerneldyno.v1 import evaluation_pb2 as pb

from ..shared import cores, messages, wire
from ..shared.library_file import place
from .attempt import Attempt, BuildOutcome
from .child_process import Child, describe_exit
from .metrics import Metrics

_log = logging.getLogger(__name__)

#: Time limit in seconds from start to ready.
_START_SECONDS = 120.0
#: The builder sends a frame every second. If it is silent for this long (seconds), it hangs.
_SILENCE_SECONDS = 60.0
#: Delay in seconds before a restart. It is the first value after a useful life, else it doubles up to the last one.
_FIRST_BACKOFF, _LAST_BACKOFF = 0.5, 60.0
#: Processors that a build uses: nvcc's two passes and the binding run side by side.
_PROCESSORS_A_BUILD = 2
#: Part of the places for builds that is left while all lanes are busy. It is whole while half of the lanes are free.
_LEAST_PART = 0.125
_SHUTDOWN_SECONDS = 2.0
_READ_BUFFER = 1024 * 1024
_NO_ANSWER = "the builder ended before it answered, or did not start; the evaluator's log says why"
_BROKEN_PROTOCOL = (wire.ProtocolError, LookupError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class BuilderSettings:
    """How to start the builder. The commands lack the flags that every zygote or builder gets."""

    #: Builds at once while no lane is busy; 0: there are no builders.
    places: int
    cache: Path
    cache_bytes: int
    #: Of the GPUs, as in TORCH_CUDA_ARCH_LIST; empty without any.
    architecture: str = ""
    sandbox: str = "auto"
    #: Whether it starts with the server, or with the first attempt that needs it.
    at_once: bool = True
    zygote_command: tuple[str, ...] = (sys.executable, "-m", "kerneldyno.evaluator.runner.zygote")
    builder_command: tuple[str, ...] = (sys.executable, "-m", "kerneldyno.evaluator.builder")

    def beside(self, busy_lanes: int, lanes: int) -> int:
        """Return how many builds may run at once while so many of all lanes are busy.

        All of them if lanes wait for candidates. If all lanes are busy, more builds would only lengthen the line for
        lanes, and take processors from those who have one; then it is an eighth. Builds never stop entirely.
        """
        free = 1.0 - busy_lanes / lanes if lanes else 1.0
        return max(1, round(self.places * min(1.0, _LEAST_PART + 2 * (1.0 - _LEAST_PART) * free)))

    def zygote(self, fd: int) -> list[str]:
        """Return the zygote's whole command line."""
        return [*self.zygote_command, f"--fd={fd}", "--device=cpu:0", "--builder", f"--exit-with-parent={os.getpid()}"]

    def builder(self, control_fd: int, zygote_fd: int) -> list[str]:
        """Return the builder's whole command line."""
        cache = [f"--cache={self.cache}", f"--cache-bytes={self.cache_bytes}"]
        own = [f"--control-fd={control_fd}", f"--zygote-fd={zygote_fd}", f"--places={self.places}"]
        common = [f"--sandbox={self.sandbox}", f"--exit-with-parent={os.getpid()}"]
        return [*self.builder_command, *own, *cache, f"--architecture={self.architecture}", *common]


@dataclass(frozen=True, slots=True)
class _Work:
    """What is being built: a request, since when (wall clock, seconds), and who gets the outcome."""

    request: pb.EvalRequest
    since: float
    done: Callable[[BuildOutcome], None]


class Builders:
    """The builders of one node. `run` runs as long as the server; the same event loop calls all other methods."""

    def __init__(
        self, settings: BuilderSettings, done: Callable[[Attempt, BuildOutcome], None], metrics: Metrics
    ) -> None:
        """Create them. `done` takes back each attempt, exactly once."""
        self._settings = settings
        self._done = done
        self._metrics = metrics
        #: What is being built, or waits for it, by token.
        self._building: dict[str, _Work] = {}
        self._wanted = asyncio.Event()
        #: To a builder that is ready, and to one that may not be ready yet.
        self._writer: asyncio.StreamWriter | None = None
        self._zygote: Child | None = None
        self._starting: asyncio.StreamWriter | None = None
        #: False after a start has failed, until one succeeds: then attempts do not wait.
        self._hopeful = settings.places > 0
        #: Builds that may run at once now.
        self._places_now = settings.places
        self._last_frame = 0.0

    @property
    def places(self) -> int:
        """Return how many candidates are built at once; 0 while there are no builders."""
        return self._settings.places if self._hopeful else 0

    @property
    def building(self) -> int:
        """Return how many requests are being built or wait for it."""
        return len(self._building)

    def submit(self, attempt: Attempt) -> None:
        """Have an attempt's native code built. It comes back by `done`, perhaps at once."""
        attempt.move(pb.STAGE_BUILDING)
        self.build(attempt.token, attempt.request, partial(self._done, attempt))

    def build(self, token: str, request: pb.EvalRequest, done: Callable[[BuildOutcome], None]) -> None:
        """Have the native code of a request built. `done` gets the outcome exactly once, perhaps at once.

        Args:
            token: Names it here; no attempt and no other request may have the same one.
            request: The effective request.
            done: Takes the outcome.
        """
        self._building[token] = _Work(request, time.time(), done)
        self._wanted.set()
        if not self.places:
            self._return(token)
        elif self._writer is not None:
            self._order(token)

    def share(self, busy_lanes: int, lanes: int) -> None:
        """Leave processors to the candidates in busy lanes: the more of all lanes are busy, the fewer builds begin."""
        places = self._settings.beside(busy_lanes, lanes)
        if places != self._places_now:
            self._places_now = places
            self._tell_places()

    def cancel(self, token: str) -> None:
        """End the building of an attempt or request, which comes back at once. Ignore what is not being built."""
        if token not in self._building:
            return
        if self._writer is not None:
            wire.write_frame(self._writer, {"op": "cancel", "attempt": token})
        self._return(token)

    async def run(self) -> None:
        """Keep a builder running until cancelled."""
        delay = _FIRST_BACKOFF
        if not self._settings.places:
            return
        self._metrics.show_builders(self._settings.places, 0)
        if not self._settings.at_once:
            await self._wanted.wait()
        while True:
            was_ready, reason = await self._run_once()
            self._writer = None
            self._hopeful = was_ready
            for token in list(self._building):
                self._return(token)
            delay = _FIRST_BACKOFF if was_ready else min(_LAST_BACKOFF, 2 * delay)
            _log.warning("event=builder_restart delay=%.1f lanes_build=%s reason=%r", delay, not was_ready, reason)
            await asyncio.sleep(delay)

    async def _run_once(self) -> tuple[bool, str]:
        """Start zygote and builder, and serve until one of them ends. Return whether it was ready, and the reason."""
        ready = False
        try:
            async with AsyncExitStack() as stack:
                builder, zygote, reader = await self._start(stack)
                frames = asyncio.create_task(self._read(reader), name="builder frames")
                stack.callback(frames.cancel)
                self._last_frame = asyncio.get_running_loop().time()
                reason = ""
                while not reason:
                    await asyncio.wait({frames, builder.exited, zygote.exited}, timeout=1.0)
                    ready = ready or self._writer is not None
                    silent = asyncio.get_running_loop().time() - self._last_frame
                    if frames.done():
                        reason = frames.result()
                    elif builder.exited.done() or zygote.exited.done():
                        ended = builder if builder.exited.done() else zygote
                        reason = f"{ended.name} ended: {describe_exit(ended.exited.result())}"
                    elif silent > (_SILENCE_SECONDS if ready else _START_SECONDS):
                        reason = f"the builder sent nothing for {silent:.0f} s"
                return ready, reason
        except OSError as error:
            return ready, f"cannot start: {error}"

    async def _start(self, stack: AsyncExitStack) -> tuple[Child, Child, asyncio.StreamReader]:
        ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
        builder_end, zygote_end = (stack.enter_context(end) for end in socket.socketpair())
        fd = zygote_end.fileno()
        self._zygote = zygote = await Child.start("zygote/builder", self._settings.zygote(fd), [fd])
        stack.push_async_callback(zygote.end, 1.0)
        fds = [theirs.fileno(), builder_end.fileno()]
        builder = await Child.start("builder", self._settings.builder(*fds), fds)
        stack.push_async_callback(builder.end)
        for end in (theirs, builder_end, zygote_end):  # then each side notices when the other ends
            end.close()
        reader, writer = await wire.connect(ours, _READ_BUFFER)
        self._starting = writer
        stack.callback(writer.close)
        stack.push_async_callback(self._request_shutdown, builder, writer)
        return builder, zygote, reader

    async def _request_shutdown(self, builder: Child, writer: asyncio.StreamWriter) -> None:
        if not builder.exited.done():
            wire.write_frame(writer, {"op": "shutdown"})
            await asyncio.wait({builder.exited}, timeout=_SHUTDOWN_SECONDS)

    async def _read(self, reader: asyncio.StreamReader) -> str:
        """Handle frames until the builder closes the socket. Return why it must be replaced."""
        try:
            while (frame := await wire.read_frame(reader)) is not None:
                self._last_frame = asyncio.get_running_loop().time()
                match frame["op"]:
                    case "ready":
                        self._writer, self._hopeful = self._starting, True
                        _log.info("event=builder_ready places=%d", self._settings.places)
                        self._tell_places()
                        for token in list(self._building):
                            self._order(token)
                    case "built":
                        self._return(str(frame["attempt"]), frame)
                    case "stats":
                        self._metrics.show_builders(self._settings.places, int(frame["running"]))
                        self._metrics.show_build_cache(
                            int(frame["cache_bytes"]), int(frame["cache_entries"]), int(frame["cache_evictions"])
                        )
                    case "fatal":
                        return str(frame["detail"])[:2000]
                    case _:
                        raise wire.ProtocolError("unknown op")
        except _BROKEN_PROTOCOL as error:
            return f"the builder broke the protocol: {type(error).__name__}: {str(error)[:200]}"
        return "the builder closed its control socket"

    def _tell_places(self) -> None:
        """Bound the builds that begin from now on: their number, and the processors that they may use."""
        if self._writer is None or self._zygote is None:
            return
        wire.write_frame(self._writer, {"op": "places", "places": self._places_now})
        processors = os.sched_getaffinity(0)
        if self._places_now < self.places:
            processors = cores.first_of(processors, _PROCESSORS_A_BUILD * self._places_now)
        with contextlib.suppress(OSError):  # it has ended
            os.sched_setaffinity(self._zygote.pid, processors)  # what it forks inherits it

    def _order(self, token: str) -> None:
        assert self._writer is not None
        request = messages.pack(self._building[token].request)
        wire.write_frame(self._writer, {"op": "build", "attempt": token, "request": request})

    def _return(self, token: str, answer: wire.Frame | None = None) -> None:
        """Give an attempt back, with what the builder answered, or without libraries."""
        if token not in self._building:  # it was cancelled
            return
        work = self._building[token]
        outcome = self._read_answer({"broken": _NO_ANSWER} if answer is None else answer, work.since)
        del self._building[token]
        for build in outcome.builds:
            self._metrics.built(build)
        work.done(outcome)

    def _read_answer(self, answer: wire.Frame, since: float) -> BuildOutcome:
        span = pb.StageSpan(stage=pb.STAGE_BUILDING)
        span.start_time.FromMicroseconds(int(since * 1e6))
        span.duration.FromMicroseconds(max(0, round((time.time() - since) * 1e6)))
        result = answer.get("result")
        places = ((digest, key, place(self._settings.cache, key)) for digest, key in answer.get("libraries", []))
        built = [list(map(str, each)) for each in places]
        return BuildOutcome(
            span,
            [messages.unpack(pb.NativeBuild, said) for said in answer.get("builds", [])],
            {"built": built, "failures": dict(answer.get("failures", {}))},
            None if result is None else messages.unpack(pb.EvalResult, result),
            [(str(name), str(reason)) for name, reason in answer.get("left", [])],
            str(answer.get("broken", "")),
        )

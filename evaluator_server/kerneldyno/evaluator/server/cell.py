"""A cell: one device with its zygote and its judge. It starts both processes and restarts them when one of them dies.

The node assigns attempts and reads `ready` and `free_lanes`. The cell speaks the judge's protocol (frames of `wire`).
When a judge dies, the cell decides which attempt caused it: if the judge was executing the reference of exactly one
attempt, that attempt gets its verdict here, and the others go back to the node. The cell judges no candidate and never
imports torch.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb

from ..shared import messages, wire
from . import failure_results
from .attempt import Attempt
from .child_process import Child, describe_exit
from .metrics import DeviceMetrics

_log = logging.getLogger(__name__)

#: Time limit in seconds from start to ready: the imports of torch and triton from a slow disk, two CUDA contexts.
_START_SECONDS = 300.0
#: How often the server tries to make a device ready for the first time before it gives up.
_START_TRIES = 3
#: A judge sends a frame every second. If it is silent for this long (seconds) while no reference runs, it hangs.
_SILENCE_SECONDS = 180.0
#: Time limit in seconds to end a cancelled attempt, in addition to the limit of a reference that it may wait for.
_CANCEL_SECONDS = 30.0
#: Seconds between two checks of these limits and of the reference's.
_WATCH_PERIOD = 0.25
#: Delay in seconds before a restart. It is 0 after a useful life, else it doubles from the first to the last value.
_FIRST_BACKOFF, _LAST_BACKOFF = 0.25, 30.0
#: Seconds to wait for the second of two facts, once one is known: how a process ended, and what it had sent.
_SETTLE_SECONDS = 1.0
#: A judge that has closed its socket must end within this many seconds. Freeing a large CUDA context takes a few.
_DEATH_SECONDS = 10.0
#: Seconds for which a verdict "killed by SIGKILL" is held back. A zygote that dies takes its runners with it, and the
#: judge may notice the runner's death before the zygote's.
_KILLED_SECONDS = 0.5
#: Time limit in seconds for a judge that is asked to exit.
_SHUTDOWN_SECONDS = 2.0
#: Time limit in seconds for a zygote to clean up after its judge has ended.
_ZYGOTE_SECONDS = 1.0
_READ_BUFFER = 1024 * 1024
#: Exceptions that a malformed frame can cause in `_handle`.
_BROKEN_PROTOCOL = (wire.ProtocolError, LookupError, TypeError, ValueError, AttributeError)


class CellFailedError(Exception):
    """The device cannot become ready; the message says why."""


@dataclass(frozen=True, slots=True)
class CellSettings:
    """How to start a cell. The commands lack the flags that every zygote or judge gets."""

    device: str
    node_id: str
    lanes: int
    spares: int
    sandbox: str = "auto"
    reference_seconds: float = 120.0
    #: The device's index among the server's devices, and the number of those devices.
    share: tuple[int, int] = (0, 1)
    zygote_command: tuple[str, ...] = (sys.executable, "-m", "kerneldyno.evaluator.runner.zygote")
    judge_command: tuple[str, ...] = (sys.executable, "-m", "kerneldyno.evaluator.judge")

    def zygote(self, fd: int) -> list[str]:
        """Return the zygote's whole command line."""
        return [*self.zygote_command, f"--fd={fd}", *self._common()]

    def judge(self, control_fd: int, zygote_fd: int) -> list[str]:
        """Return the judge's whole command line."""
        own = [f"--control-fd={control_fd}", f"--zygote-fd={zygote_fd}"]
        size = [f"--lanes={self.lanes}", f"--spares={self.spares}", f"--node-id={self.node_id}"]
        size.append(f"--reference-seconds={self.reference_seconds}")
        share = [f"--number={self.share[0]}", f"--devices={self.share[1]}"]
        return [*self.judge_command, *own, *size, *share, f"--sandbox={self.sandbox}", *self._common()]

    def _common(self) -> list[str]:
        return [f"--device={self.device}", f"--exit-with-parent={os.getpid()}"]


@dataclass(frozen=True, slots=True)
class Description:
    """What a judge reported about its device when it became ready."""

    device: fleet_pb.Device
    environment: pb.Environment
    sandbox_layers: tuple[fleet_pb.SandboxLayer, ...]
    spare_runners: int
    candidate_memory_bytes: int
    gpu_uuid: str
    """As NVML reports it; empty on the CPU."""

    @classmethod
    def from_frame(cls, frame: wire.Frame) -> Description:
        """Read a frame `ready`."""
        return cls(
            messages.unpack(fleet_pb.Device, frame["device"]),
            messages.unpack(pb.Environment, frame["environment"]),
            tuple(messages.unpack(fleet_pb.SandboxLayer, layer) for layer in frame["sandbox_layers"]),
            int(frame["spare_runners"]),
            int(frame["candidate_memory_bytes"]),
            str(frame.get("gpu_uuid", "")),
        )


class Owner(Protocol):
    """The interface through which a cell reports to its node."""

    def finished(self, attempt: Attempt, result: pb.EvalResult) -> None:
        """Take the result of `attempt`."""

    def lost(self, attempts: Sequence[Attempt], detail: str) -> None:
        """Take back attempts whose judge died; as far as is known, none of them caused it."""

    def changed(self) -> None:
        """Note that a lane became free, or that the device became ready or stopped being ready."""


@dataclass(frozen=True, slots=True)
class _Death:
    """Why a judge ended.

    `cause` is one of metrics.RESTART_CAUSES; `guilty` is a token if the guilty attempt is certain.
    """

    cause: str
    detail: str
    guilty: str | None = None


class Cell:
    """One device. `run` runs as long as the server; the same event loop calls all other methods."""

    def __init__(self, settings: CellSettings, owner: Owner, metrics: DeviceMetrics) -> None:
        self.settings = settings
        self.ready = False
        #: What the last ready judge reported; None until the first one.
        self.description: Description | None = None
        self._owner = owner
        self._metrics = metrics
        self._running: dict[str, Attempt] = {}
        #: Attempts whose source the judge is parsing, and since when: all of theirs that can still harm it.
        self._parsed: dict[str, float] = {}
        #: Results that are held back for _KILLED_SECONDS.
        self._held: dict[str, asyncio.TimerHandle] = {}
        #: When each running attempt was cancelled.
        self._cancelled: dict[str, float] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._last_frame = 0.0
        self._useful = False

    @property
    def name(self) -> str:
        """Return the device's name."""
        return self.settings.device

    @property
    def free_lanes(self) -> int:
        """Return how many attempts could start now."""
        return self.settings.lanes - len(self._running) if self.ready else 0

    @property
    def running(self) -> int:
        """Return how many attempts are on the device."""
        return len(self._running)

    def accepts(self, attempt: Attempt) -> bool:
        """Return True if `attempt` could start now.

        A suspect runs alone, so that the next death identifies the guilty one.
        """
        if attempt.suspect:
            return self.ready and not self._running
        return self.free_lanes > 0 and not any(other.suspect for other in self._running.values())

    def assign(self, attempt: Attempt) -> None:
        """Give `attempt` to the judge.

        The number of lanes bounds the frames in flight, so this never waits for the socket.
        """
        assert self._writer is not None
        self._last_frame = asyncio.get_running_loop().time()
        self._running[attempt.token] = attempt
        attempt.runs += 1
        attempt.move(pb.STAGE_PREPARING, self.name)
        request = messages.pack(attempt.request)
        libraries = attempt.built.libraries if attempt.built is not None else {}
        order = {"op": "evaluate", "attempt": attempt.token, "request": request, "libraries": libraries}
        wire.write_frame(self._writer, order)
        self._show_running()

    def cancel(self, attempt: Attempt) -> None:
        """Ask the judge to end `attempt`. Its result arrives like any other."""
        if attempt.token in self._running and self._writer is not None:
            self._cancelled.setdefault(attempt.token, asyncio.get_running_loop().time())
            wire.write_frame(self._writer, {"op": "cancel", "attempt": attempt.token})

    async def run(self) -> None:
        """Keep a judge running until cancelled. Raises CellFailedError when the device never becomes ready."""
        failures = 0
        while True:
            death = await self._run_judge()
            failures = 0 if self._useful else failures + 1
            if self.description is None and failures >= _START_TRIES:
                raise CellFailedError(f"{self.name}: {death.detail}")
            self._metrics.judge_restarted(death.cause)
            delay = min(_LAST_BACKOFF, _FIRST_BACKOFF * 2 ** (failures - 1)) if failures else 0.0
            _log.warning("event=judge_restart device=%s cause=%s delay=%.2f", self.name, death.cause, delay)
            await asyncio.sleep(delay)

    async def _run_judge(self) -> _Death:
        """Start zygote and judge, serve until one of them ends, then decide what happens to the attempts."""
        self._useful = False
        self._metrics.judge_started()
        try:
            async with AsyncExitStack() as stack:
                judge, zygote, reader = await self._start(stack)
                _log.info("event=judge_started device=%s pid=%d zygote_pid=%d", self.name, judge.pid, zygote.pid)
                death = await self._until_death(judge, zygote, reader)
        except OSError as error:  # out of memory, processes or file descriptors
            death = _Death("start", f"cannot start: {error}")
        finally:
            self.ready, self._writer = False, None
            self._metrics.judge_ended()
        self._settle(death)
        return death

    async def _start(self, stack: AsyncExitStack) -> tuple[Child, Child, asyncio.StreamReader]:
        ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
        judge_end, zygote_end = (stack.enter_context(end) for end in socket.socketpair())
        zygote = await Child.start(
            f"zygote/{self.name}", self.settings.zygote(zygote_end.fileno()), [zygote_end.fileno()]
        )
        stack.push_async_callback(zygote.end, _ZYGOTE_SECONDS)
        self._metrics.child_started("zygote", zygote.pid)
        fds = [theirs.fileno(), judge_end.fileno()]
        judge = await Child.start(f"judge/{self.name}", self.settings.judge(*fds), fds)
        stack.push_async_callback(judge.end)
        self._metrics.child_started("judge", judge.pid)
        for end in (theirs, judge_end, zygote_end):  # then each side notices when the other ends
            end.close()
        reader, self._writer = await wire.connect(ours, _READ_BUFFER)
        stack.callback(self._writer.close)
        stack.push_async_callback(self._request_shutdown, judge, self._writer)
        return judge, zygote, reader

    async def _until_death(self, judge: Child, zygote: Child, reader: asyncio.StreamReader) -> _Death:
        frames = asyncio.create_task(self._read(reader), name=f"frames {self.name}")
        watch = asyncio.create_task(self._watch(), name=f"watch {self.name}")
        ends = {judge.exited, zygote.exited}
        try:
            await asyncio.wait({frames, watch, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if watch.done():
                return watch.result()
            if frames.done() and (death := frames.result()):
                return death
            if not any(end.done() for end in ends):
                await asyncio.wait(ends, timeout=_DEATH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not judge.exited.done() and zygote.exited.done() and zygote.exited.result() == 0:
                # The zygote exited because its judge died; the judge's exit is reported a moment later.
                await asyncio.wait({judge.exited}, timeout=_DEATH_SECONDS)
            if judge.exited.done():  # the results that it sent before it died are valid
                await asyncio.wait({frames}, timeout=_SETTLE_SECONDS)
            if frames.done() and (death := frames.result()):
                return death
            if judge.exited.done() and judge.exited.result() >= 0:  # perhaps it exited because its zygote was killed
                await asyncio.wait({zygote.exited}, timeout=_SETTLE_SECONDS)
            return self._find_cause(judge, zygote)
        finally:
            for task in (frames, watch):
                task.cancel()
            await asyncio.gather(frames, watch, return_exceptions=True)

    def _find_cause(self, judge: Child, zygote: Child) -> _Death:
        ends = {child: child.exited.result() for child in (judge, zygote) if child.exited.done()}
        # A judge may exit because its zygote ended. A zygote that exits because its judge ended has status 0.
        if ends.get(zygote) and ends.get(judge, 0) >= 0:
            return _Death("zygote", f"the zygote ended: {describe_exit(ends[zygote])}{_last_output(zygote)}")
        if judge not in ends:
            return _Death("protocol", "the judge closed its control socket")
        how = describe_exit(ends[judge])
        if len(self._parsed) == 1:
            return _Death("reference", f"the judge died while it parsed the candidate's source: {how}", *self._parsed)
        return _Death("judge", f"the judge died: {how}{_last_output(judge)}")

    async def _watch(self) -> _Death:
        loop = asyncio.get_running_loop()
        self._last_frame = started = loop.time()
        while True:
            await asyncio.sleep(_WATCH_PERIOD)
            now = loop.time()
            limit = self.settings.reference_seconds
            if not self.ready and now - started > _START_SECONDS:
                return _Death("start", f"the judge was not ready within {_START_SECONDS:g} s")
            if self._parsed:
                token, since = min(self._parsed.items(), key=lambda item: item[1])
                if now - since > limit:
                    text = f"parsing the candidate's source took longer than {limit:g} s"
                    return _Death("reference_timeout", f"{text}; an evaluator's --reference-timeout allows more", token)
            if any(now - since > _CANCEL_SECONDS + limit for since in self._cancelled.values()):
                return _Death("silent", "the judge did not end a cancelled attempt in time")
            if self._running and not self._parsed and now - self._last_frame > _SILENCE_SECONDS:
                return _Death("silent", f"the judge sent nothing for {_SILENCE_SECONDS:g} s")

    async def _read(self, reader: asyncio.StreamReader) -> _Death | None:
        """Handle frames until the judge closes the socket. Return the cause if the judge must be replaced."""
        try:
            while (frame := await wire.read_frame(reader)) is not None:
                self._last_frame = asyncio.get_running_loop().time()
                if frame.get("op") == "fatal":
                    return self._fatal(str(frame.get("detail", "no detail"))[:2000])
                self._handle(frame)
        except _BROKEN_PROTOCOL as error:
            return _Death("protocol", f"the judge broke the protocol: {type(error).__name__}: {str(error)[:200]}")
        return None

    def _fatal(self, detail: str) -> _Death:
        if self.description is None:
            raise CellFailedError(f"{self.name}: {detail}")
        return _Death("start", detail)

    def _handle(self, frame: wire.Frame) -> None:
        match frame["op"]:
            case "stage":
                if attempt := self._running.get(frame["attempt"]):
                    attempt.move(_running_stage(frame["stage"]), self.name)
                    self._show_running()
            case "reference":
                if frame["state"] == "end":
                    self._parsed.pop(frame["attempt"], None)
                elif frame["attempt"] in self._running:
                    self._parsed[frame["attempt"]] = self._last_frame
            case "result":
                self._result(frame["attempt"], messages.unpack(pb.EvalResult, frame["result"]))
            case "stats":
                self._metrics.update(frame)
            case "ready":
                self.description = Description.from_frame(frame)
                self.ready = True
                self._metrics.judge_ready(self.description.sandbox_layers, self.description.gpu_uuid)
                _log.info("event=judge_ready device=%s lanes=%d", self.name, self.settings.lanes)
                self._owner.changed()
            case _:
                raise wire.ProtocolError("unknown op")

    def _result(self, token: str, result: pb.EvalResult) -> None:
        if result.outcome not in pb.EvalResult.Outcome.values()[1:]:
            raise wire.ProtocolError(f"a result with outcome {result.outcome}")
        attempt = self._running.get(token)
        if attempt and not attempt.cancelled and not attempt.done and result.infrastructure_error.cause == "CANCELLED":
            # Nobody cancelled it: the judge is exiting, and the attempt goes to the next judge. If this judge does not
            # exit, _watch ends it, because the attempt counts as cancelled and gets no result.
            self._cancelled.setdefault(token, self._last_frame)
            return
        self._parsed.pop(token, None)
        if attempt and result.runtime_error.signal == signal.SIGKILL:
            later = asyncio.get_running_loop().call_later(_KILLED_SECONDS, self._accept, token, result)
            self._held[token] = later
            return
        self._accept(token, result)

    def _accept(self, token: str, result: pb.EvalResult) -> None:
        self._useful = True
        attempt = self._running.get(token)
        for book in (self._running, self._parsed, self._cancelled, self._held):
            book.pop(token, None)
        self._show_running()
        if attempt is not None:
            self._owner.finished(attempt, result)
        self._owner.changed()

    def _settle(self, death: _Death) -> None:
        """Give the guilty attempt its verdict and return the others to the node."""
        lost, suspects = list(self._running.values()), set(self._parsed) if death.cause == "judge" else set()
        self._running.clear()
        self._parsed.clear()
        self._cancelled.clear()
        for later in self._held.values():
            later.cancel()
        self._held.clear()
        self._show_running()
        guilty = next((attempt for attempt in lost if attempt.token == death.guilty), None)
        _log.warning(
            "event=judge_died device=%s cause=%s lost=%d guilty=%s detail=%r",
            *(self.name, death.cause, len(lost), guilty.token if guilty else "none", death.detail),
        )
        if guilty is not None:
            self._useful = True
            kind = "Timeout" if death.cause == "reference_timeout" else "JudgeDied"
            result = failure_results.reference_error(kind, death.detail)
            if self.description is not None:
                result.environment.CopyFrom(self.description.environment)
            self._owner.finished(guilty, result)
        for attempt in lost:
            attempt.suspect = attempt.suspect or attempt.token in suspects
        self._owner.lost([attempt for attempt in lost if attempt is not guilty], death.detail)
        self._owner.changed()

    def _show_running(self) -> None:
        self._metrics.show_running(attempt.snapshot.stage for attempt in self._running.values())

    async def _request_shutdown(self, judge: Child, writer: asyncio.StreamWriter) -> None:
        """Give a healthy judge time to stop its runners. A judge that is being replaced is killed at once."""
        task = asyncio.current_task()
        if task is not None and task.cancelling() and not judge.exited.done():
            wire.write_frame(writer, {"op": "shutdown"})
            await asyncio.wait({judge.exited}, timeout=_SHUTDOWN_SECONDS)


def _running_stage(name: Any) -> pb.Stage.ValueType:
    stage = pb.Stage.Value(name)
    if stage != pb.STAGE_AWAITING_MEMORY and not pb.STAGE_PREPARING <= stage <= pb.STAGE_PROFILING:
        raise wire.ProtocolError(f"a judge cannot be in {name}")
    return stage


def _last_output(child: Child) -> str:
    return f"; last output: {child.last_lines[-1]}" if child.last_lines else ""

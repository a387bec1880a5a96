"""A runner from the judge's side: one warm, single-use process for one candidate, and the ways it can fail to answer.

A runner has two sockets. The channel leads to the candidate's process, which may send anything. The control socket
leads to the warden, which is trusted. The pool makes runners, a lane drives them, and the lease stops them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from dataclasses import dataclass

from ...shared import wire
from ...shared.reference_failure import ReferenceFailure

_log = logging.getLogger("kerneldyno.judge")

#: Time limit for a runner to get warm (fork, sandbox, device context, eight at once), in seconds.
_READY_TIMEOUT = 60.0
#: Time limits for ending and for stopping a process tree, in seconds. Ending takes milliseconds; a CUDA context with
#: much memory takes up to a second or two.
_EXIT_TIMEOUT = 20.0
_STOP_TIMEOUT = 5.0
#: Time limit in seconds for a warden to raise a limit. It has nothing else to do, but the host may be busy.
_ALLOW_TIMEOUT = 20.0
#: A process that closed its channel by ending is reaped within milliseconds; a loaded host may take longer (seconds).
_GONE_TIMEOUT = 5.0


class RunnerStartError(Exception):
    """No runner could be started; the cause is on our side."""


class RunnerGone(Exception):  # noqa: N818
    """The runner has ended or closed its channel."""


class RunnerLate(Exception):  # noqa: N818
    """The runner did not answer within the limit."""


class RunnerGarbled(Exception):  # noqa: N818
    """A message on the channel was no answer of the harness: something else wrote to it."""


#: What a process can do instead of answering.
FAILURES = (RunnerGone, RunnerLate, RunnerGarbled, RunnerStartError)


@dataclass(frozen=True, slots=True)
class ExitReport:
    """How a runner ended, as its warden reports."""

    signal: int
    exit_code: int | None
    killed: bool
    out_of_memory: bool
    peak_memory_bytes: int
    logs: str
    #: The warden ended without a report. No candidate can cause that from inside its namespaces.
    lost: bool = False

    def of_reference(self, stage: str, memory_bytes: int) -> ReferenceFailure:
        """Return what this end of a process says of the reference in it, which might use so much host memory.

        Raises RunnerStartError if no reference can have caused it.
        """
        if self.lost:
            raise RunnerStartError("the process of the reference was killed")
        if self.out_of_memory:
            text = f"the reference needs more than {memory_bytes >> 20} MiB of host memory"
            return ReferenceFailure(stage, MemoryError(text))
        how = f"signal {self.signal}" if self.signal else f"status {self.exit_code}"
        failure = ReferenceFailure(stage, RuntimeError(f"the reference ended its process: {how}"))
        failure.was_killed = bool(self.signal)
        return failure


class Runner:
    """One process for one candidate."""

    def __init__(
        self,
        channel: socket.socket,
        control: socket.socket,
        descriptors: list[int],
        role: str = "runner",
        memory_bytes: int = 0,
    ) -> None:
        self._sockets = (channel, control)
        #: Host memory that it may use, in bytes.
        self.memory_bytes = memory_bytes
        #: The program in it. A "runner" may become that of a "problem".
        self.role = role
        self.descriptors = descriptors
        #: True if a candidate was put into it.
        self.has_candidate = False
        #: True if it stays stopped whatever the lease does, except while its owner resumes it.
        self.parked = False
        #: Its pace: the cycles of a nearly empty kernel, measured before any candidate was there.
        self.pace = 0.0
        #: Its pace class; 0 until `Pool.class_of` has determined it.
        self.pace_class = 0
        #: True while a problem's process has an order that it has not answered, and until the problem is built.
        self.is_asked = False
        self._stopped_total = 0.0
        self._stopped_since: float | None = None
        self._exit: asyncio.Future[ExitReport] = asyncio.get_running_loop().create_future()
        self._stopped = asyncio.Event()
        #: Why the warden did not raise the limit of memory, or ""; while it is asked to.
        self._allowed: asyncio.Future[str] | None = None
        self._channel: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._control: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._reading: asyncio.Future[wire.Frame | None] | None = None

    async def start(self, opening: contextlib.AbstractAsyncContextManager[None]) -> None:
        """Wait until the runner is warm. It opens its device, if it has one, under `opening`. Raises RunnerStartError."""
        channel, control = self._sockets
        self._channel = await wire.connect(channel)
        self._control = await wire.connect(control)
        self._listener = asyncio.create_task(self._listen())
        greeting = await self._greeting()
        if greeting == {"ok": "forked"}:
            async with opening:
                self.send({"op": "open"})
                greeting = await self._greeting()
        match greeting:
            case {"ok": "ready", "pace": float(pace)}:
                self.pace = pace
            case _:
                await self.end()
                raise RunnerStartError(f"unexpected greeting {str(greeting)[:200]}")
        wire.write_frame(self._control[1], {"op": "baseline"})

    async def _greeting(self) -> wire.Frame:
        try:
            return await self.answer(_READY_TIMEOUT)
        except (RunnerGone, RunnerLate, RunnerGarbled) as error:
            report = await self.end()
            raise RunnerStartError(f"{type(error).__name__}: {report.logs.strip()[-2000:] or 'no output'}") from None

    async def ask(self, order: wire.Frame, timeout: float) -> wire.Frame:
        """Send `order` and return the answer. Raises RunnerLate, RunnerGone, RunnerGarbled.

        `timeout` is in seconds, not counting the time for which the runner was stopped.
        """
        self.send(order)
        return await self.answer(timeout)

    def send(self, order: wire.Frame) -> None:
        """Send `order` without waiting."""
        assert self._channel is not None
        with contextlib.suppress(ConnectionError, RuntimeError):  # the answer shows that the runner is gone
            wire.write_frame(self._channel[1], order)

    async def answer(self, timeout: float) -> wire.Frame:
        """Return the next answer; raises as `ask` does. After RunnerLate, the answer can still be awaited."""
        assert self._channel is not None
        begin, stopped = time.monotonic(), self.stopped_seconds
        if self._reading is None:
            self._reading = asyncio.ensure_future(wire.read_frame(self._channel[0], wire.MAX_RUNNER_FRAME))
        reading = self._reading
        while not reading.done():
            spent = time.monotonic() - begin - (self.stopped_seconds - stopped)
            if spent >= timeout:
                raise RunnerLate
            await asyncio.wait({reading}, timeout=timeout - spent)
        self._reading = None
        try:
            frame = reading.result()
        except wire.ProtocolError as error:
            raise RunnerGarbled(str(error)) from None
        if frame is None:
            raise RunnerGone
        return frame

    def will_run_problem(self) -> None:
        """Let it run a problem, and no candidate."""
        self.role = "problem"
        self.is_asked = True

    @property
    def stopped_seconds(self) -> float:
        """Seconds for which this runner has been stopped so far; they do not count towards any limit."""
        return self._stopped_total + (0.0 if self._stopped_since is None else time.monotonic() - self._stopped_since)

    @property
    def stands_still(self) -> bool:
        """True if it is stopped now."""
        return self._stopped_since is not None

    @property
    def has_ended(self) -> bool:
        """True if the warden has reported the runner's end."""
        return self._exit.done()

    async def stop(self) -> None:
        """Stop the whole process tree, and return when it is stopped."""
        if self._control is None or self._exit.done():
            return
        self._stopped_since = time.monotonic()
        self._stopped.clear()
        self._order("stop")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                await self._stopped.wait()

    async def allow(self, memory_bytes: int) -> None:
        """Let it use so much host memory, if that is more than now. Only before a candidate is put into it.

        Raises RunnerStartError.
        """
        if memory_bytes <= self.memory_bytes:
            return
        self._allowed = asyncio.get_running_loop().create_future()
        self._order("allow", memory_bytes=memory_bytes)
        try:
            async with asyncio.timeout(_ALLOW_TIMEOUT):
                failed = "it has ended" if self._exit.done() else await self._allowed
        except TimeoutError:
            failed = "its warden is silent"
        if failed:
            raise RunnerStartError(f"the runner's limit of host memory could not be raised: {failed}")
        self.memory_bytes = memory_bytes

    async def park(self) -> None:
        """Stop it permanently, except while its owner resumes it."""
        self.parked = True
        await self.stop()

    def resume(self) -> None:
        """Resume a stopped process tree."""
        if self._stopped_since is not None:
            self._order("cont")
            self._stopped_total = self.stopped_seconds
            self._stopped_since = None

    async def end(self) -> ExitReport:
        """Kill whatever is left of the runner, and return how it ended. May be called again."""
        # There is no listener yet. A warden whose control socket closes ends everything itself.
        if self._listener is None:
            for end in self._sockets:
                end.close()
            self._close()
            return ExitReport(9, None, True, False, 0, "")
        self._order("kill")
        try:
            async with asyncio.timeout(_EXIT_TIMEOUT):
                report = await asyncio.shield(self._exit)
        except TimeoutError:
            _log.error("event=warden_silent seconds=%.0f", _EXIT_TIMEOUT)
            report = ExitReport(9, None, True, False, 0, "")
        finally:
            self._close()
        return report

    async def gone(self) -> ExitReport:
        """Return how a runner ended that has closed its channel. A runner that only pretends to be gone is killed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GONE_TIMEOUT):
                return await asyncio.shield(self._exit)
        return await self.end()

    def _order(self, order: str, **more: int) -> None:
        if self._control is not None and not self._exit.done():
            with contextlib.suppress(ConnectionError, RuntimeError):
                wire.write_frame(self._control[1], {"op": order, **more})

    async def _listen(self) -> None:
        assert self._control is not None
        report = ExitReport(9, None, False, False, 0, "", lost=True)
        try:
            while (frame := await wire.read_frame(self._control[0])) is not None:
                if frame["op"] == "stopped":
                    self._stopped.set()
                elif frame["op"] == "allowed":
                    self._answer_allowed(str(frame["failed"]))
                elif frame["op"] == "exit":
                    report = ExitReport(**{name: value for name, value in frame.items() if name != "op"})
                    break
        finally:
            self._stopped.set()
            self._answer_allowed("it has ended")
            if not self._exit.done():
                self._exit.set_result(report)
            self._control[1].close()  # the warden waits for this before it ends

    def _answer_allowed(self, failed: str) -> None:
        if self._allowed is not None and not self._allowed.done():
            self._allowed.set_result(failed)

    def _close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if self._channel is not None:
            self._channel[1].close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []

"""One candidate's way through the judge: load, compile, check, time, profile, verdict. Called by `service` only.

Whatever the runner does instead of answering becomes an outcome. The runner is always killed at the end, and its output
is attached to the result.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import gc
import logging
import time
import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import torch

from kerneldyno.v1 import evaluation_pb2 as pb

from ..shared.enums import Preset
from ..shared.out_of_memory import asked_bytes, free_bytes, held_bytes, says_host_lacks_memory
from ..shared.reference_failure import ReferenceFailure
from ..shared.spec import EvalSpec
from ..shared.tracebacks import CANDIDATE_FILE, describe_error
from .beside import Beside
from .checks import adoption, code, correctness, provenance, repetition
from .checks.candidate import Candidate
from .checks.libraries import NONE, Libraries
from .checks.rehearsal import Rehearsal
from .context import JudgeContext
from .inspection import inspect as inspection
from .inspection.watched import Watcher
from .memory import footprint
from .memory.host import HostTooSmallError
from .problems import examination, trial
from .problems.cache import BuiltProblem, NeedsMoreError
from .results import verdict
from .results.record import Finished, Record
from .results.stages import Stages
from .results.times import Times
from .runners import streams
from .runners.handle import RunnerGarbled, RunnerGone, RunnerStartError
from .runners.side import Sizes
from .timing import roofline
from .timing.measured import Measured
from .timing.quiet import DeviceBusyError
from .timing.rounds import TimingSession

_log = logging.getLogger("kerneldyno.judge")

#: An evaluation that lacked memory in spite of the plan is repeated alone, with arenas that fit into this share of the
#: device.
_CAREFUL = 3 / 4
#: Most device memory that a runner's process takes in addition to what it was given, in bytes.
_OVERHEAD_BYTES = 2 << 30
#: If a problem's inputs and parameters alone need more than an unknown problem gets, its first run gets this multiple
#: of their size.
_FIRST_TIMES = 2
#: If the judge still holds more than this, in bytes, when it should hold nothing, a reference has leaked it.
_LEAKED_BYTES = 2 << 30
#: How often a candidate waits for a device that others keep busy, and for how many seconds each time.
_BUSY_RETRIES = 20
_BUSY_SECONDS = 1.0


class LeakError(Exception):
    """A reference does not free its memory. This process must not judge any more."""


class Lane:
    """Evaluates one candidate: beside others, or `alone` on its device."""

    def __init__(
        self,
        context: JudgeContext,
        spec: EvalSpec,
        tell: Callable[[pb.Stage.ValueType], None],
        parsing: Callable[[str], Awaitable[None]],
        libraries: Libraries = NONE,
        *,
        alone: bool = False,
    ) -> None:
        self._context = context
        self._spec = spec
        self._libraries = libraries
        self._alone = alone
        #: True if other evaluations did not cause a lack of memory, so that running alone would change nothing.
        self.had_enough = False
        #: True if a signal ended the reference's process: perhaps a host that ran out of memory sent it.
        self.lost_reference = False
        #: Bytes that were free when this lane had the device alone (0 before that), and the result's report on memory.
        self._room = 0
        self.workloads: Sequence[tuple[str, str]] = ()
        self._use: pb.MemoryUse | None = None
        #: Bytes that the evaluation is planned to take, the part of these that is not the candidate's own, and what the
        #: candidate's process keeps for the judge. 0 before they are known.
        self._planned = self._beside = self._kept = 0
        #: Tells the server when this process begins and ends to parse the source, which might kill it.
        self._parsing = parsing
        self._stages = Stages(tell)
        self._record = Record()
        self._candidate: Candidate | None = None
        #: What the candidate printed, once its runner has ended.
        self._logs: str | None = None
        self._full_queues = False
        #: Seconds of the device's probe before it became slower while this candidate was timed; None if it did not.
        self._slowed_from: float | None = None

    async def evaluate(self) -> pb.EvalResult:
        """Return the verdict. Raises only bugs and cancellation."""
        result: pb.EvalResult
        logs = ""
        cancelled = False
        async with contextlib.AsyncExitStack() as memory:
            try:
                try:
                    result = await self._run(memory)
                except Finished as finished:
                    result = finished.result
                except (ReferenceFailure, torch.OutOfMemoryError) as failure:
                    result = self._failed(failure)
                except NeedsMoreError as more:
                    self.had_enough = True
                    result = verdict.too_large(self._memory, "inputs", more.nbytes, self._context.ledger.capacity)
                except HostTooSmallError as small:
                    self.had_enough = True
                    result = verdict.too_large("host", "judging", small.needed, small.available)
                except RunnerStartError as error:
                    result = self._not_started(error)
                except DeviceBusyError:
                    result = verdict.infrastructure("DEVICE_BUSY", "the device was never quiet", retryable=True)
                except RunnerGone:
                    result = await self._gone()
                except RunnerGarbled as error:
                    result = self._broke_out(f"the candidate wrote to the channel of its runner ({error})")
                except asyncio.CancelledError:
                    cancelled = True
                    raise
                if result.outcome == pb.EvalResult.OUT_OF_MEMORY:
                    self.had_enough = self._has_room(result)
                    if self._alone and not self._had_its_share(result):
                        result = self._too_large("judging", self._planned, result.message)
            finally:
                logs = await self._end(cancelled=cancelled)
        if result.outcome == pb.EvalResult.CORRECT and await self._was_slowed():
            detail = "the device was slower while the candidate was timed than it is now, after the candidate has ended"
            result = verdict.infrastructure("DEVICE_BUSY", detail, retryable=True)
        self._stages.close()
        if self._candidate is not None and (case := self._candidate.case) is not None:
            verdict.in_workload(result, case.name, case.number, case.total)
        return verdict.complete(result, self._stages.spans, self._record.findings, self._use, logs)

    async def _end(self, *, cancelled: bool = False) -> str:
        """End the candidate's runner if there is one, and return what it printed. May be called again."""
        candidate = self._candidate
        if candidate is not None and self._logs is None:
            self._logs = ""
            try:
                overdue = cancelled or candidate.overdue
                self._logs = (await self._context.pool.discard(candidate.runner, overdue=overdue)).logs
            finally:
                candidate.close()
        return self._logs or ""

    def _failed(self, failure: ReferenceFailure | torch.OutOfMemoryError) -> pb.EvalResult:
        """Return the result if the reference or the judge's arithmetic failed; the candidate may hold too much memory."""
        if isinstance(failure, ReferenceFailure) and not failure.lacked_memory:
            self.lost_reference = failure.was_killed
            return verdict.reference_failed(failure.stage, failure.error)
        if self._candidate is not None and self._candidate_holds_too_much():
            return verdict.took_all_memory(self._candidate.stage, self._candidate.memory.device)
        if not self._alone:
            return verdict.infrastructure("DEVICE_MEMORY", f"the judge itself lacked memory: {failure}", retryable=True)
        built = self._context.problems.find(self._spec)
        # Drop the problem, so that memory that its reference keeps from call to call hinders nobody.
        self._context.problems.forget(self._spec)
        asked = failure.asked_bytes if isinstance(failure, ReferenceFailure) else asked_bytes(str(failure))
        needed = self._context.device.allocated_bytes() + asked
        if self._candidate is not None:
            return self._too_large("judging", max(needed, self._planned), str(failure))
        if built is not None:
            needed = max(needed, built.footprint.alone)
        stage = failure.stage if isinstance(failure, ReferenceFailure) else "reference"
        return self._too_large(stage, needed, str(failure))

    def _not_started(self, error: RunnerStartError) -> pb.EvalResult:
        """Return the result if a process could not start; the candidate may have left it no memory."""
        if self._candidate is not None and self._candidate_holds_too_much():
            return verdict.took_all_memory(self._candidate.stage, self._candidate.memory.device)
        return verdict.infrastructure("RUNNER_START_FAILED", str(error), retryable=True)

    @property
    def _memory(self) -> str:
        return "host" if self._context.device.kind == "cpu" else "device"

    def _too_large(self, stage: str, needed: int, why: str) -> pb.EvalResult:
        """Return the result if the device has too little memory even alone; `why` is the message of the failure."""
        where = "" if self._candidate is None else f" ({self._candidate.stage})"
        _log.warning("event=too_large stage=%s%s planned=%d detail=%r", stage, where, self._planned, why[:500])
        memory, room = self._memory, self._room
        if memory == "device" and says_host_lacks_memory(why):
            memory, room, needed = "host", self._context.host.ledger.capacity, asked_bytes(why)
        return verdict.too_large(memory, stage, max(needed, room + 1), room)

    def _had_its_share(self, result: pb.EvalResult) -> bool:
        """Return True if a candidate that ran out of memory alone on its device could have had its whole limit.

        The device is too small if, by the plan, it cannot give that limit beside the judge and the reference, and if
        the candidate did not ask for more than its limit either, as its process says. A candidate that lies about this
        is not paid either.
        """
        assert self._candidate is not None
        limit, message = self._candidate.memory.device, result.out_of_memory.detail
        if result.out_of_memory.memory != "device" or self._room - self._beside >= limit:
            return True
        held = held_bytes(message)
        return held is None or held + asked_bytes(message) > limit + self._kept

    def _has_room(self, result: pb.EvalResult) -> bool:
        """Return True if the candidate had its allowed memory when it asked for more.

        This uses what its process said at that moment, because others may have freed memory since. A candidate gains
        nothing by lying about it.
        """
        if self._alone:
            return True
        message = result.out_of_memory.detail
        free = free_bytes(message)
        return free is not None and free > asked_bytes(message)

    def _candidate_holds_too_much(self) -> bool:
        """Return True if the candidate has taken more device memory than it may.

        If it shares the device, this means that the device is full.
        """
        assert self._candidate is not None
        device, free = self._context.device, self._context.device.free_bytes()
        if not self._alone or free is None:
            return device.is_full()
        # What the problem's process takes now is not known here, so it counts as planned.
        ours = max(device.allocated_bytes() + self._candidate.arena_bytes, self._beside)
        return self._room - free - ours > self._candidate.memory.device + _OVERHEAD_BYTES

    async def _gone(self) -> pb.EvalResult:
        """Return the result of a runner that has ended, or that claims so."""
        assert self._candidate is not None
        report = await self._candidate.runner.gone()
        if report.killed:
            return self._broke_out("the candidate closed the channel of its runner and went on")
        if report.lost:
            return verdict.infrastructure("RUNNER_LOST", "the runner's warden ended", retryable=True)
        return verdict.ended(self._candidate.stage, report, self._candidate.memory.host)

    def _broke_out(self, evidence: str) -> pb.EvalResult:
        assert self._candidate is not None
        found = [*self._record.findings, verdict.finding("E03", pb.Finding.SEVERITY_REJECT, evidence)]
        return verdict.rejected(found, None, compiled=self._candidate.stage not in ("load", "compile"))

    async def _run(self, memory: contextlib.AsyncExitStack) -> pb.EvalResult:
        self._stages.enter(pb.STAGE_PREPARING)
        await self._parse()
        if self._alone:
            await memory.enter_async_context(self._context.ledger.alone(self._wait_for_memory))
            await self._clear_device()
        built = await self._meet()
        # Fixed cases are all checked in one process, so only timing takes one for each.
        each = self._spec.timing.wanted or built.problem.cases is None
        self.workloads = built.problem.workloads if each else ()
        with self._context.problems.used(self._spec, built):
            return await self._judge(built, memory)

    async def _judge(self, built: BuiltProblem, memory: contextlib.AsyncExitStack) -> pb.EvalResult:
        context, spec, record = self._context, self._spec, self._record
        beforehand = Rehearsal(context.pool, context.device.architecture, spec, built.problem)
        rehearsal = await memory.enter_async_context(beforehand)
        record.shares = spec.checks.rules.tolerance.preset == Preset.MATCHED_SHARE
        found, capacity = built.footprint, context.ledger.capacity
        within = int(_CAREFUL * capacity) if self._alone else capacity
        sizes = found.sizes(context.device, within, timed=spec.timing.wanted)
        self._planned = found.needed(sizes, timed=spec.timing.wanted)
        self._beside, self._kept = found.beside(sizes, timed=spec.timing.wanted), found.kept(sizes)
        if not self._alone:
            with built.awaiting_memory():
                await memory.enter_async_context(context.ledger.admit(self._planned, self._wait_for_memory))
        # Always after the device's memory: who waits here for another evaluation's host memory does not have what that
        # one waits for.
        need = found.host_need(context.device, sizes, timed=spec.timing.wanted)
        host = await memory.enter_async_context(context.host.admit(need, self._wait_for_memory))
        if not self._alone:
            await self._make_room(found.judged)
        self._stages.enter(pb.STAGE_PREPARING)
        limits = verdict.Limits(host.candidate, self._limit(found))
        self._use = verdict.memory_use(found, min(self._planned, capacity), limits)
        # Fixed cases are not secret, and may differ in size. Random ones are drawn when they are needed.
        trials = [await self._prepare(built, 0)]
        for number in range(1, built.problem.cases or 1):
            trials.append((await self._prepare(built, number, rough=True)).outline())
        await rehearsal.must_succeed(trials[0].inputs, limits)
        self._full_queues = await self._needs_full_queues(built, trials[0])
        classes = context.references.classes(spec, full_queues=self._full_queues)
        runner = await context.pool.take(full_queues=self._full_queues, classes=classes)
        context.references.expect(spec, runner, full_queues=self._full_queues)
        candidate = Candidate(spec, context.device, context.pool.lease, runner, record, limits)
        self._candidate = candidate
        form = trials[0].inputs
        sizes = replace(
            sizes, structure=form.structure, specs=form.specs, slot_bytes=max(sizes.slot_bytes, trials[0].slot_bytes)
        )
        await candidate.open_for(built.problem, trials, sizes)
        self._enter(pb.STAGE_LOADING)
        await candidate.load(built.problem.symbol, self._libraries)
        self._enter(pb.STAGE_COMPILING)
        await candidate.construct(built.problem)
        # It compiles and tunes kernels. `adoption` decides what follows if its answer is wrong.
        first = await correctness.call_first(candidate, built, trials[0], context.problems)
        del trials
        self._enter(pb.STAGE_CHECKING)
        checked = await adoption.check(candidate, built, first, context.problems)
        last = checked.last
        provenance.check_launches(candidate)
        await repetition.repeat(candidate, built, checked, context.problems)
        record.findings += examination.warnings(built.examination)
        times = await self._time(candidate, built, sizes, last) if spec.timing.wanted else None
        profile = None
        if spec.inspection.profile:
            self._enter(pb.STAGE_PROFILING)
            profile = await provenance.profile(candidate, last)
        candidate.enter(pb.STAGE_CHECKING)
        await provenance.replay_as_ghost(candidate, built, context.problems)
        if not spec.inspection.profile and spec.candidate.backend != "torch":
            await provenance.survey(candidate, last)
        kernels = await code.listing(candidate)
        record.note_share()
        result = verdict.correct(record.report(), record.passed, record.findings, times, profile, kernels)
        if inspection.is_wanted(spec, result, self.workloads):
            await self._end()
            watcher = Watcher(context, spec, built, self._libraries, limits)
            self._stages.enter(pb.STAGE_PROFILING)
            result = await inspection.inspect(watcher, result, record)
        return result

    async def _parse(self) -> None:
        """Reject a source that is not Python before a process is started for it. Parsing executes none of it."""
        # If a source kills the parser, the server must blame this attempt and no other.
        await self._parsing("begin")
        try:
            with warnings.catch_warnings(action="ignore"):
                ast.parse(self._spec.candidate.kernel_code, CANDIDATE_FILE)
        except SyntaxError as error:
            raised = describe_error(error.with_traceback(None), CANDIDATE_FILE)
            raise Finished(verdict.raised("load", raised, verdict.Limits(self._context.host.base))) from None
        except (ValueError, RecursionError, MemoryError):
            return  # its own process will report it
        finally:
            await self._parsing("end")

    async def _needs_full_queues(self, built: BuiltProblem, example: trial.Trial) -> bool:
        """Return True if either side may use several streams or launches many kernels.

        Both sides then run in runners that are made for that.
        """
        spec, context = self._spec, self._context
        if streams.may_use_several((spec.problem.reference_code, *spec.candidate.texts)):
            return True
        if not (spec.timing.wanted and context.device.quick_start_environment):
            return False
        with contextlib.suppress(torch.OutOfMemoryError):
            counted = await context.problems.count(built, example)
            return counted.kernels > context.device.quick_start_launches
        return False

    async def _meet(self) -> BuiltProblem:
        """Return the problem. An unknown problem is run now for the first time, with a memory limit of its own."""
        context = self._context
        if self._alone:
            return await context.problems.get(self._spec, context.ledger.capacity)
        # The problem may be dropped during a wait. A problem that is not kept is only built with memory admitted for
        # it.
        return context.problems.recall(self._spec) or await self._meet_first()

    async def _meet_first(self) -> BuiltProblem:
        context = self._context
        nbytes = footprint.unknown(context.ledger.capacity)
        while True:
            async with context.ledger.admit(nbytes, self._wait_for_memory) as within:
                await self._make_room(within)
                self._stages.enter(pb.STAGE_PREPARING)
                try:
                    return await context.problems.get(self._spec, within)
                except NeedsMoreError as more:
                    if within == context.ledger.capacity:
                        raise
                    nbytes = _FIRST_TIMES * more.nbytes

    def _wait_for_memory(self) -> None:
        self._stages.enter(pb.STAGE_AWAITING_MEMORY)

    async def _make_room(self, judged: int) -> None:
        """Free what is only kept for later, as far as admitted evaluations may need its memory.

        Judging this candidate will use `judged` bytes of what this process keeps, as planned, so these need not be
        freed.
        """
        context = self._context

        def is_short() -> bool:
            if context.references.idle_host_bytes > context.host.ledger.free_bytes:
                return True
            own = max(0, context.device.idle_bytes() - judged)
            return own + context.references.idle_bytes + context.problems.idle_bytes > context.ledger.free_bytes

        async with context.making_room:  # what somebody else ends now does not count any more, but may not be free yet
            while is_short():
                async with context.pool.lease.work():
                    context.device.clear()
                    if not is_short() or not (await context.references.end_one() or await context.problems.rest_one()):
                        break

    async def _clear_device(self) -> None:
        """Free whatever is kept for later on a device that this lane has to itself. Raises LeakError."""
        context = self._context
        async with context.pool.lease.work():
            await context.references.clear()
            await context.pool.end_left_over()
            await context.problems.clear()
            gc.collect()
            context.device.clear()
            left = context.device.allocated_bytes()
            if left > _LEAKED_BYTES:
                raise LeakError(f"{left >> 20} MiB are held by tensors that no problem uses any more")
            self._room = context.device.room_bytes() - left

    def _limit(self, found: footprint.Footprint) -> int:
        """Return what the candidate may allocate on the device, in bytes; 0 for a device that uses the host's memory."""
        if self._context.device.kind == "cpu":
            return 0
        return min(self._spec.candidate.memory or found.candidate_limit, self._context.ledger.capacity)

    async def _prepare(self, built: BuiltProblem, number: int, *, rough: bool = False) -> trial.Trial:
        """Draw inputs and their answers from fresh entropy. Nothing may be compared with `rough` answers."""
        return await self._context.problems.execute(
            lambda: built.prepare(self._spec, self._context.device, number, rough=rough)
        )

    async def _time(self, candidate: Candidate, built: BuiltProblem, sizes: Sizes, example: trial.Trial) -> Times:
        """Time the candidate beside all forms of its reference, and report how near it comes to the device's limits."""
        context, spec = self._context, self._spec
        await candidate.narrow(sizes)

        def measure(session: TimingSession) -> Awaitable[Measured]:
            return self._measure(candidate, session, built)

        beside = Beside(context, candidate, built, sizes, example, self._full_queues, measure)
        times = await beside.times(spec, self._record)
        baselines = await beside.baselines(spec, lambda: self._make_room(built.footprint.judged))
        seconds = times.candidate_timing.median_seconds
        placed = await roofline.place(context.roof, built, context.problems, example, self._record, seconds)
        return replace(times, roofline=placed, baselines=baselines)

    async def _measure(self, candidate: Candidate, session: TimingSession, built: BuiltProblem) -> Measured:
        """Wait for the lease and measure. If others keep the device busy, pause and try again. Raises DeviceBusyError.

        A candidate is blamed for work on the device only when no reference can have left it there.
        """
        context, lease = self._context, self._context.pool.lease
        for tries in range(_BUSY_RETRIES):
            self._enter(pb.STAGE_AWAITING_LEASE)
            async with lease.exclusive(candidate.runner, taking=built.problem.taken()):
                self._stages.enter(pb.STAGE_TIMING)
                begin = time.monotonic()
                context.quiet.slowed_from = None
                try:
                    return await session.measure()
                except DeviceBusyError:
                    if tries and lease.alone(candidate.runner):
                        evidence = "the candidate keeps the device busy after it has answered"
                        raise self._record.reject("T26", evidence) from None
                finally:
                    self._slowed_from = context.quiet.slowed_from
                    candidate.runner.resume()
                    context.busy_seconds += time.monotonic() - begin
            await context.problems.quieten(built)
            await asyncio.sleep(_BUSY_SECONDS)
        raise DeviceBusyError

    async def _was_slowed(self) -> bool:
        """Return True if a process that has ended may have slowed the device down while this candidate was timed.

        A device that gets warm stays slow. Work that a stopped candidate left on it slows its reference, and ends with
        the candidate's process.
        """
        if self._slowed_from is None:
            return False
        async with self._context.pool.lease.exclusive(None):
            return not await self._context.quiet.has_stayed_slow(self._slowed_from)

    def _enter(self, stage: pb.Stage.ValueType) -> None:
        assert self._candidate is not None
        self._candidate.enter(stage)
        self._stages.enter(stage)

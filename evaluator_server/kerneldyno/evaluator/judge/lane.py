"""One candidate's way through the judge: load, compile, check, time, profile, verdict. The only caller of what is beside it.

Whatever the runner does instead of answering becomes an outcome. The runner is killed at the end in every case, and
what it printed is attached to the result.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import gc
import logging
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from kerneldyno.v1 import evaluation_pb2 as pb

from ..devices.base import Device
from ..shared.out_of_memory import asked_bytes, free_bytes, held_bytes
from ..shared.spec import EvalSpec
from ..shared.tracebacks import CANDIDATE_FILE, describe_error
from ..toolkits import ReferenceFailure
from .checks import provenance
from .checks.candidate import Candidate
from .checks.correctness import check
from .memory import footprint
from .memory.ledger import Ledger
from .problems import examination, trial
from .problems.cache import Announce, BuiltProblem, NeedsMoreError, Problems
from .results import verdict
from .results.record import Finished, Record
from .results.stages import Stages
from .results.times import Times
from .runners.handle import RunnerGarbled, RunnerGone, RunnerStartError
from .runners.pool import Pool
from .runners.side import Sizes
from .timing import roofline
from .timing.measured import Measured
from .timing.processors import Processors
from .timing.quiet import DeviceBusyError, Quiet
from .timing.reference_runners import References
from .timing.report import report
from .timing.rounds import TimingSession

_log = logging.getLogger("kerneldyno.judge")

#: Who lacked memory in spite of the plan gets smaller arenas when tried alone: all of it fits this share of the device.
_CAREFUL = 3 / 4
#: What a runner's process takes of the device beside what it was given, in bytes, at the most.
_OVERHEAD_BYTES = 2 << 30
#: A problem whose inputs and parameters alone need more than unknown ones get is run for the first time with so many times
#: that.
_FIRST_TIMES = 2
#: A judge that still holds more than this, in bytes, when it keeps nothing, has been robbed of it by a reference.
_LEAKED_BYTES = 2 << 30
#: Kinds of mismatch that other parameters may have made.
_WRONG_VALUES = ("values", "non-finite", "precision")
#: How often a candidate waits for a device that others keep busy, each time as long as one timing.
_BUSY_RETRIES = 20
_BUSY_SECONDS = 1.0
#: Who uses several streams says so, or uses what does; who hides it has them wait for each other. Graphs may have
#: branches, and recurrent layers of libraries have streams of their own.
_STREAMS = re.compile("stream|graph|rnn|lstm|gru|compile", re.IGNORECASE)


class LeakError(Exception):
    """Memory that a reference has taken does not come back: this process must not judge any more."""


@dataclass(slots=True)
class JudgeContext:
    """What lanes of one device share."""

    device: Device
    pool: Pool
    problems: Problems
    references: References
    quiet: Quiet
    ledger: Ledger
    memory_bytes: int
    processors: Processors
    busy_seconds: float = 0.0
    #: Cycles of the device's clock a second, as seen when the judge began; 1 on a device without such a clock.
    hertz: float = 1.0
    roof: roofline.Roof = field(init=False)

    def __post_init__(self) -> None:
        if (pace := self.device.pace()) is not None:
            self.hertz = pace.hertz
        self.roof = roofline.Roof(self.device, self.pool.lease, self.quiet)


class Lane:
    """Evaluates one candidate: beside others, or `alone` on its device."""

    def __init__(
        self,
        context: JudgeContext,
        spec: EvalSpec,
        tell: Callable[[pb.Stage.ValueType], None],
        announce: Announce,
        *,
        alone: bool = False,
    ) -> None:
        self._context = context
        self._spec = spec
        self._alone = alone
        #: Whether a lack of memory is nobody else's doing, so that to be alone on the device would change nothing.
        self.had_enough = False
        #: What was free when it was alone, in bytes; 0 before. And what the result says of memory.
        self._room = 0
        self._use: pb.MemoryUse | None = None
        #: Bytes that the evaluation is planned to take; of those, what is not the candidate's own; and what the judge keeps
        #: in its process. 0 before they are known.
        self._planned = self._beside = self._kept = 0
        self._announce = announce
        self._stages = Stages(tell)
        self._record = Record()
        self._candidate: Candidate | None = None
        self._roomy = False
        #: What the device's probe took before it took longer while this candidate was timed; None if it did not.
        self._slowed_from: float | None = None

    async def evaluate(self) -> pb.EvalResult:
        """Return the verdict. Raises only what is a bug, or cancellation."""
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
                except RunnerStartError as error:
                    result = verdict.infrastructure("RUNNER_START_FAILED", str(error), retryable=True)
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
                if self._candidate is not None:
                    overdue = cancelled or self._candidate.overdue
                    try:
                        logs = (await self._context.pool.discard(self._candidate.runner, overdue=overdue)).logs
                    finally:
                        self._candidate.close()
        if result.outcome == pb.EvalResult.CORRECT and await self._was_slowed():
            detail = "the device was slower while the candidate was timed, and is not any more now that it has ended"
            result = verdict.infrastructure("DEVICE_BUSY", detail, retryable=True)
        self._stages.close()
        return verdict.complete(result, self._stages.spans, self._record.findings, self._use, logs)

    def _failed(self, failure: ReferenceFailure | torch.OutOfMemoryError) -> pb.EvalResult:
        """The reference failed, or the judge's own arithmetic: unless the candidate holds more memory than it may."""
        if isinstance(failure, ReferenceFailure) and not failure.lacked_memory:
            return verdict.reference_failed(failure.stage, failure.error)
        if self._candidate is not None and self._candidate_holds_too_much():
            return verdict.took_all_memory(self._candidate.stage, self._candidate.memory.device)
        if not self._alone:
            return verdict.infrastructure("DEVICE_MEMORY", f"the judge itself lacked memory: {failure}", retryable=True)
        built = self._context.problems.find(self._spec)
        # What the reference keeps from call to call must not be in anybody's way.
        self._context.problems.forget(self._spec)
        asked = failure.asked_bytes if isinstance(failure, ReferenceFailure) else asked_bytes(str(failure))
        needed = self._context.device.allocated_bytes() + asked
        if self._candidate is not None:
            return self._too_large("judging", max(needed, self._planned), str(failure))
        if built is not None:
            needed = max(needed, built.footprint.alone)
        stage = failure.stage if isinstance(failure, ReferenceFailure) else "reference"
        return self._too_large(stage, needed, str(failure))

    @property
    def _memory(self) -> str:
        return "host" if self._context.device.kind == "cpu" else "device"

    def _too_large(self, stage: str, needed: int, why: str) -> pb.EvalResult:
        """The device has too little memory though nobody else is there; `why` is what was said where it ran out."""
        where = "" if self._candidate is None else f" ({self._candidate.stage})"
        _log.warning("event=too_large stage=%s%s planned=%d detail=%r", stage, where, self._planned, why[:500])
        return verdict.too_large(self._memory, stage, max(needed, self._room + 1), self._room)

    def _had_its_share(self, result: pb.EvalResult) -> bool:
        """Say whether a candidate that ran out of memory alone on its device could have had all that it may have.

        The device is too small where it cannot give that beside the judge and the reference, by the plan, and the candidate
        did not ask for more either, as its process says. Whoever lies there is not paid either.
        """
        assert self._candidate is not None
        limit, message = self._candidate.memory.device, result.out_of_memory.detail
        if result.out_of_memory.memory != "device" or self._room - self._beside >= limit:
            return True
        held = held_bytes(message)
        return held is None or held + asked_bytes(message) > limit + self._kept

    def _has_room(self, result: pb.EvalResult) -> bool:
        """Say whether the candidate had as much memory as it may have when it asked for more.

        By what its process said at that moment: others may have given theirs back since. Whoever lies there gains nothing.
        """
        if self._alone:
            return True
        message = result.out_of_memory.detail
        free = free_bytes(message)
        return free is not None and free > asked_bytes(message)

    def _candidate_holds_too_much(self) -> bool:
        """Say whether the candidate has taken more than it may of a device that it has to itself, or all of another one."""
        assert self._candidate is not None
        device, free = self._context.device, self._context.device.free_bytes()
        if not self._alone or free is None:
            return device.is_full()
        ours = device.allocated_bytes() + self._candidate.arena_bytes
        return self._room - free - ours > self._candidate.memory.device + _OVERHEAD_BYTES

    async def _gone(self) -> pb.EvalResult:
        """The runner has ended, or says that it has."""
        assert self._candidate is not None
        report = await self._candidate.runner.gone()
        if report.killed:
            return self._broke_out("the candidate closed the channel of its runner and went on")
        if report.lost:
            return verdict.infrastructure("RUNNER_LOST", "the runner's warden ended", retryable=True)
        return verdict.ended(self._candidate.stage, report, self._context.memory_bytes)

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
        with self._context.problems.used(self._spec, built):
            return await self._judge(built, memory)

    async def _judge(self, built: BuiltProblem, memory: contextlib.AsyncExitStack) -> pb.EvalResult:
        context, spec, record = self._context, self._spec, self._record
        found, capacity = built.footprint, context.ledger.capacity
        within = int(_CAREFUL * capacity) if self._alone else capacity
        sizes = found.sizes(context.device, within, timed=spec.run_performance)
        self._planned = found.needed(sizes, timed=spec.run_performance)
        self._beside, self._kept = found.beside(sizes, timed=spec.run_performance), found.kept(sizes)
        if not self._alone:
            await memory.enter_async_context(context.ledger.admit(self._planned, self._wait_for_memory))
            await self._make_room(found.judged)
        self._stages.enter(pb.STAGE_PREPARING)
        limits = verdict.Limits(context.memory_bytes, self._limit(found))
        self._use = _use(found, min(self._planned, capacity), limits.device)
        # Fixed cases are no secret, and may differ in size; random ones are drawn when they are needed.
        trials = [await self._prepare(built, number, rough=True) for number in range(built.problem.cases or 1)]
        self._roomy = await self._needs_room(built, trials[0])
        classes = context.references.classes(spec, roomy=self._roomy)
        runner = await context.pool.take(roomy=self._roomy, classes=classes)
        candidate = Candidate(spec, context.device, context.pool.lease, runner, record, limits)
        self._candidate = candidate
        slot_bytes = max(each.slot_bytes for each in trials)
        sizes = replace(
            sizes, structure=trials[0].inputs.structure, specs=trials[0].inputs.specs, slot_bytes=slot_bytes
        )
        await candidate.open_for(built.problem, trials, sizes)
        self._enter(pb.STAGE_LOADING)
        await candidate.load(built.problem.symbol)
        self._enter(pb.STAGE_COMPILING)
        await candidate.construct(built.problem)
        # Called once, unjudged: kernels are compiled and tuned here.
        record.launched((await candidate.call(trials[0])).launches)
        del trials
        self._enter(pb.STAGE_CHECKING)
        last = await self._check(candidate, built)
        provenance.check_launches(candidate)
        record.findings += examination.warnings(built.examination)
        times = await self._time(candidate, built, sizes, last) if spec.run_performance else None
        profile = None
        if spec.enable_profiling:
            self._enter(pb.STAGE_PROFILING)
            profile = await provenance.profile(candidate, last)
        candidate.enter(pb.STAGE_CHECKING)
        await provenance.replay_as_ghost(candidate, built, context.problems, self._announce)
        if not spec.enable_profiling and spec.backend != "torch":
            await provenance.survey(candidate, last)
        return verdict.correct(record.report(), record.passed, record.findings, times, profile)

    async def _check(self, candidate: Candidate, built: BuiltProblem) -> trial.Trial:
        """Check the outputs; of a wrong candidate once more, with the reference's parameters, where it has others."""
        context, record = self._context, self._record
        before = list(record.findings)
        try:
            return await check(candidate, built, context.problems, self._announce)
        except Finished as wrong:
            if wrong.result.incorrect.kind not in _WRONG_VALUES:
                raise
            try:
                adopted = await candidate.adopt(built.problem)
            except Finished:
                raise wrong from None  # it cannot be made again, or asked: wrong it was before
            if not adopted.given:
                if adopted.missing:
                    evidence = (
                        f"the reference's {', '.join(sorted(adopted.missing))[:200]} have no counterpart of that name, shape"
                        " and dtype among the candidate's: with the same names it gets the same values"
                    )
                    record.find("S29", pb.Finding.SEVERITY_INFO, evidence)
                    wrong.result.findings.append(record.findings[-1])
                raise
        record.start_again(before)
        evidence = (
            f"{', '.join(sorted(adopted.given))[:200]} had other values than the reference's of the same names (are they"
            " created in another order?), and were given those"
        )
        record.find("S29", pb.Finding.SEVERITY_INFO, evidence)
        await candidate.call(await self._prepare(built, 0, rough=True))
        return await check(candidate, built, context.problems, self._announce)

    async def _parse(self) -> None:
        """Refuse what is no Python before a process is spent on it. Parsing runs nothing of it."""
        await self._announce.tell("begin")  # a source that kills the parser is to blame, and not its neighbours
        try:
            with warnings.catch_warnings(action="ignore"):
                ast.parse(self._spec.kernel_code, CANDIDATE_FILE)
        except SyntaxError as error:
            raised = describe_error(error.with_traceback(None), CANDIDATE_FILE)
            raise Finished(verdict.raised("load", raised, verdict.Limits(self._context.memory_bytes))) from None
        except (ValueError, RecursionError, MemoryError):
            return  # its own process will say
        finally:
            await self._announce.tell("end")

    async def _needs_room(self, built: BuiltProblem, example: trial.Trial) -> bool:
        """Say whether either side may use several streams, or launches much: both then run in processes made for that."""
        spec, context = self._spec, self._context
        if any(_STREAMS.search(source) for source in (spec.kernel_code, spec.reference_code)):
            return True
        if not (spec.run_performance and context.device.lean):
            return False
        with contextlib.suppress(torch.OutOfMemoryError):
            counted = await context.problems.count(built, example, self._announce)
            return counted.kernels > context.device.lean_launches
        return False

    async def _meet(self) -> BuiltProblem:
        """Return the problem; one that is not known yet is run now, for the first time, with a limit of its own."""
        context, announce = self._context, self._announce
        if self._alone:
            announce.within = context.ledger.capacity
            return await context.problems.get(self._spec, announce)
        # Between a look and a wait it may be dropped, and what is not kept is met with memory of its own only.
        built = context.problems.recall(self._spec) or await self._meet_first()
        announce.within = built.footprint.judged_at_most
        return built

    async def _meet_first(self) -> BuiltProblem:
        context, announce = self._context, self._announce
        nbytes = footprint.unknown(context.ledger.capacity)
        while True:
            async with context.ledger.admit(nbytes, self._wait_for_memory) as announce.within:
                await self._make_room(announce.within)
                self._stages.enter(pb.STAGE_PREPARING)
                try:
                    return await context.problems.get(self._spec, announce)
                except NeedsMoreError as more:
                    if announce.within == context.ledger.capacity:
                        raise
                    nbytes = _FIRST_TIMES * more.nbytes

    def _wait_for_memory(self) -> None:
        self._stages.enter(pb.STAGE_AWAITING_MEMORY)

    async def _make_room(self, judged: int) -> None:
        """Give back what is only kept for later, as far as those who are admitted may need its memory.

        Of what this process keeps itself, judging this candidate will use as much as it is planned to: `judged` bytes.
        """
        context = self._context

        def is_short() -> bool:
            own = max(0, context.device.idle_bytes() - judged)
            return own + context.references.idle_bytes + context.problems.idle_bytes > context.ledger.free_bytes

        if not is_short():
            return
        async with context.pool.lease.work():
            context.device.clear()
            while is_short() and (await context.references.end_one() or context.problems.drop_one()):
                context.device.clear()

    async def _clear_device(self) -> None:
        """Give back whatever is kept for later on a device that this lane has to itself. Raises LeakError."""
        context = self._context
        async with context.pool.lease.work():
            await context.references.clear()
            context.problems.clear()
            gc.collect()
            context.device.clear()
            left = context.device.allocated_bytes()
            if left > _LEAKED_BYTES:
                raise LeakError(f"{left >> 20} MiB are held by tensors that no problem uses any more")
            self._room = context.device.room_bytes() - left

    def _limit(self, found: footprint.Footprint) -> int:
        """Return what the candidate may allocate on the device, in bytes; 0 on one whose memory is the host's."""
        if self._context.device.kind == "cpu":
            return 0
        return min(self._spec.candidate_memory or found.candidate_limit, self._context.ledger.capacity)

    async def _prepare(self, built: BuiltProblem, number: int, *, rough: bool = False) -> trial.Trial:
        """Draw inputs and answers from entropy that did not exist before now; `rough` ones are not to be compared with."""
        async with self._context.problems.executing(self._announce):
            return built.prepare(self._spec, self._context.device, number, rough=rough)

    async def _time(self, candidate: Candidate, built: BuiltProblem, sizes: Sizes, last: trial.Trial) -> Times:
        """Time the candidate beside its reference, and say how near it comes to what the device can do."""
        context = self._context
        # Fixed cases may differ in size, and those are timed that are as large as the first.
        example = last if built.problem.cases is None else await self._prepare(built, 0)
        beside = context.references.beside(built, self._spec, sizes, candidate.runner, roomy=self._roomy)
        async with beside as reference:
            same_pace = context.pool.class_of(reference.runner) == context.pool.class_of(candidate.runner)
            session = TimingSession(
                candidate, reference, built, example, context.quiet, context.processors, same_pace=same_pace
            )
            await session.prepare(context.problems, self._announce)
            measured = await self._measure(candidate, session)
        async with context.pool.lease.work():
            session.judge()
        paces = [runner.pace / context.hertz for runner in (reference.runner, candidate.runner)]
        times = report(self._record, measured, (paces[0], paces[1]), context.device.kind)
        seconds = times.candidate_timing.median_seconds
        placed = await roofline.place(
            context.roof, built, context.problems, self._announce, example, self._record, seconds
        )
        return replace(times, roofline=placed)

    async def _measure(self, candidate: Candidate, session: TimingSession) -> Measured:
        """Wait for the lease and measure; a device that others keep busy is left to them for a while."""
        context, lease = self._context, self._context.pool.lease
        for _ in range(_BUSY_RETRIES):
            self._enter(pb.STAGE_AWAITING_LEASE)
            async with lease.exclusive(candidate.runner):
                self._stages.enter(pb.STAGE_TIMING)
                begin = time.monotonic()
                context.quiet.slowed_from = None
                try:
                    return await session.measure()
                except DeviceBusyError:
                    if lease.alone(candidate.runner):
                        evidence = "the candidate keeps the device busy after it has answered"
                        raise self._record.reject("T26", evidence) from None
                finally:
                    self._slowed_from = context.quiet.slowed_from
                    candidate.runner.resume()
                    context.busy_seconds += time.monotonic() - begin
            await asyncio.sleep(_BUSY_SECONDS)
        raise DeviceBusyError

    async def _was_slowed(self) -> bool:
        """Say whether somebody may have slowed the device down while this candidate, which has ended, was timed.

        A device that gets warm stays slow. What a stopped candidate has left on it slows its reference, and ends with it.
        """
        if self._slowed_from is None:
            return False
        async with self._context.pool.lease.exclusive(None):
            return not await self._context.quiet.has_stayed_slow(self._slowed_from)

    def _enter(self, stage: pb.Stage.ValueType) -> None:
        assert self._candidate is not None
        self._candidate.enter(stage)
        self._stages.enter(stage)


def _use(found: footprint.Footprint, planned: int, limit: int) -> pb.MemoryUse:
    return pb.MemoryUse(
        planned_bytes=planned,
        reference_peak_bytes=found.working + found.parameters,
        candidate_limit_bytes=limit,
        input_bytes=found.inputs,
        output_bytes=found.outputs,
    )

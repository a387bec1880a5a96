"""One candidate's way through the judge: load, compile, check, time, profile, verdict. The only caller of what is beside it.

Whatever the runner does instead of answering becomes an outcome. The runner is killed at the end in every case, and
what it printed is attached to the result.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from ..devices.base import Device
from ..spec import EvalSpec
from ..toolkits import ReferenceFailure
from ..tracebacks import CANDIDATE_FILE, describe_error
from . import examination, provenance, roofline, trial, verdict
from .candidate import Candidate
from .checking import check
from .handle import RunnerGarbled, RunnerGone, RunnerStartError
from .measured import Measured
from .measuring import Session
from .pool import Pool
from .problems import Announce, Known, Problems
from .processors import Processors
from .quiet import DeviceBusyError, Quiet
from .record import Finished, Record
from .reference import References
from .report import report
from .side import Sizes
from .stages import Stages

#: Memory of one arena beyond what one input set or output slot needs, in bytes: more sets make longer bursts. No more
#: of a small device's memory than this share.
_ARENA_BUDGET = {"cuda": 512 << 20, "cpu": 64 << 20}
_ARENA_SHARE = 1 / 128
_MAX_SETS = 40
#: Fewest input sets of a candidate that is timed, since bursts must differ in length, unless they would take more
#: than this share of the device's memory: calls on so much take so long that they are timed one by one.
_MIN_SETS = 3
_MIN_SETS_SHARE = 1 / 32
#: Output slots: earlier outputs stay alive.
_MIN_SLOTS = 3
#: How often a candidate waits for a device that others keep busy, each time as long as one timing.
_BUSY_RETRIES = 20
_BUSY_SECONDS = 1.0
#: Who uses several streams says so, or uses what does; who hides it has them wait for each other. Graphs may have
#: branches, and recurrent layers of libraries have streams of their own.
_STREAMS = re.compile("stream|graph|rnn|lstm|gru|compile", re.IGNORECASE)


@dataclass(slots=True)
class Bench:
    """What lanes of one device share."""

    device: Device
    pool: Pool
    problems: Problems
    references: References
    quiet: Quiet
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
    """Evaluates one candidate."""

    def __init__(self, bench: Bench, spec: EvalSpec, tell: Callable[[str], None], announce: Announce) -> None:
        self._bench = bench
        self._spec = spec
        self._announce = announce
        self._stages = Stages(tell)
        self._record = Record()
        self._candidate: Candidate | None = None
        self._roomy = False
        #: What the device's probe took before it took longer while this candidate was timed; None if it did not.
        self._slowed_from: float | None = None

    async def evaluate(self) -> verdict.Result:
        """Return the verdict as the proto-JSON of EvalResult. Raises only what is a bug, or cancellation."""
        result: verdict.Result
        logs = ""
        cancelled = False
        try:
            try:
                result = await self._run()
            except Finished as finished:
                result = finished.result
            except (ReferenceFailure, torch.OutOfMemoryError) as failure:
                result = self._failed(failure)
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
        finally:
            if self._candidate is not None:
                overdue = cancelled or self._candidate.overdue
                try:
                    logs = (await self._bench.pool.discard(self._candidate.runner, overdue=overdue)).logs
                finally:
                    self._candidate.close()
                    self._bench.device.trim()
        if result["outcome"] == "CORRECT" and await self._was_slowed():
            detail = "the device was slower while the candidate was timed, and is not any more now that it has ended"
            result = verdict.infrastructure("DEVICE_BUSY", detail, retryable=True)
        self._stages.close()
        result["stages"] = self._stages.spans
        result.setdefault("findings", self._record.findings)
        return verdict.with_logs(result, logs)

    def _failed(self, failure: ReferenceFailure | torch.OutOfMemoryError) -> verdict.Result:
        """The reference failed, or the judge's own arithmetic: unless somebody holds all of the device's memory."""
        detail = failure.detail if isinstance(failure, ReferenceFailure) else None
        lacked = detail is None or detail["type"] == "OutOfMemoryError"
        if lacked and self._candidate is not None and self._bench.device.is_full():
            return verdict.took_all_memory(self._candidate.stage)
        if detail is not None:
            return verdict.reference_failed(detail)
        return verdict.infrastructure("DEVICE_MEMORY", f"the judge itself lacked memory: {failure}", retryable=True)

    async def _gone(self) -> verdict.Result:
        """The runner has ended, or says that it has."""
        assert self._candidate is not None
        report = await self._candidate.runner.gone()
        if report.killed:
            return self._broke_out("the candidate closed the channel of its runner and went on")
        if report.lost:
            return verdict.infrastructure("RUNNER_LOST", "the runner's warden ended", retryable=True)
        return verdict.ended(self._candidate.stage, report, self._bench.memory_bytes)

    def _broke_out(self, evidence: str) -> verdict.Result:
        assert self._candidate is not None
        found = [*self._record.findings, verdict.finding("E03", "SEVERITY_REJECT", evidence)]
        return verdict.rejected(found, None, compiled=self._candidate.stage not in ("load", "compile"))

    async def _run(self) -> verdict.Result:
        bench, spec, record = self._bench, self._spec, self._record
        self._stages.enter("STAGE_PREPARING")
        await self._parse()
        known = await bench.problems.get(spec, self._announce)
        # Fixed cases are no secret, and may differ in size; random ones are drawn when they are needed.
        trials = [await self._prepare(known, number) for number in range(known.problem.cases or 1)]
        self._roomy = await self._needs_room(known, trials[0])
        classes = bench.references.classes(spec, roomy=self._roomy)
        runner = await bench.pool.take(roomy=self._roomy, classes=classes)
        candidate = Candidate(spec, bench.device, bench.pool.lease, runner, record, bench.memory_bytes)
        self._candidate = candidate
        sizes = self._sizes(trials)
        await candidate.open_for(known.problem, trials, sizes)
        self._enter("load", "STAGE_LOADING")
        await candidate.load(known.problem.symbol)
        self._enter("compile", "STAGE_COMPILING")
        await candidate.construct(known.problem)
        # Called once, unjudged: kernels are compiled and tuned here.
        record.launched((await candidate.call(trials[0])).launches)
        for prepared in trials:
            prepared.forget_inputs()
        self._enter("correctness", "STAGE_CHECKING")
        last = await check(candidate, known, bench.problems, self._announce)
        provenance.check_launches(candidate)
        record.findings += examination.warnings(known.examination)
        timed = await self._time(candidate, known, sizes, last) if spec.run_performance else {}
        if spec.enable_profiling:
            self._enter("correctness", "STAGE_PROFILING")
            timed |= await provenance.profile(candidate, last)
        candidate.enter("correctness")
        await provenance.replay_as_ghost(candidate, known, bench.problems, self._announce)
        return {**verdict.correct(record.report(), record.passed), **timed, "findings": record.findings}

    async def _parse(self) -> None:
        """Refuse what is no Python before a process is spent on it. Parsing runs nothing of it."""
        await self._announce("begin")  # a source that kills the parser is to blame, and not its neighbours
        try:
            with warnings.catch_warnings(action="ignore"):
                ast.parse(self._spec.kernel_code, CANDIDATE_FILE)
        except SyntaxError as error:
            raised = describe_error(error.with_traceback(None), CANDIDATE_FILE)
            raise Finished(verdict.raised("load", raised, self._bench.memory_bytes)) from None
        except (ValueError, RecursionError, MemoryError):
            return  # its own process will say
        finally:
            await self._announce("end")

    async def _needs_room(self, known: Known, example: trial.Trial) -> bool:
        """Say whether either side may use several streams, or launches much: both then run in processes made for that."""
        spec, bench = self._spec, self._bench
        if any(_STREAMS.search(source) for source in (spec.kernel_code, spec.reference_code)):
            return True
        if not (spec.run_performance and bench.device.lean):
            return False
        with contextlib.suppress(torch.OutOfMemoryError):
            counted = await bench.problems.count(known, example, self._announce)
            return counted.kernels > bench.device.lean_launches
        return False

    def _sizes(self, trials: list[trial.Trial]) -> Sizes:
        """Return what the arenas hold."""
        first, device = trials[0].inputs, self._bench.device
        slot_bytes = max(each.slot_bytes for each in trials)
        sets, slots = 1, _MIN_SLOTS
        if self._spec.run_performance:
            budget = device.at_most(_ARENA_BUDGET[device.kind], _ARENA_SHARE)
            enough = device.at_most(_MIN_SETS * first.set_bytes, _MIN_SETS_SHARE) >= _MIN_SETS * first.set_bytes
            least = _MIN_SETS if enough or device.kind == "cpu" else 1
            sets = max(least, min(_MAX_SETS, budget // first.set_bytes, budget // slot_bytes))
            slots = max(sets, _MIN_SLOTS)
        return Sizes(first.structure, first.specs, sets, slots, slot_bytes)

    async def _prepare(self, known: Known, number: int) -> trial.Trial:
        """Draw inputs and answers from entropy that did not exist before now."""
        async with self._bench.problems.executing(self._announce):
            return trial.prepare(known.problem, self._spec, self._bench.device, number)

    async def _time(self, candidate: Candidate, known: Known, sizes: Sizes, last: trial.Trial) -> verdict.Result:
        """Time the candidate beside its reference, and say how near it comes to what the device can do."""
        bench = self._bench
        # Fixed cases may differ in size, and those are timed that are as large as the first.
        example = last if known.problem.cases is None else await self._prepare(known, 0)
        beside = bench.references.beside(known, self._spec, sizes, candidate.runner, roomy=self._roomy)
        async with beside as reference:
            same_pace = bench.pool.class_of(reference.runner) == bench.pool.class_of(candidate.runner)
            session = Session(candidate, reference, known, example, bench.quiet, bench.processors, same_pace=same_pace)
            await session.prepare(bench.problems, self._announce)
            measured = await self._measure(candidate, session)
        async with bench.pool.lease.work():
            session.judge()
        paces = [runner.pace / bench.hertz for runner in (reference.runner, candidate.runner)]
        timed = report(self._record, measured, (paces[0], paces[1]), bench.device.kind)
        seconds = timed["candidate_timing"]["median_seconds"]
        placed = roofline.place(bench.roof, known, bench.problems, self._announce, example, self._record, seconds)
        return timed | await placed

    async def _measure(self, candidate: Candidate, session: Session) -> Measured:
        """Wait for the lease and measure; a device that others keep busy is left to them for a while."""
        bench, lease = self._bench, self._bench.pool.lease
        for _ in range(_BUSY_RETRIES):
            self._enter("timing", "STAGE_AWAITING_LEASE")
            async with lease.exclusive(candidate.runner):
                self._stages.enter("STAGE_TIMING")
                begin = time.monotonic()
                bench.quiet.slowed_from = None
                try:
                    return await session.measure()
                except DeviceBusyError:
                    if lease.alone(candidate.runner):
                        evidence = "the candidate keeps the device busy after it has answered"
                        raise self._record.reject("T26", evidence) from None
                finally:
                    self._slowed_from = bench.quiet.slowed_from
                    candidate.runner.resume()
                    bench.busy_seconds += time.monotonic() - begin
            await asyncio.sleep(_BUSY_SECONDS)
        raise DeviceBusyError

    async def _was_slowed(self) -> bool:
        """Say whether somebody may have slowed the device down while this candidate, which has ended, was timed.

        A device that gets warm stays slow. What a stopped candidate has left on it slows its reference, and ends with it.
        """
        if self._slowed_from is None:
            return False
        async with self._bench.pool.lease.exclusive(None):
            return not await self._bench.quiet.has_stayed_slow(self._slowed_from)

    def _enter(self, stage: str, name: str) -> None:
        assert self._candidate is not None
        self._candidate.enter(stage)
        self._stages.enter(name)

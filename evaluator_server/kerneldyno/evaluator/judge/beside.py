"""Timing a candidate beside a form of its reference: the one that the request compares with, and further baselines.

Every form (eager, or compiled in one of torch's modes) has a runner of its own, and so has every library baseline of the
request, which is timed in place of the reference. Called by the lane.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from kerneldyno.v1 import evaluation_pb2 as pb

from ..shared.enums import ReferenceBackend
from ..shared.reference_failure import ReferenceFailure
from ..shared.spec import EvalSpec, TimedForm
from .checks.candidate import Candidate
from .context import JudgeContext
from .problems.cache import BuiltProblem
from .problems.trial import Trial
from .results import verdict
from .results.record import Record
from .results.times import Times
from .runners.side import Sizes
from .timing.measured import Measured
from .timing.report import report
from .timing.rounds import TimingSession

#: Longest message of a baseline that failed, in characters.
_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class Beside:
    """A candidate that is right, and what it is timed with."""

    context: JudgeContext
    candidate: Candidate
    built: BuiltProblem
    sizes: Sizes
    example: Trial
    full_queues: bool
    #: Waits for the lease and measures.
    measure: Callable[[TimingSession], Awaitable[Measured]]

    async def times(self, spec: EvalSpec, record: Record) -> Times:
        """Time the candidate beside the reference in the form that `spec` names. Findings go into the record.

        Raises Finished, ReferenceFailure, RunnerStartError, OutOfMemoryError, DeviceBusyError.
        """
        context, candidate = self.context, self.candidate
        beside = context.references.beside(self.built, spec, self.sizes, candidate.runner, full_queues=self.full_queues)
        async with beside as reference:
            same_pace = context.pool.class_of(reference.runner) == context.pool.class_of(candidate.runner)
            session = TimingSession(
                *(candidate, reference, self.built, self.example, context.quiet, context.processors),
                same_pace=same_pace,
                other_kernels=spec.timing.form.has_other_kernels,
            )
            await session.prepare(context.problems)
            measured = await self.measure(session)
        await context.problems.execute(session.judge)
        paces = [runner.pace / context.hertz for runner in (reference.runner, candidate.runner)]
        return report(record, measured, (paces[0], paces[1]), context.device.kind)

    async def baselines(self, spec: EvalSpec, make_room: Callable[[], Awaitable[None]]) -> list[pb.BaselineResult]:
        """Time the candidate beside all further baselines: forms of its reference, and then library baselines.

        `make_room` frees memory before each.
        """
        found = []
        for backend in spec.timing.baselines:
            await make_room()
            found.append(await self._form(spec, backend))
        for name, code in spec.timing.library_baselines:
            await make_room()
            found.append(await self._library(spec, name, code))
        return found

    async def _form(self, spec: EvalSpec, backend: ReferenceBackend) -> pb.BaselineResult:
        """Time the candidate beside one more form of its reference. A form that fails is no failure of the candidate.

        Doubts about the candidate's times were recorded when it was timed first.
        """
        form = replace(spec.timing.form, backend=backend)
        return await self._compare(
            _in_form(spec, form), pb.BaselineResult(backend=pb.ReferenceBackend.ValueType(backend))
        )

    async def _library(self, spec: EvalSpec, name: str, code: str) -> pb.BaselineResult:
        """Time the candidate beside a program in place of its reference. One that fails or is wrong has an error.

        What is learnt about its calls (whether they can be queued) says nothing about the reference's, and is forgotten.
        """
        apart = replace(self, built=replace(self.built))
        form = replace(spec.timing.form, backend=ReferenceBackend.EAGER, baseline_code=code)
        return await apart._compare(_in_form(spec, form), pb.BaselineResult(name=name))

    async def _compare(self, spec: EvalSpec, found: pb.BaselineResult) -> pb.BaselineResult:
        """Time the candidate beside what `spec` names, and return `found` with the result or an error."""
        try:
            times = await self.times(spec, Record())
        except ReferenceFailure as failure:
            found.error = verdict.clean(f"{failure.error.type}: {failure.error.message}", _MESSAGE)
            return found
        if times.speedup is not None and times.reference_timing is not None:
            found.speedup = times.speedup
            found.reference_timing.CopyFrom(times.reference_timing)
        if times.end_to_end_speedup is not None and times.reference_end_to_end is not None:
            found.end_to_end_speedup = times.end_to_end_speedup
            found.reference_end_to_end.CopyFrom(times.reference_end_to_end)
        if times.speedup_interval is not None:
            found.speedup_interval.CopyFrom(times.speedup_interval)
        if times.end_to_end_speedup_interval is not None:
            found.end_to_end_speedup_interval.CopyFrom(times.end_to_end_speedup_interval)
        return found


def _in_form(spec: EvalSpec, form: TimedForm) -> EvalSpec:
    return replace(spec, timing=replace(spec.timing, form=form))

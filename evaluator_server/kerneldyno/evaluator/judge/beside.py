"""Timing a candidate beside a form of its reference: the one that the request compares with, and further baselines.

Every form (eager, or compiled in one of torch's modes) has a runner of its own. Called by the lane.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from kerneldyno.v1 import evaluation_pb2 as pb

from ..shared.spec import EvalSpec
from ..toolkits import ReferenceFailure
from .checks.candidate import Candidate
from .context import JudgeContext
from .problems.cache import Announce, BuiltProblem
from .problems.trial import Trial
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
    announce: Announce
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
                compiled=spec.torch_compile,
            )
            await session.prepare(context.problems, self.announce)
            measured = await self.measure(session)
        async with context.pool.lease.work():
            session.judge()
        paces = [runner.pace / context.hertz for runner in (reference.runner, candidate.runner)]
        return report(record, measured, (paces[0], paces[1]), context.device.kind)

    async def baseline(self, spec: EvalSpec, backend: pb.ReferenceBackend.ValueType) -> pb.BaselineResult:
        """Time the candidate beside one more form of its reference. A form that fails is no failure of the candidate.

        Doubts about the candidate's times were recorded when it was timed first.
        """
        found = pb.BaselineResult(backend=backend)
        try:
            times = await self.times(replace(spec, reference_backend=backend), Record())
        except ReferenceFailure as failure:
            found.error = f"{failure.error.type}: {failure.error.message}"[:_MESSAGE]
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

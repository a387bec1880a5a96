"""One process of a right candidate under a tool: it is built, called, and its tool's report is read.

The process has the sandbox of any runner, and the lease stops it while others are timed. Nothing that goes wrong here
says anything about the candidate.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ...shared import wire
from ...shared.reference_failure import ReferenceFailure
from ...shared.spec import EvalSpec, Limits
from ..checks.candidate import Candidate
from ..checks.libraries import Libraries
from ..context import JudgeContext
from ..problems.cache import Announce, BuiltProblem
from ..problems.trial import Trial
from ..results import verdict
from ..results.record import Finished, Record
from ..runners.handle import FAILURES, RunnerGone
from ..runners.side import Sizes

#: Time limit for one process, in seconds. A call under a tool is ten to a hundred times slower.
_SECONDS = 180.0
#: So much of the output of a process that ended too early is passed on, in characters.
_LAST = 200
#: Most names of kernels that are read, and their length in characters.
_MOST_NAMES, _NAME = 1000, 400


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of one process. All of it is the process's own word."""

    #: The tool's report; empty if there is none.
    report: dict[str, Any] = field(default_factory=dict)
    #: Names of the candidate's own kernels.
    own: Sequence[str] = ()
    #: Why the calls did not end, or why there is no report; "" if all went well.
    failed: str = ""
    seconds: float = 0.0


class _Reported(Exception):  # noqa: N818
    """The harness has ended, and the tool's report is here."""

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__("the harness has ended")
        self.report = report


class _Watched(Candidate):
    """A candidate whose runner ends with a report."""

    async def inspect(self, trial: Trial) -> Any:
        """Call it once while the tool watches. Return the harness's answer, unparsed."""
        return await self._look("inspect", trial, seed=trial.seed)

    def _heed(self, answer: wire.Frame) -> Any:
        if "report" in answer:
            report = answer["report"]
            raise _Reported(report if isinstance(report, dict) else {})
        return super()._heed(answer)


@dataclass(frozen=True, slots=True)
class Watcher:
    """A right candidate, and what is needed to start it again."""

    context: JudgeContext
    spec: EvalSpec
    built: BuiltProblem
    libraries: Libraries
    limits: verdict.Limits
    announce: Announce

    async def watch(self, tool: wire.Frame, *, warm: bool) -> Seen:
        """Run the candidate under a tool.

        Args:
            tool: The tool's name, and what it is asked for.
            warm: Whether the watched call comes after another one, which compiles and tunes kernels.

        Returns:
            What was seen. Raises only bugs and cancellation.
        """
        begin = time.monotonic()
        seen = Seen()
        try:
            seen = await self._watch(tool, warm=warm)
        except (*FAILURES, Finished, ReferenceFailure, torch.OutOfMemoryError) as failure:
            seen = Seen(failed=_why(failure))
        return replace(seen, seconds=time.monotonic() - begin)

    async def _watch(self, tool: wire.Frame, *, warm: bool) -> Seen:
        pool, device = self.context.pool, self.context.device
        limits = Limits(_SECONDS, _SECONDS, _SECONDS, _SECONDS)
        spec = replace(self.spec, candidate=replace(self.spec.candidate, limits=limits))
        trial = await self.context.problems.execute(
            self.announce, lambda: self.built.prepare(spec, device, 0, rough=True)
        )
        runner = await pool.spawn(role="inspection", tool=tool)
        runner.has_candidate = True
        candidate = _Watched(spec, device, pool.lease, runner, Record(), self.limits)
        own: list[str] = []
        failed = "the candidate's process ended before its calls did"
        try:
            try:
                form = trial.inputs
                sizes = Sizes(form.structure, form.specs, sets=1, slots=1, slot_bytes=trial.slot_bytes)
                await candidate.open_for(self.built.problem, [trial], sizes)
                await candidate.load(self.built.problem.symbol, self.libraries)
                await candidate.construct(self.built.problem)
                if warm:
                    await candidate.call(trial)
                own = _names(await candidate.inspect(trial))
                failed = ""
            except Finished as raised:
                failed = _why(raised)
            await candidate.ask({"op": "end"})
            return Seen(own=own, failed="the process went on after its end")
        except _Reported as reported:
            return Seen(reported.report, own, failed)
        except RunnerGone:
            report = await runner.gone()
            result = verdict.ended("an inspection", report, self.limits.host)
            return Seen(
                own=own, failed=f"under the tool, {result.message}: {report.logs.strip()[-_LAST:]}".removesuffix(": ")
            )
        finally:
            try:
                await pool.discard(runner)
            finally:
                candidate.close()


def _names(answer: Any) -> list[str]:
    said = answer.get("own") if isinstance(answer, dict) else None
    return [str(name)[:_NAME] for name in said[:_MOST_NAMES]] if isinstance(said, list) else []


def _why(failure: BaseException) -> str:
    if isinstance(failure, Finished):
        return failure.result.message
    return f"{type(failure).__name__}: {failure}".removesuffix(": ")

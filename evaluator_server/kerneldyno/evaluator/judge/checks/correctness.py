"""Correctness: trials on fresh secret inputs, nominal and stressed ones, until one is wrong or all are right.

In each trial the judge compares every leaf of the output as it is when the call returns, and the inputs after the call.
Then it checks that the outputs of previous calls have not changed. The first call after construction, in which kernels
are compiled and tuned, is compared as well. Called through `adoption`; findings go into the record.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from kerneldyno.v1 import evaluation_pb2 as pb

from ...shared import tree
from ...shared.enums import OutputReuse, Precision
from ...shared.reference_failure import ReferenceFailure
from ..comparison.evidence import Comparison, Mismatch
from ..comparison.fingerprint import Fingerprint
from ..problems import stress, trial
from ..problems.cache import BuiltProblem, Problems
from ..problems.cases import case_of
from ..results import verdict
from ..results.record import Finished
from ..runners.answers import Called
from . import arithmetic
from .candidate import Candidate
from .explained import explained, overflown

#: How often stressed inputs are drawn until the reference can be trusted on them.
_REDRAWS = 3
#: What stands for the number of the trial in evidence (IncorrectEvidence.trial): the first call after construction.
FIRST_CALL = -2


@dataclass(frozen=True, slots=True)
class _Overflown:
    """A few elements are not finite on stress inputs. That is right only if all are right on `weaker` ones."""

    comparison: Comparison
    said: str
    weaker: stress.Stress


@dataclass(frozen=True, slots=True)
class Checked:
    """What right trials leave: the last nominal one, of the case that is timed, and the fingerprint of its answer."""

    last: trial.Trial
    prints: Fingerprint
    answer: int


async def call_first(candidate: Candidate, built: BuiltProblem, current: trial.Trial, problems: Problems) -> Comparison:
    """Make the first call after construction. Return how its answer compares; `check` decides what follows from that."""
    called = await candidate.call(current)
    candidate.record.launched(called.launches)
    return await problems.execute(lambda: compare_nominal(candidate, built, current, called, FIRST_CALL))


def compare_nominal(
    candidate: Candidate, built: BuiltProblem, current: trial.Trial, called: Called, number: int
) -> Comparison:
    """Compare the answer to nominal inputs in every respect. `number` is that of the trial, or what stands for it."""
    comparison = trial.judge(current, candidate.spec, called.structure, called.specs, candidate.station.outputs[0])
    _look_closer(candidate, built, current, number, comparison)
    return comparison


async def check(candidate: Candidate, built: BuiltProblem, first: Comparison, problems: Problems) -> Checked:
    """Run all trials. Raises Finished if one is wrong, or else if the `first` call was."""
    spec, problem = candidate.spec, built.problem
    nominal = spec.checks.correct_trials if problem.cases is None else max(problem.cases, spec.checks.correct_trials)
    kinds: list[stress.Stress | None] = [None] * nominal
    # Nominal and stressed trials come in one secret order, so only their values distinguish them.
    kinds += built.examination.held
    secrets.SystemRandom().shuffle(kinds)
    last, answer = None, 0
    earlier: list[int | None] = []
    prints = Fingerprint(candidate.device)
    async with contextlib.aclosing(_drawn(candidate, built, kinds, problems)) as trials:
        async for number, kind, current in trials:
            tried = await _try(candidate, built, current, prints, earlier, number, problems)
            if kind is None and number % (problem.cases or 1) == 0:
                assert isinstance(tried, int)
                last, answer = current.outline() if built.spares_inputs else current, tried
            aliased = current.aliased
            del current  # free it before inputs are drawn again
            if isinstance(tried, _Overflown):
                assert kind is not None
                earlier = [None]
                tried, aliased = await _try_weaker(candidate, built, kind, tried, prints, number, problems)
            # An output that shares memory with inputs changes with them.
            earlier = [None if aliased else tried, *earlier[:1]]
    candidate.case = case_of(problem, spec, 0)
    candidate.record.note(first)
    if first.mismatch is not None:
        raise wrong(candidate, built, None, FIRST_CALL, first)
    assert last is not None
    return Checked(last, prints, answer)


async def _drawn(
    candidate: Candidate, built: BuiltProblem, kinds: Sequence[stress.Stress | None], problems: Problems
) -> AsyncGenerator[tuple[int, stress.Stress | None, trial.Trial], None]:
    """Yield the trials of these kinds that can be prepared, with their numbers.

    Small ones are prepared together. Most wrong candidates fail at the first trial, so that one is prepared by itself,
    and the next ones while the candidate is called on it.
    """
    numbered, at_once = list(enumerate(kinds)), built.at_once(candidate.device)
    groups = [numbered[:1], *(numbered[begin : begin + at_once] for begin in range(1, len(numbered), at_once))]
    ahead: asyncio.Task[list[trial.Trial | None]] | None = None
    try:
        for at, group in enumerate(groups):
            candidate.case = case_of(built.problem, candidate.spec, group[0][0])
            prepared = await (ahead or _draw_group(candidate, built, group, problems))
            ahead = None
            if not built.footprint.is_large and at + 1 < len(groups):
                ahead = asyncio.create_task(_draw_group(candidate, built, groups[at + 1], problems))
            for number, kind in group:
                candidate.case = case_of(built.problem, candidate.spec, number)
                if prepared[0] is None:
                    del prepared[0]
                else:
                    yield number, kind, cast(trial.Trial, prepared.pop(0))  # nothing here keeps its memory
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)


async def _draw_group(
    candidate: Candidate,
    built: BuiltProblem,
    group: Sequence[tuple[int, stress.Stress | None]],
    problems: Problems,
) -> list[trial.Trial | None]:
    """Prepare some trials side by side, and one by one those that cannot be prepared so; None as in `_draw`."""
    found: list[trial.Trial | BaseException] = []
    if len(group) > 1:
        deaths = built.problem.deaths
        try:
            found = await problems.execute(lambda: built.prepare_together(candidate.spec, candidate.device, group))
        except ReferenceFailure:
            built.problem.pardon(deaths)  # it counts when the trial that causes it is prepared by itself
    if not found:
        return [await _draw(candidate, built, kind, number, problems) for number, kind in group]
    prepared: list[trial.Trial | None] = []
    while found:
        number, kind = group[len(prepared)]
        current = found.pop(0)
        if isinstance(current, trial.Trial) and _is_usable(candidate, built, kind, current):
            prepared.append(current)
        else:
            prepared.append(await _draw(candidate, built, kind, number, problems))
    return prepared


def _is_usable(candidate: Candidate, built: BuiltProblem, kind: stress.Stress | None, current: trial.Trial) -> bool:
    if not candidate.has_room(current) or (kind is not None and not built.examination.can_tell(current.expected)):
        return False
    current.stress = kind
    return True


async def _draw(
    candidate: Candidate,
    built: BuiltProblem,
    kind: stress.Stress | None,
    number: int,
    problems: Problems,
) -> trial.Trial | None:
    """Prepare one trial; None if the reference fails on stressed inputs of a kind that it usually tolerates.

    Draw again if the answer is larger than there is room for, since its size may depend on the inputs, or if it is not
    finite under stress: then it shows nothing, and its float64 twin may be finite, which no candidate's answer can be.
    """
    for left in reversed(range(_REDRAWS)):
        deaths = built.problem.deaths
        prepare = functools.partial(
            built.prepare,
            *(candidate.spec, candidate.device, number, kind, candidate.stage_inputs),
            must_be_finite=kind is not None,
        )
        try:
            current = await problems.execute(prepare)
        except trial.NotFiniteError:
            continue  # the examination has seen finite ones
        except ReferenceFailure as failure:
            if kind is None or failure.lacked_memory:
                raise
            if built.problem.pardon(deaths):
                built.examination.drop(kind.kind)
            return None
        # If the last nominal one does not fit, the call says what is wrong.
        if _is_usable(candidate, built, kind, current) or (kind is None and not left):
            return current
    return None


async def _try_weaker(
    candidate: Candidate,
    built: BuiltProblem,
    kind: stress.Stress,
    found: _Overflown,
    prints: Fingerprint,
    number: int,
    problems: Problems,
) -> tuple[int, bool]:
    """Try weaker stress of the same kind. Raises Finished.

    Return the answer's fingerprint if it is right, and whether it shares memory with inputs.
    """
    current = await _draw(candidate, built, found.weaker, number, problems)
    if current is None:
        raise wrong(candidate, built, kind, number, found.comparison)
    tried = await _try(candidate, built, current, prints, (), number, problems)
    if isinstance(tried, _Overflown):
        raise wrong(candidate, built, found.weaker, number, tried.comparison)
    _note(candidate, kind, found.said)
    return tried, current.aliased


async def _try(
    candidate: Candidate,
    built: BuiltProblem,
    current: trial.Trial,
    prints: Fingerprint,
    earlier: Sequence[int | None],
    number: int,
    problems: Problems,
) -> int | _Overflown:
    """Try one trial. Return the fingerprint of its output. Raises Finished."""
    called = await candidate.call(current)
    candidate.record.launched(called.launches)
    return await problems.execute(lambda: _judge_answer(candidate, built, current, called, prints, earlier, number))


def _judge_answer(
    candidate: Candidate,
    built: BuiltProblem,
    current: trial.Trial,
    called: Called,
    prints: Fingerprint,
    earlier: Sequence[int | None],
    number: int,
) -> int | _Overflown:
    """Judge the answer to one trial, which may ask the problem. Return its fingerprint. Raises Finished."""
    record, spec, station = candidate.record, candidate.spec, candidate.station
    comparison = trial.judge(current, spec, called.structure, called.specs, station.outputs[0])
    excused = False
    if comparison.mismatch is not None and comparison.mismatch.kind == "values" and current.stress:
        excused = _excuse(candidate, built, current, number, comparison)
    if comparison.mismatch is not None and comparison.mismatch.kind == "non-finite" and current.stress:
        weaker = stress.weaker(current.stress)
        if weaker is not None and (said := overflown(spec, current, station.outputs[0])):
            return _Overflown(comparison, said, weaker)
    record.trials += 1
    record.stress_trials += current.stress is not None
    _look_closer(candidate, built, current, number, comparison)
    if comparison.mismatch is None and _is_overwritten(candidate, prints, earlier):
        _reused(candidate, comparison)
    record.note(comparison)
    # Excused elements look like coarser arithmetic than that of the other elements.
    if _all_there(current, called.specs) and not excused:
        record.precision = arithmetic.observed(
            built.problem, candidate.device, current, station.outputs[0], record.precision
        )
    answer = prints.of(station.outputs[0])
    if comparison.mismatch is not None:
        raise wrong(candidate, built, current.stress, number, comparison)
    record.passed += 1
    record.layouts = called.specs
    return answer


def _look_closer(
    candidate: Candidate, built: BuiltProblem, current: trial.Trial, number: int, comparison: Comparison
) -> None:
    """Look at what values do not show: memory around the inputs, the inputs themselves, and how errors are spread."""
    spec, station = candidate.spec, candidate.station
    if (outside := candidate.outside(current)) and candidate.record.outside is None:
        candidate.record.outside = number, outside
    if comparison.mismatch is not None:
        return
    if not trial.inputs_intact(current, station.arena):
        detail = "after the call the inputs differ from what the reference leaves"
        comparison.mismatch = Mismatch("inputs", "input mutated", detail)
    elif not current.stress and spec.checks.rules.allowed_precision != Precision.UNSPECIFIED:
        comparison.mismatch = arithmetic.unlike_rounding(
            built.problem, candidate.device, current, station.outputs[0], spec.checks.rules.allowed_precision
        )


def wrong(
    candidate: Candidate, built: BuiltProblem, kind: stress.Stress | None, number: int, comparison: Comparison
) -> Finished:
    """Return the exception to raise for a wrong answer."""
    record, mismatch = candidate.record, comparison.mismatch
    assert mismatch is not None
    if kind is not None and mismatch.kind != "output overwritten":
        detail = f"{mismatch.detail} on stress inputs ({kind.kind})"
        mismatch = replace(mismatch, detail=detail, stress=stress.CONTRACT[kind.kind])
    if candidate.spec.problem.training is not None:
        mode = "training" if candidate.spec.problem.training else "eval"
        mismatch = replace(mismatch, detail=f"{mismatch.detail}, in {mode} mode")
    _explain(candidate, built)
    return Finished(verdict.incorrect(mismatch, number, record.report(), record.findings))


def _excuse(
    candidate: Candidate, built: BuiltProblem, current: trial.Trial, number: int, comparison: Comparison
) -> bool:
    """Return True if honest arithmetic explains the wrong elements of an answer to stress inputs; then accept it."""
    said = explained(built, candidate.spec, candidate.device, current, number, candidate.station.outputs[0])
    if said and current.stress is not None:
        comparison.mismatch = None
        _note(candidate, current.stress, said)
    return bool(said)


def _note(candidate: Candidate, kind: stress.Stress, said: str) -> None:
    if not candidate.record.has("D07"):
        candidate.record.find("D07", pb.Finding.SEVERITY_INFO, f"on stress inputs ({kind.kind}) {said}")


def _is_overwritten(candidate: Candidate, prints: Fingerprint, earlier: Sequence[int | None]) -> bool:
    """Return True if an output of a previous call has changed after another call."""
    slots = candidate.station.outputs[1:]
    return any(before is not None and prints.of(slot) != before for before, slot in zip(earlier, slots, strict=False))


def _reused(candidate: Candidate, comparison: Comparison) -> None:
    """Report that a call overwrote an earlier output: as a finding or as a mismatch, as the request says."""
    record = candidate.record
    if candidate.spec.checks.output_reuse == OutputReuse.REJECT:
        detail = "an output changed when the candidate was called again; each call must return memory of its own"
        comparison.mismatch = Mismatch("output", "output overwritten", detail)
    elif not record.has("S30"):
        evidence = "a call overwrites the output of an earlier call: copy an output before the next call to keep it"
        record.find("S30", pb.Finding.SEVERITY_INFO, evidence)


def _all_there(current: trial.Trial, specs: list[tree.TensorSpec]) -> bool:
    wanted = [(leaf.spec.shape, leaf.spec.dtype) for leaf in current.expected.leaves]
    return wanted == [(spec.shape, spec.dtype) for spec in specs]


def _explain(candidate: Candidate, built: BuiltProblem) -> None:
    """Add findings that may help to understand a wrong answer."""
    record, spec = candidate.record, candidate.spec
    if record.precision > max(spec.checks.rules.allowed_precision, Precision.FP32):
        name = arithmetic.short_name(record.precision)
        evidence = (
            f"the errors look like {name} arithmetic: if the candidate computes in {name} on purpose, allowed_precision"
            " can allow that; if it does not, look for a mistake"
        )
        record.find("S23", pb.Finding.SEVERITY_INFO, evidence)
    if built.problem.buffers and not built.problem.training:
        evidence = (
            f"the reference's calls change {', '.join(built.problem.buffers)[:200]}, and its answers depend on that: the"
            " values after a call are part of the answer, in tensors of the candidate with the same names"
        )
        record.find("S29", pb.Finding.SEVERITY_INFO, evidence)
    secret = built.problem.constant_names
    missing = len(secret) - record.parameters_perturbed
    if missing > 0:
        evidence = (
            f"the reference's {', '.join(sorted(secret))[:200]} hold secret values, and {missing} of them have no"
            " counterpart among the candidate's parameters and buffers"
        )
        record.find("S29", pb.Finding.SEVERITY_INFO, evidence)

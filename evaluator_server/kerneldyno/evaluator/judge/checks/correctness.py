"""Correctness: trials on fresh secret inputs, nominal and stressed ones, until one is wrong or all are right.

In each trial the judge compares every leaf of the output as it is when the call returns, and the inputs after the call.
Then it checks that the outputs of previous calls have not changed. Called by the lane; findings go into the record.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kerneldyno.v1 import evaluation_pb2 as pb

from ...shared import tree
from ..comparison.evidence import Comparison, Mismatch
from ..comparison.fingerprint import Fingerprint
from ..problems import stress, trial
from ..problems.cache import Announce, BuiltProblem, Problems
from ..problems.cases import case_of
from ..results import verdict
from ..results.record import Finished
from . import arithmetic
from .candidate import Candidate
from .explained import explained, overflown

#: How often stressed inputs are drawn until the reference can be trusted on them.
_REDRAWS = 3


@dataclass(frozen=True, slots=True)
class _Overflown:
    """A few elements are not finite on stress inputs. That is right only if all are right on `weaker` ones."""

    comparison: Comparison
    said: str
    weaker: stress.Stress


async def check(candidate: Candidate, built: BuiltProblem, problems: Problems, announce: Announce) -> trial.Trial:
    """Run all trials, and return the last nominal one, of the case that is timed. Raises Finished if one is wrong."""
    spec, problem = candidate.spec, built.problem
    nominal = spec.correct_trials if problem.cases is None else max(problem.cases, spec.correct_trials)
    kinds: list[stress.Stress | None] = [None] * nominal
    # Nominal and stressed trials come in one secret order, so only their values distinguish them.
    kinds += built.examination.held
    secrets.SystemRandom().shuffle(kinds)
    last = None
    earlier: list[int | None] = []
    prints = Fingerprint(candidate.device)
    for number, kind in enumerate(kinds):
        candidate.case = case_of(problem, spec, number)
        current = await _draw(candidate, built, kind, number, problems, announce)
        if current is None:
            continue
        tried = await _try(candidate, built, current, prints, earlier, number, problems, announce)
        if kind is None and number % (problem.cases or 1) == 0:
            last = current.outline() if built.spares_inputs else current
        del current  # free it before inputs are drawn again
        if isinstance(tried, _Overflown):
            assert kind is not None
            earlier = [None]
            tried = await _try_weaker(candidate, built, kind, tried, prints, number, problems, announce)
        earlier = [tried, *earlier[:1]]
    candidate.case = case_of(problem, spec, 0)
    assert last is not None
    return last


async def _draw(
    candidate: Candidate,
    built: BuiltProblem,
    kind: stress.Stress | None,
    number: int,
    problems: Problems,
    announce: Announce,
) -> trial.Trial | None:
    """Prepare one trial; None if the reference fails on stressed inputs of a kind that it usually tolerates."""
    for _ in range(_REDRAWS):
        async with problems.executing(announce):
            current = built.prepare(candidate.spec, candidate.device, number, kind, candidate.stage_inputs)
        if kind is None or built.examination.can_tell(current.expected):
            current.stress = kind
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
    announce: Announce,
) -> int | None:
    """Try weaker stress of the same kind. Return what `_try` returns if that answer is right. Raises Finished."""
    current = await _draw(candidate, built, found.weaker, number, problems, announce)
    if current is None:
        raise _wrong(candidate, built, kind, number, found.comparison)
    tried = await _try(candidate, built, current, prints, (), number, problems, announce)
    if isinstance(tried, _Overflown):
        raise _wrong(candidate, built, found.weaker, number, tried.comparison)
    _note(candidate, kind, found.said)
    return tried


async def _try(
    candidate: Candidate,
    built: BuiltProblem,
    current: trial.Trial,
    prints: Fingerprint,
    earlier: Sequence[int | None],
    number: int,
    problems: Problems,
    announce: Announce,
) -> int | _Overflown | None:
    """Try one trial. Return the fingerprint that its output must keep, or None. Raises Finished."""
    record, spec, station = candidate.record, candidate.spec, candidate.station
    called = await candidate.call(current)
    structure, specs, launches = called.structure, called.specs, called.launches
    record.launched(launches)
    async with problems.executing(announce):  # recognising a tier runs the reference
        comparison = trial.judge(current, spec, structure, specs, station.outputs[0])
        excused = False
        if comparison.mismatch is not None and comparison.mismatch.kind == "values" and current.stress:
            excused = _excuse(candidate, built, current, number, comparison)
        if comparison.mismatch is not None and comparison.mismatch.kind == "non-finite" and current.stress:
            weaker = stress.weaker(current.stress)
            if weaker is not None and (said := overflown(spec, current, station.outputs[0])):
                return _Overflown(comparison, said, weaker)
        record.trials += 1
        record.stress_trials += current.stress is not None
        if comparison.mismatch is None and not trial.inputs_intact(current, station.arena):
            detail = "after the call the inputs differ from what the reference leaves"
            comparison.mismatch = Mismatch("inputs", "input mutated", detail)
        allowed = spec.allowed_precision
        if comparison.mismatch is None and not current.stress and allowed != pb.PRECISION_UNSPECIFIED:
            comparison.mismatch = arithmetic.unlike_rounding(
                built.problem, candidate.device, current, station.outputs[0], allowed
            )
        if comparison.mismatch is None and _is_overwritten(candidate, prints, earlier):
            _reused(candidate, comparison)
        record.note(comparison)
        # Excused elements look like coarser arithmetic than that of the other elements.
        if _all_there(current, specs) and not excused:
            record.precision = arithmetic.observed(
                built.problem, candidate.device, current, station.outputs[0], record.precision
            )
    if comparison.mismatch is not None:
        raise _wrong(candidate, built, current.stress, number, comparison)
    record.passed += 1
    record.layouts = specs
    # An output that shares memory with inputs changes with them.
    return None if current.aliased else prints.of(station.outputs[0])


def _wrong(
    candidate: Candidate, built: BuiltProblem, kind: stress.Stress | None, number: int, comparison: Comparison
) -> Finished:
    """Return the exception to raise for a wrong answer."""
    record, mismatch = candidate.record, comparison.mismatch
    assert mismatch is not None
    if kind is not None and mismatch.kind != "output overwritten":
        detail = f"{mismatch.detail} on stress inputs ({kind.kind})"
        mismatch = replace(mismatch, detail=detail, stress=stress.CONTRACT[kind.kind])
    if candidate.spec.training is not None:
        mode = "training" if candidate.spec.training else "eval"
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
    if candidate.spec.output_reuse == pb.OUTPUT_REUSE_REJECT:
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
    if record.precision > max(spec.allowed_precision, pb.PRECISION_FP32):
        name = arithmetic.short_name(record.precision)
        evidence = (
            f"the errors look like {name} arithmetic: if the candidate computes in {name} on purpose, allowed_precision"
            " can allow that; if it does not, look for a mistake"
        )
        record.find("S23", pb.Finding.SEVERITY_INFO, evidence)
    missing = len(built.problem.state()) - record.parameters_perturbed
    if missing > 0:
        evidence = (
            f"the reference's {', '.join(sorted(built.problem.state()))[:200]} hold secret values, and {missing} of them"
            " have no counterpart among the candidate's parameters and buffers"
        )
        record.find("S29", pb.Finding.SEVERITY_INFO, evidence)

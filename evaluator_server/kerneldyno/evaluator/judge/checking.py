"""Correctness: trials on fresh secret inputs, nominal ones and stressed ones, until one is wrong or all are right.

Of each trial the judge compares every leaf of the output, what became of the inputs, and what the call before had returned,
which must not have changed. Called by the lane; what it finds goes into the record.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import torch

from .. import tree
from ..precision import RECOGNISED, of_dtype, recognise, rms
from ..toolkits import ReferenceFailure
from . import stress, trial, verdict
from .candidate import Candidate
from .compare import Comparison
from .fingerprint import Fingerprint
from .problems import Announce, Known, Problems
from .record import Finished

#: How often stressed inputs are drawn on which the reference can be trusted.
_REDRAWS = 3
#: An error this many times the reference's own is looked at more closely: it may be that of coarser arithmetic.
_CONSPICUOUS = 4.0
#: The largest error may be this many times the largest that a tier's rounding makes.
_EXCESS = 8.0


async def check(candidate: Candidate, known: Known, problems: Problems, announce: Announce) -> trial.Trial:
    """Run all trials; return the last nominal one. Raises Finished when one is wrong."""
    spec, problem = candidate.spec, known.problem
    nominal = spec.correct_trials if problem.cases is None else max(problem.cases, spec.correct_trials)
    kinds: list[stress.Stress | None] = [None] * nominal
    # Nominal and stressed ones in one order, which is secret: nothing tells them apart but their values.
    kinds += known.examination.held
    secrets.SystemRandom().shuffle(kinds)
    last = None
    earlier: list[int | None] = []
    prints = Fingerprint(candidate.device)
    for number, kind in enumerate(kinds):
        current = await _draw(candidate, known, kind, number, problems, announce)
        if current is None:
            continue
        current.stress = "" if kind is None else kind.kind
        earlier = [await _try(candidate, known, current, prints, earlier, number, problems, announce), *earlier[:1]]
        if kind is None:
            last = current.outline() if known.spares_inputs else current
        del current
    assert last is not None
    return last


async def _draw(
    candidate: Candidate,
    known: Known,
    kind: stress.Stress | None,
    number: int,
    problems: Problems,
    announce: Announce,
) -> trial.Trial | None:
    """Prepare one trial; None where the reference has lost its way on stressed inputs that it usually bears."""
    for _ in range(_REDRAWS):
        async with problems.executing(announce):
            current = known.prepare(candidate.spec, candidate.device, number, kind, candidate.stage_inputs)
        if kind is None or known.examination.can_tell(current.expected):
            return current
    return None


async def _try(
    candidate: Candidate,
    known: Known,
    current: trial.Trial,
    prints: Fingerprint,
    earlier: Sequence[int | None],
    number: int,
    problems: Problems,
    announce: Announce,
) -> int | None:
    """Try one trial; return the fingerprint that its output must keep, if it must. Raises Finished."""
    record, spec, station = candidate.record, candidate.spec, candidate.station
    called = await candidate.call(current)
    structure, specs, launches = called.structure, called.specs, called.launches
    record.launched(launches)
    record.trials += 1
    record.stress_trials += bool(current.stress)
    async with problems.executing(announce):  # recognising a tier runs the reference
        comparison = trial.judge(current, spec, structure, specs, station.outputs[0])
        if comparison.mismatch is None and not trial.inputs_intact(current, station.arena):
            comparison.mismatch = {
                "output": "inputs",
                "kind": "input mutated",
                "detail": "after the call the inputs are not what the reference leaves",
            }
        if comparison.mismatch is None:
            comparison = _again(candidate, prints, earlier, comparison)
        record.note(comparison)
        if _all_there(current, specs):
            tier = _tier(candidate, known, current)
            if _rank(tier) > _rank(record.precision):
                record.precision = tier
    if comparison.mismatch is not None:
        if current.stress:
            comparison.mismatch["detail"] += f" on stress inputs ({current.stress})"
        _explain(candidate, known)
        raise Finished(verdict.incorrect(comparison, number, record.report(), record.findings))
    record.passed += 1
    record.layouts = specs
    # What shares memory with inputs changes with them.
    return None if current.aliased else prints.of(station.outputs[0])


def _again(candidate: Candidate, prints: Fingerprint, earlier: Sequence[int | None], so_far: Comparison) -> Comparison:
    """Say whether what the calls before returned is still the same, after another call has run."""
    for before, slot in zip(earlier, candidate.station.outputs[1:], strict=False):
        if before is not None and prints.of(slot) != before:
            detail = "an output changed when the candidate was called again; each call must return memory of its own"
            so_far.mismatch = {"output": "output", "kind": "output overwritten", "detail": detail}
            break
    return so_far


def _all_there(current: trial.Trial, specs: list[tree.TensorSpec]) -> bool:
    wanted = [(leaf.spec.shape, leaf.spec.dtype) for leaf in current.expected.leaves]
    return wanted == [(spec.shape, spec.dtype) for spec in specs]


def _tier(candidate: Candidate, known: Known, current: trial.Trial) -> str:
    """Return the tier of arithmetic that the errors of a trial look like."""
    leaves = current.expected.leaves
    views = tree.views(candidate.station.outputs[0], [leaf.spec for leaf in leaves])
    if current.block is not None:  # of a large answer only some rows are known so precisely
        views = [view.index_select(0, current.block.which) for view in views]
        current = current.block.trial
        leaves = current.expected.leaves
    found = "PRECISION_UNSPECIFIED"
    twins: dict[str, list[torch.Tensor]] = {}
    for index, (leaf, value) in enumerate(zip(leaves, views, strict=True)):
        if not leaf.has_twin or not value.is_floating_point():
            continue  # no float64 twin
        stored = of_dtype(leaf.value.dtype)
        own = rms(leaf.value.double() - leaf.truth)
        error = rms(value.double() - leaf.truth)
        tier = stored
        if error > _CONSPICUOUS * own and stored in ("PRECISION_FP64", "PRECISION_FP32"):
            for name in RECOGNISED:
                if name not in twins:
                    twins[name] = _twin(candidate, known, current, name)
            tiers = [(name, rms(twin[index] - leaf.truth)) for name, twin in twins.items() if twin]
            tier = recognise(error, own, tiers, stored)
            # Rounding is everywhere about as large; an answer that is far off in places is wrong in another way.
            if tier != stored and _largest(value, leaf.truth) > _EXCESS * _largest(twins[tier][index], leaf.truth):
                tier = stored
        if _rank(tier) > _rank(found):
            found = tier
    return found


def _largest(value: torch.Tensor, truth: torch.Tensor) -> float:
    return float((value.double() - truth).abs().max()) if value.numel() else 0.0


def _twin(candidate: Candidate, known: Known, current: trial.Trial, name: str) -> list[torch.Tensor]:
    try:
        return trial.twin_at(known.problem, candidate.device, current, name) or []
    except (ReferenceFailure, RuntimeError):  # a reference without a rounded form: its tiers cannot be told
        return []


_ORDER = ("UNSPECIFIED", "FP64", "FP32", "TF32", "FP16", "BF16", "FP8")


def _rank(precision: str) -> int:
    return _ORDER.index(precision.removeprefix("PRECISION_"))


def _explain(candidate: Candidate, known: Known) -> None:
    """Add what may help to understand a wrong answer."""
    record, spec = candidate.record, candidate.spec
    allowed = spec.allowed_precision
    if _rank(record.precision) > max(_rank(allowed), _rank("PRECISION_FP32")):
        name = record.precision.removeprefix("PRECISION_").lower()
        record.find("S23", "SEVERITY_INFO", f"the errors look like {name} arithmetic; allowed_precision can allow it")
    missing = len(known.problem.state()) - record.parameters_perturbed
    if missing > 0:
        evidence = (
            f"the reference's {', '.join(sorted(known.problem.state()))[:200]} hold secret values, and {missing} of them"
            " have no counterpart among the candidate's parameters and buffers"
        )
        record.find("S29", "SEVERITY_INFO", evidence)

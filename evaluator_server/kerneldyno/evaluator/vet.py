"""Vetting of problems: can a problem in KernelBench's form tell a kernel from a lazy answer? For `kerneldyno vet`.

It executes references, which are trusted, and no candidate. It tries a set of lazy answers
(`judge/problems/mutants.py`) on a problem's own trials: under the judge's rule without and with stress, and under
`allclose` as the public benchmark uses it. The examination of the problem is the judge's own code
(`judge/problems/examination.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import secrets
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from kerneldyno.rpc.source import without_mark

from .devices import open_device
from .devices.base import Device
from .judge.comparison.structures import same
from .judge.problems import trial
from .judge.problems.examination import Examination, examine, right, surviving
from .judge.problems.mutants import MUTANTS, Mutant
from .judge.problems.stress import Stress
from .shared.enums import Preset
from .shared.reference_failure import ReferenceFailure
from .shared.running_problem import RunningProblem
from .shared.spec import (
    CandidateSpec,
    ChecksSpec,
    EvalSpec,
    InspectionSpec,
    Limits,
    ProblemSpec,
    Rules,
    TimingSpec,
    ToleranceRule,
)
from .toolkits.local import build_local

#: Nominal trials that a mutant must pass before it counts as accepted and not as lucky: as many as candidates get.
_NOMINAL_TRIALS = 5
#: Trials for each kind of stress.
_STRESS_TRIALS = 2
#: Tolerances of the public benchmark: atol and rtol for float32, and for half precision.
_PUBLIC = {"allclose_1e4": 1e-4, "allclose_1e2": 1e-2}
#: Maximum number of mutants named in a verdict's sentence. The table has all of them.
_NAMED = 4
_DEFAULTS = "default parameters"

STRONG, WITH_STRESS, WEAK, RANDOM, BROKEN = "strong", "strong only with stress", "weak", "random", "broken"
_ADVICE = {
    "build": "define class Model and get_inputs(), and get_init_inputs() where Model takes arguments",
    "inputs": "get_inputs() must return a list of plain tensors, numbers and strings",
    "reference": "Model must run on what get_inputs() returns, on this device, and return finite tensors",
}


@dataclass(slots=True)
class Row:
    """One mutant and the rules that accept it."""

    mutant: str
    #: The judge's rule accepts it on nominal inputs.
    nominal: bool = False
    #: The stress that detects it, or None if it passes all. Tried only if it passes nominally.
    told_by: str | None = None
    with_stress: bool = False
    allclose_1e4: bool = False
    allclose_1e2: bool = False
    #: `precision` if the mutant only rounds; `operator` if stress shows that the operator does no more than the mutant.
    kind: str = "lazy"

    @property
    def passes(self) -> bool:
        """Return True if any rule accepts the mutant."""
        return self.nominal or self.allclose_1e4 or self.allclose_1e2


@dataclass(frozen=True, slots=True)
class Failure:
    """What a reference raised, and in which stage."""

    stage: str
    type: str
    message: str
    traceback: str


@dataclass(slots=True)
class Report:
    """What is known about one problem."""

    path: str
    verdict: str = BROKEN
    advice: str = ""
    error: Failure | None = None
    #: Largest error of the reference against its float64 twin, relative to the typical element; None without a twin.
    noise_floor: float | None = None
    inputs: list[str] = field(default_factory=list)
    stress: list[str] = field(default_factory=list)
    constants_replaced: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def lazy(self, rule: str) -> list[str]:
        """Return the lazy mutants that `rule` (a field of Row) accepts but should not."""
        return [row.mutant for row in self.rows if row.kind == "lazy" and getattr(row, rule)]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of this report."""
        weak = {rule: self.lazy(rule) for rule in ("nominal", "with_stress", *_PUBLIC)}
        tiers = {row.mutant: not row.with_stress for row in self.rows if row.kind == "precision"}
        return asdict(self) | {"weak": weak, "precision_told_apart": tiers}


def vet(path: Path, device: Device, rule: ToleranceRule) -> Report:
    """Vet one file. The report contains the faults of the problem itself.

    Raises:
        OSError: The file cannot be read.
        UnicodeDecodeError: The file is not UTF-8.
    """
    report = Report(str(path))
    spec = _spec(without_mark(path.read_text(encoding="utf-8")), rule)
    try:
        seed = secrets.randbits(31)
        problem, plain = (
            build_local(each, device, seed) for each in (spec.problem, replace(spec.problem, secret_constants=False))
        )
        found = examine(problem, spec, device)
        if _describe(report, problem, spec, device, found):
            _try_mutants(report, problem, plain, spec, device, found)
        report.verdict, report.advice = _verdict(report, found)
        _look_for_randomness(report, problem, spec, device)
    except ReferenceFailure as failure:
        if isinstance(failure.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from failure
        _broken(report, failure)
    return report


def _spec(source: str, rule: ToleranceRule) -> EvalSpec:
    return EvalSpec(
        ProblemSpec("kernelbench", source, "Model", secret_constants=True),
        CandidateSpec("", "torch", Limits(0, 0, 0, 0)),
        ChecksSpec(_NOMINAL_TRIALS, Rules(rule)),
        TimingSpec(wanted=False, perf_trials=0, warmup=0),
        InspectionSpec(profile=False),
    )


def _under(spec: EvalSpec, rules: Rules) -> EvalSpec:
    return replace(spec, checks=replace(spec.checks, rules=rules))


def _broken(report: Report, failure: ReferenceFailure) -> None:
    error = failure.error
    report.error = Failure(failure.stage, error.type, error.message, error.traceback)
    report.verdict, report.advice = BROKEN, _ADVICE.get(failure.stage, "")


def _describe(report: Report, problem: RunningProblem, spec: EvalSpec, device: Device, found: Examination) -> bool:
    """Describe the problem in the report. Return True if it returns tensors, from which mutants can be made."""
    first, second = (trial.prepare(problem, spec, device, 0) for _ in range(2))
    leaves = first.expected.leaves
    if leaves and not any(bool(torch.isfinite(leaf.value).any()) for leaf in leaves):
        error = ValueError("no element of the output is finite, on the problem's own inputs")
        raise ReferenceFailure("reference", error)
    twins = [leaf for leaf in leaves if leaf.has_twin]
    if twins:
        report.noise_floor = max(leaf.noise / max(leaf.typical, 1e-300) for leaf in twins)
    for tensor, what in zip(first.inputs.tensors(), found.traits, strict=True):
        traits = [name for name in ("symmetric", "simplex", "halves", "pairs") if getattr(what, name)]
        kept = "left alone" if not what.free else f"stressed, kept {' and '.join(traits)}" if traits else "stressed"
        shape = "x".join(map(str, tensor.shape)) or "scalar"
        report.inputs.append(f"{shape} {str(tensor.dtype).removeprefix('torch.')}: {kept}")
    report.stress = [_stress_name(kind) for kind in found.held]
    report.constants_replaced = sorted(problem.constants)
    if not leaves:
        report.notes.append("the reference returns no tensor: only numbers are compared, and no mutants are made")
    if [leaf.spec for leaf in second.expected.leaves] != [leaf.spec for leaf in leaves]:
        report.notes.append("outputs differ in shape between draws: few mutants can be made")
    if torch.equal(first.inputs.master, second.inputs.master):
        report.notes.append("get_inputs() returns the same values each time: draw them at random")
    if not found.held:
        report.notes.append("no kind of stress can be used: only nominal trials tell candidates apart")
    return bool(leaves)


def _stress_name(kind: Stress) -> str:
    strength = "" if kind.amplitude == 1.0 else f" x{kind.amplitude:.3g}"
    return f"{kind.kind}{strength}" if kind.signed else f"{kind.kind}{strength} (signs kept)"


def _try_mutants(
    report: Report, problem: RunningProblem, plain: RunningProblem, spec: EvalSpec, device: Device, found: Examination
) -> None:
    rows = {mutant.name: Row(mutant.name, kind="lazy" if mutant.bits is None else "precision") for mutant in MUTANTS}
    passing = _passing(MUTANTS, problem, spec, device)
    for mutant in passing:
        rows[mutant.name].nominal = True
    for kind in found.held:
        left = _passing(passing, problem, spec, device, found, kind)
        for mutant in set(passing) - set(left):
            rows[mutant.name].told_by = kind.kind
        passing = left
    for mutant in passing:
        rows[mutant.name].with_stress = True
        if mutant.whole and found.held:
            rows[mutant.name].kind = "operator"
    # The public benchmark has neither stress nor secret parameters.
    as_public = list(MUTANTS)
    for rule, size in sorted(_PUBLIC.items(), key=lambda pair: -pair[1]):
        tolerance = ToleranceRule(Preset.ALLCLOSE, size, size)
        as_public = _passing(as_public, plain, _under(spec, Rules(tolerance, stress_inputs=False)), device)
        for mutant in as_public:
            setattr(rows[mutant.name], rule, True)
    report.rows = list(rows.values())
    if problem.constants:
        report.rows.append(_try_defaults(problem, plain, spec, device, found))


def _passing(
    tried: Sequence[Mutant],
    problem: RunningProblem,
    spec: EvalSpec,
    device: Device,
    found: Examination | None = None,
    kind: Stress | None = None,
) -> list[Mutant]:
    """Return the mutants that pass all trials: the nominal ones, or those of one kind of stress."""
    vary = found.vary(kind, device) if found is not None and kind is not None else None
    passing = list(tried)
    if not passing:
        return []
    before = trial.prepare(problem, spec, device, 0, vary)
    for _ in range(_NOMINAL_TRIALS if kind is None else _STRESS_TRIALS):
        if not passing:
            break
        current = trial.prepare(problem, spec, device, 0, vary)
        passing = surviving(passing, problem, spec, device, current, before, unmade=kind is not None)
        before = current
    return passing


def _try_defaults(
    problem: RunningProblem, plain: RunningProblem, spec: EvalSpec, device: Device, found: Examination
) -> Row:
    """Try the parameters as they were constructed, where the judge has replaced them by secret values."""
    row = Row(_DEFAULTS, allclose_1e4=True, allclose_1e2=True)  # these rules have no secret values
    for kind in (None, *found.held):
        vary = None if kind is None else found.vary(kind, device)
        current = trial.prepare(problem, spec, device, 0, vary)
        if not right(current, spec, current.inputs.answered_by(plain, 0, current.seed).values):
            row.told_by = None if kind is None else kind.kind
            return row
        row.nominal = True
    row.with_stress = True
    row.kind = "operator"  # e.g. statistics that training ignores, or biases that a norm removes
    return row


def _look_for_randomness(report: Report, problem: RunningProblem, spec: EvalSpec, device: Device) -> None:
    current = trial.prepare(problem, spec, device, 0)
    for seed, why in (
        (current.seed, "the reference answers the same inputs differently, whatever its seed"),
        (secrets.randbits(31), "the reference draws random numbers: only candidates that draw the same ones are right"),
    ):
        again = current.inputs.answered_by(problem, 0, seed)
        if not same(again.structure, current.expected.structure) or not right(current, spec, again.values):
            report.verdict, report.advice = RANDOM, why
            return


def _verdict(report: Report, found: Examination) -> tuple[str, str]:
    weak = report.lazy("with_stress")
    if weak or not (report.rows or found.varies):
        names = ", ".join(weak[:_NAMED]) or "another draw's answer"
        more = f" and {len(weak) - _NAMED} more" if len(weak) > _NAMED else ""
        return WEAK, f"it cannot tell a kernel from {names}{more}; change its inputs or drop it"
    if report.lazy("nominal"):
        return WITH_STRESS, "keep stress_inputs on"
    return STRONG, ""


def _lines(report: Report) -> list[str]:
    """Return the lines that show a report to a person."""
    lines = [f"{report.path}: {report.verdict.upper()}" + (f": {report.advice}" if report.advice else "")]
    if report.error is not None:
        lines.append(f"  {report.error.stage}: {report.error.type}: {report.error.message}")
        lines += [f"  | {line}" for line in report.error.traceback.splitlines()]
        return lines
    floor = "no float64 twin" if report.noise_floor is None else f"{report.noise_floor:.2g} of a typical element"
    facts = [
        ("noise floor", floor),
        ("inputs", "; ".join(report.inputs) or "none"),
        ("stress", ", ".join(report.stress) or "none"),
        ("constants", ", ".join(report.constants_replaced) or "none"),
        ("allclose", _public(report)),
        *(("note", note) for note in report.notes),
    ]
    lines += [f"  {name:<12} {value}" for name, value in facts]
    shown = [row for row in report.rows if row.passes]
    if shown:
        lines.append(f"  {'passes for an answer':<40}{'judge':<8}{'+ stress':<12}{'1e-4':<8}1e-2")
    for row in shown:
        stressed = "" if not row.nominal else f"no: {row.told_by}" if row.told_by else "YES"
        cells = [f"{'yes' if passed else 'no':<8}" for passed in (row.nominal, row.allclose_1e4, row.allclose_1e2)]
        kind = {"precision": "(precision)", "operator": "(is the operator)"}.get(row.kind, "")
        lines.append(f"  {row.mutant:<40}{cells[0]}{stressed:<12}{''.join(cells[1:])}{kind}".rstrip())
    if report.rows:
        others = f"; not by every one: {', '.join(row.mutant for row in shown)}" if shown else ""
        count = len(report.rows) - len(shown)
        lines.append(f"  {count} of {len(report.rows)} mutants are told apart by every rule{others}")
    return lines


def _public(report: Report) -> str:
    """Return how the public benchmark's rule handles a problem, in words."""
    if not report.rows:
        return "not tried"
    counts = {size: len(report.lazy(rule)) for rule, size in _PUBLIC.items()}
    found = ", ".join(f"{count} at 1e-{-round(math.log10(size))}" for size, count in counts.items())
    return f"WEAK; lazy mutants that pass: {found}" if any(counts.values()) else "strong"


def _choose(name: str) -> Device:
    if name == "auto":
        name = "cuda:0" if torch.cuda.is_available() else "cpu"
    return open_device(name)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kerneldyno vet", description="Vet problems in KernelBench's form.")
    parser.add_argument("problems", nargs="+", type=Path, metavar="PROBLEM.py")
    parser.add_argument("--device", default="auto", metavar="auto|cpu|cuda:N")
    parser.add_argument("--preset", default="calibrated", choices=("calibrated", "allclose", "loose"))
    parser.add_argument("--rtol", type=float, help="of --preset allclose")
    parser.add_argument("--atol", type=float, help="of --preset allclose")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parsed = parser.parse_args(arguments)
    if parsed.preset != "allclose" and (parsed.rtol is not None or parsed.atol is not None):
        parser.error("--rtol and --atol need --preset allclose")
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Vet the files named by `arguments`. Return 0 if all are strong, 1 if one is not, 2 if one cannot be read."""
    parsed = _parse(arguments)
    rule = ToleranceRule(Preset[parsed.preset.upper()], parsed.atol, parsed.rtol)
    try:
        device = _choose(parsed.device)
        device.warm_up()
    except (ValueError, RuntimeError, OSError) as error:
        print(f"kerneldyno: device {parsed.device}: {error}", file=sys.stderr)
        return 2
    reports = []
    for path in parsed.problems:
        try:
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # hide what references print
                report = vet(path, device, rule)
        except (OSError, UnicodeDecodeError) as error:
            print(f"kerneldyno: cannot read {path}: {error}", file=sys.stderr)
            return 2
        reports.append(report)
        if not parsed.json:
            print("\n".join(_lines(report)), flush=True)
    counts = Counter(report.verdict for report in reports)
    if parsed.json:
        print(json.dumps({"verdicts": counts, "problems": [report.to_json() for report in reports]}, indent=2))
    else:
        print("; ".join(f"{counts[verdict]} {verdict}" for verdict in (STRONG, WITH_STRESS, WEAK, RANDOM, BROKEN)))
    return 0 if all(report.verdict in (STRONG, WITH_STRESS) for report in reports) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

"""Measure the value of each kind of stress input: the lazy answers that it detects, and those that only it detects.

    python -m benchmarks.stress_kinds FILE or FOLDER ... [--device cpu] [--draws 3] [--json FILE]

Each file is a problem in KernelBench's form. A lazy answer is a mutant of the bank (judge/problems/mutants.py) that
passes the nominal trials; mutants that only round are left out. A kind detects it if one of its draws does, and alone
if no other kind detects it. corpus/honest, corpus/field and tests/evaluator/test_explained.py check the opposite:
honest kernels that a kind refuses.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections import Counter
from pathlib import Path

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.devices.base import Device
from kerneldyno.evaluator.judge.problems import stress, trial
from kerneldyno.evaluator.judge.problems.examination import Examination, examine, surviving
from kerneldyno.evaluator.judge.problems.mutants import MUTANTS, Mutant
from kerneldyno.evaluator.judge.request import read_request
from kerneldyno.evaluator.shared.reference_failure import ReferenceFailure
from kerneldyno.evaluator.shared.running_problem import RunningProblem
from kerneldyno.evaluator.shared.spec import EvalSpec
from kerneldyno.evaluator.toolkits.local import build_local
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.rpc.validation import effective

LAZY = [mutant for mutant in MUTANTS if mutant.bits is None]


def main() -> int:
    """Run the command; return exit status 1 if no problem could be examined."""
    parser = argparse.ArgumentParser(description="Measure the value of each kind of stress input.")
    parser.add_argument("problems", nargs="+", type=Path, help="files or folders")
    parser.add_argument("--device", default="cpu:0")
    parser.add_argument("--draws", type=int, default=3, help="draws of each kind (default: 3)")
    parser.add_argument("--json", type=Path, help="also write the figures of every problem to this file")
    options = parser.parse_args()
    files = [path for given in options.problems for path in (sorted(given.glob("*.py")) if given.is_dir() else [given])]
    device = open_device(options.device)
    found: dict[str, dict[str, list[str]]] = {}
    passing = 0
    for path in files:
        try:
            mutants, told = worth(path.read_text(), device, options.draws)
        except (ReferenceFailure, OSError, ValueError) as error:
            print(f"{path.name}: left out: {error}"[:200], file=sys.stderr)
            continue
        passing += len(mutants)
        found[path.stem] = told
    print(f"{len(found)} problems, {passing} lazy answers that pass nominal trials\n")
    print("| kind | problems that bear it | lazy answers told apart | by it alone |\n| --- | ---: | ---: | ---: |")
    for kind, _ in stress.KINDS:
        bearing = [told for told in found.values() if kind in told]
        alone = sum(len(_alone(kind, told)) for told in bearing)
        print(f"| `{kind}` | {len(bearing)} | {sum(len(told[kind]) for told in bearing)} | {alone} |")
    together = sum(len({name for names in told.values() for name in names}) for told in found.values())
    print(f"| all of them | {sum(map(bool, found.values()))} | {together} | |")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if found else 1


def worth(source: str, device: Device, draws: int) -> tuple[list[Mutant], dict[str, list[str]]]:
    """Return the lazy mutants that pass a problem's nominal trials, and for each usable kind those that it detects.

    Raises ReferenceFailure if the reference fails.
    """
    request = request_from_json({"id": "a", "reference_code": source, "kernel_code": "a", "backend": "torch"})
    spec = read_request(effective(request))
    problem = build_local(spec.problem, device, 7)
    examination = examine(problem, spec, device)
    passing: list[Mutant] = list(LAZY)
    for _ in range(draws):
        passing = _passing(passing, problem, spec, device, examination, None)
    told = {}
    for kind in examination.held:
        left = passing
        for _ in range(draws):
            left = _passing(left, problem, spec, device, examination, kind)
        told[kind.kind] = [mutant.name for mutant in passing if mutant not in left]
    return passing, told


def _passing(
    tried: list[Mutant],
    problem: RunningProblem,
    spec: EvalSpec,
    device: Device,
    examination: Examination,
    kind: stress.Stress | None,
) -> list[Mutant]:
    """Return those of `tried` that pass one trial; all, if no trial was possible."""
    vary = None if kind is None else examination.vary(kind, device)
    with contextlib.suppress(ReferenceFailure, ValueError):
        this, other = (trial.prepare(problem, spec, device, 0, vary) for _ in range(2))
        if examination.can_tell(this.expected):
            # A mutant that nominal inputs cannot make is no answer; a stress that cannot make one does not detect it.
            return surviving(tried, problem, spec, device, this, other, unmade=kind is not None)
    return tried


def _alone(kind: str, told: dict[str, list[str]]) -> list[str]:
    counts = Counter(name for names in told.values() for name in names)
    return [name for name in told[kind] if counts[name] == 1]


if __name__ == "__main__":
    sys.exit(main())

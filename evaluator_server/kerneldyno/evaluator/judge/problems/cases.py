"""Fixed cases of a problem: what they are called, and the memory of those that are checked and not timed.

In each process number 0 is the case that is timed there. The plan of memory is made for that case; the others are called
one by one, so the arenas need room for one of them at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...devices.base import Device
from ...shared.running_problem import RunningProblem
from ...shared.spec import EvalSpec
from ..memory.footprint import Footprint
from . import trial
from .inputs import draw


@dataclass(frozen=True, slots=True)
class Case:
    """One of several cases: its name, its number among all of them, counted from 1, and how many there are."""

    name: str
    number: int
    total: int


def case_of(problem: RunningProblem, spec: EvalSpec, number: int) -> Case | None:
    """Return the case of trial `number`; None if the problem has no cases, or one only."""
    total = len(problem.workloads)
    if problem.cases is None or not total:
        return None
    at = (spec.problem.workload + number) % total
    return Case(problem.workloads[at][0], at + 1, total)


def with_all_cases(own: Footprint, problem: RunningProblem, spec: EvalSpec, device: Device) -> Footprint:
    """Return the footprint of a problem if `own` is that of its number 0 alone. Raises ReferenceFailure."""
    most, held, widest_inputs, widest_outputs = own.inputs + own.working, own.inputs + own.outputs, 0, 0
    for number in range(1, problem.cases or 1):
        inputs = draw(problem, device, number)
        outputs = trial.answer(problem, spec, device, number, inputs, trial.UNJUDGED).slot_bytes
        most = max(most, inputs.set_bytes + 2 * (inputs.set_bytes + outputs))
        held += inputs.set_bytes + outputs
        widest_inputs, widest_outputs = max(widest_inputs, inputs.set_bytes), max(widest_outputs, outputs)
    if not widest_inputs:
        return own
    return replace(
        own, working=most - own.inputs, widest_inputs=widest_inputs, widest_outputs=widest_outputs, held=held
    )

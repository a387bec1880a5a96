"""Examining a problem, once: which stress inputs it bears, and whether it can tell a kernel from a shrug.

Kept with the problem. A kind of stress is used only where the reference itself stays finite and close to its float64 twin,
at the strongest amplitude at which it does. A problem is weak in a mutant's sense when that mutant passes every trial that
candidates get; results of weak problems say so (finding D06).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from .. import tree
from ..devices.base import Device
from ..spec import EvalSpec
from ..toolkits import Problem, ReferenceFailure
from . import stress, trial, verdict
from .compare import Leaf, relative_tolerance
from .mutants import Material, mutants

#: A stressed reference may be off from its twin by this share of the tolerance: on inputs on which it loses more digits,
#: an honest candidate that adds up in another order could lose them elsewhere.
_CONDITION = 0.25
#: Kinds that make equal elements, which argmax and its like may break in any way.
_MAKES_TIES = {"sparse"}
#: Mutants that keep every bit of the work and only some of the precision: a label of their own.
PRECISION_MUTANTS = {"bfloat16 operands"}


@dataclass(slots=True)
class Examination:
    """What is known about a problem."""

    traits: list[stress.Trait]
    #: Kinds of stress that its trials use.
    held: list[stress.Stress] = field(default_factory=list)
    #: Whether two draws have different right answers, by the problem's own tolerance.
    varies: bool = True
    #: Mutants that pass nominal trials, and those that pass all.
    pass_nominal: list[str] = field(default_factory=list)
    pass_all: list[str] = field(default_factory=list)

    def vary(self, kind: stress.Stress, device: Device) -> trial.Vary:
        """Return the change that makes stressed inputs of nominal ones."""

        def change(tensors: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
            return stress.apply(kind, tensors, self.traits, _generator(device, seed))

        return change

    def season(self, device: Device) -> trial.Vary | None:
        """Return the change that timed inputs get: a few secret elements, or None where the problem bears none."""
        if not self.held:
            return None

        def change(tensors: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
            own = [tensor.clone() for tensor in tensors]
            stress.season(own, self.traits, self.held, _generator(device, seed))
            return own

        return change


def _generator(device: Device, seed: int) -> torch.Generator:
    return torch.Generator(device.torch_device).manual_seed(seed ^ 0x5EA50)


def examine(problem: Problem, spec: EvalSpec, device: Device) -> Examination:
    """Examine `problem`. Raises ReferenceFailure only when the reference fails on its own inputs."""
    nominal = trial.prepare(problem, spec, device, 0)
    found = Examination([stress.trait(tensor) for tensor in nominal.inputs.tensors()])
    if problem.cases is not None:
        return found
    if spec.stress_inputs and any(trait.free for trait in found.traits):
        _hold(problem, spec, device, nominal, found)
    _look_for_weakness(problem, spec, device, nominal, found)
    return found


def _hold(problem: Problem, spec: EvalSpec, device: Device, nominal: trial.Trial, found: Examination) -> None:
    discrete = any(not leaf.value.is_floating_point() for leaf in nominal.expected.leaves)
    limits = [
        max(_CONDITION * relative_tolerance(leaf.value.dtype), 3 * _relative_noise(leaf))
        for leaf in nominal.expected.leaves
    ]
    for kind, amplitudes in stress.KINDS:
        if discrete and kind in _MAKES_TIES:
            continue
        candidates = [stress.Stress(kind, size, signed) for size in amplitudes for signed in (True, False)]
        for candidate in candidates:
            if kind == "signs" and not candidate.signed:
                continue
            if _bears(problem, spec, device, found, candidate, limits):
                found.held.append(candidate)
                break


def _bears(
    problem: Problem,
    spec: EvalSpec,
    device: Device,
    found: Examination,
    candidate: stress.Stress,
    limits: Sequence[float],
) -> bool:
    """Say whether the reference stays finite and as precise as it is on nominal inputs, or precise enough."""
    try:
        for _ in range(2):
            tried = trial.prepare(problem, spec, device, 0, found.vary(candidate, device))
            for leaf, limit in zip(tried.expected.leaves, limits, strict=True):
                if not bool(torch.isfinite(leaf.value).all()) or _relative_noise(leaf) > limit:
                    return False
    except (ReferenceFailure, ValueError):
        return False
    return True


def _relative_noise(leaf: Leaf) -> float:
    """Return the reference's largest error against its twin, relative to the element and the typical size of elements."""
    if leaf.truth is leaf.value or not leaf.value.numel():
        return 0.0
    truth = leaf.truth.double()
    return float(((leaf.value.double() - truth).abs() / (truth.abs() + leaf.typical).clamp_min(1e-300)).max())


def _look_for_weakness(
    problem: Problem, spec: EvalSpec, device: Device, nominal: trial.Trial, found: Examination
) -> None:
    other = trial.prepare(problem, spec, device, 0)
    if [leaf.spec for leaf in other.expected.leaves] != [leaf.spec for leaf in nominal.expected.leaves]:
        return  # outputs of varying shape: nothing to compare with
    found.varies = _right(nominal, spec, [leaf.value for leaf in other.expected.leaves]) is False
    passing = _passing(problem, spec, device, nominal, other)
    found.pass_nominal = sorted(passing)
    for kind in found.held:
        if not passing:
            break
        stressed, another = (trial.prepare(problem, spec, device, 0, found.vary(kind, device)) for _ in range(2))
        passing &= _passing(problem, spec, device, stressed, another, only=passing)
    found.pass_all = sorted(passing)


def _passing(
    problem: Problem,
    spec: EvalSpec,
    device: Device,
    this: trial.Trial,
    other: trial.Trial,
    only: set[str] | None = None,
) -> set[str]:
    def rerun(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        region = this.inputs.master.clone()
        for view, tensor in zip(tree.views(region, this.inputs.specs), tensors, strict=True):
            view.copy_(tensor)
        _, values = tree.flatten(problem.expected(0, this.inputs.arguments(region, device), this.seed))
        return values

    material = Material(
        this.inputs.tensors(),
        [leaf.value for leaf in this.expected.leaves],
        other.inputs.tensors(),
        [leaf.value for leaf in other.expected.leaves],
        rerun,
    )
    passing: set[str] = set()
    iterator = mutants(material)
    while True:
        try:
            name, leaves = next(iterator)
        except StopIteration:
            return passing
        except Exception:  # the reference refuses a mutant's inputs: then no candidate gets far with them either
            return passing
        if (only is None or name in only) and _right(this, spec, leaves):
            passing.add(name)


def _right(this: trial.Trial, spec: EvalSpec, leaves: Sequence[torch.Tensor]) -> bool:
    slot = torch.zeros(this.slot_bytes, dtype=torch.uint8, device=this.inputs.master.device)
    specs = [leaf.spec for leaf in this.expected.leaves]
    try:
        for view, leaf in zip(tree.views(slot, specs), leaves, strict=True):
            view.copy_(leaf)
    except (RuntimeError, ValueError):
        return False
    return trial.judge_bytes(this, spec, slot).mismatch is None


def warnings(found: Examination) -> list[verdict.Result]:
    """Return the findings that results of a weak problem carry."""
    weak = [name for name in found.pass_all if name not in PRECISION_MUTANTS]
    if weak:
        evidence = f"this problem cannot tell a kernel from {', '.join(weak)}"
        return [verdict.finding("D06", "SEVERITY_WARNING", evidence)]
    if found.pass_all:
        evidence = "this problem cannot tell float32 arithmetic from bfloat16 operands"
        return [verdict.finding("D06", "SEVERITY_INFO", evidence)]
    return []

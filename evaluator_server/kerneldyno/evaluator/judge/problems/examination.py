"""Examine a problem once: which stress inputs it tolerates, and whether it can detect lazy kernels.

The result is kept with the problem. A kind of stress is used only if the reference itself stays finite and close to its
float64 twin, and at the strongest amplitude for which that holds. A problem is weak if some mutant passes every trial
that candidates get; results of weak problems say so (finding D06).
"""

from __future__ import annotations

import functools
import itertools
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from kerneldyno.v1 import evaluation_pb2 as pb

from ...devices.base import Device
from ...shared import casting, small_floats, tree
from ...shared.reference_failure import ReferenceFailure
from ...shared.running_problem import Answering, Call, RunningProblem
from ...shared.spec import EvalSpec
from ..comparison.compare import Expected, compare, is_measured
from ..comparison.rules import relative_tolerance
from ..comparison.structures import same
from ..memory.together import trials_together
from ..results import verdict
from . import stress, trial
from .forms import OutputSizes
from .inputs import Vary
from .mutants import MUTANTS, Material, Mutant
from .side_by_side import raised, side_by_side
from .tiers import BITS

T = TypeVar("T")

#: A stressed reference may be off from its twin by this multiple of the relative tolerance. Candidates are allowed the
#: same error; but on inputs where the reference loses more than this, a trial could detect very little.
_CONDITION = 2.0
#: Answers in half precision must be smaller than its largest number by this factor: partial sums are larger than sums.
_HEADROOM = 16.0
#: Kinds that make equal elements; argmax and similar functions may choose among them in any way.
_MAKES_TIES = {"sparse"}
#: Mutants that do all of the work with less precision. They have a label of their own.
PRECISION_MUTANTS = {mutant.name for mutant in MUTANTS if mutant.bits is not None}
#: Number of elements that are compared before all are.
_GLANCE = 4096
#: Number of further draws before the judge says that answers are always the same.
_DRAWS = 8


@dataclass(slots=True)
class Examination:
    """What is known about a problem."""

    traits: list[stress.Trait]
    #: The precision in which the problem is posed: changed inputs are rounded to it (`shared/casting.py`).
    precision: int = 0
    #: Kinds of stress that its trials use.
    held: list[stress.Stress] = field(default_factory=list)
    #: For each leaf of the output, whether its noise can be measured on nominal inputs.
    noise_known: list[bool] = field(default_factory=list)
    #: The sizes of the outputs of its trials.
    sizes: OutputSizes = field(default_factory=OutputSizes)
    #: True if different draws have different right answers, by the problem's own tolerance.
    varies: bool = True
    #: Names of the mutants that pass nominal trials, and of those that pass all trials.
    pass_nominal: list[str] = field(default_factory=list)
    pass_all: list[str] = field(default_factory=list)

    def vary(self, kind: stress.Stress, device: Device) -> Vary:
        """Return the function that changes nominal inputs into stressed ones."""

        def change(tensors: Sequence[torch.Tensor], seed: int, targets: Sequence[torch.Tensor]) -> None:
            stress.apply(kind, tensors, self.traits, _generator(device, seed), targets)
            casting.round_(targets, self.precision)

        return change

    def drop(self, kind: str) -> None:
        """Forget a kind of stress that the reference does not bear after all."""
        self.held = [each for each in self.held if each.kind != kind]

    def can_tell(self, expected: Expected) -> bool:
        """Return True if the reference's noise is known on stressed inputs wherever it is known on nominal ones."""
        return all(leaf.noise_known for leaf, known in zip(expected.leaves, self.noise_known, strict=False) if known)

    def season(self, device: Device, data: torch.Tensor, specs: Sequence[tree.TensorSpec], draws: int) -> None:
        """Change a few secret elements in each of `draws` input sets, which lie one after the other in `data`."""
        if self.held:
            sets = tree.stacked(data, specs, draws)
            stress.season(sets, self.traits, self.held, _generator(device, secrets.randbits(31)))
            casting.round_((one for each in sets for one in each), self.precision)


def _generator(device: Device, seed: int) -> torch.Generator:
    return torch.Generator(device.torch_device).manual_seed(seed ^ 0x5EA50)


def examine(
    problem: RunningProblem, spec: EvalSpec, device: Device, traits: Sequence[stress.Trait] | None = None
) -> Examination:
    """Examine `problem`, or an excerpt of a large problem whose inputs have these `traits`.

    Raises ReferenceFailure only if the reference fails on its own inputs, or if memory runs out.
    """
    nominal = trial.prepare(problem, spec, device, 0)
    traits = traits or [stress.trait(tensor) for tensor in nominal.inputs.tensors()]
    found = Examination(list(traits), spec.problem.precision)
    found.sizes.note(nominal)
    found.noise_known = [leaf.noise_known for leaf in nominal.expected.leaves]
    if problem.cases is not None:
        return found
    passing = _look_for_weakness(problem, spec, device, nominal, found)
    if spec.checks.rules.stress_inputs and any(trait.free for trait in found.traits):
        passing = _hold(problem, spec, device, nominal, found, passing)
    # A line that is also right under stress is the operator itself. Allowed precision need not be detected.
    allowed = BITS.get(spec.checks.rules.allowed_precision, math.inf)
    found.pass_all = sorted(
        mutant.name
        for mutant in passing
        if not (mutant.whole and found.held) and (mutant.bits is None or mutant.bits < allowed)
    )
    return found


def _look_for_weakness(
    problem: RunningProblem, spec: EvalSpec, device: Device, nominal: trial.Trial, found: Examination
) -> list[Mutant]:
    """Return the mutants that pass a nominal trial."""
    other = trial.prepare(problem, spec, device, 0, like=trial.UNJUDGED)  # only its values are used
    found.sizes.note(other)
    if [leaf.spec for leaf in other.expected.leaves] != [leaf.spec for leaf in nominal.expected.leaves]:
        return []  # outputs have varying shapes: nothing to compare with
    found.varies = _varies(problem, spec, device, nominal, other)
    if not nominal.expected.leaves:
        return []  # the output has no tensors, and mutants are made of tensors
    passing = surviving(MUTANTS, problem, spec, device, nominal, other)
    found.pass_nominal = sorted(mutant.name for mutant in passing)
    return passing


def _varies(problem: RunningProblem, spec: EvalSpec, device: Device, nominal: trial.Trial, other: trial.Trial) -> bool:
    """Return True if answers differ between draws. Two counts or two indices may be the same by chance."""
    answers = itertools.chain([other], (trial.prepare(problem, spec, device, 0) for _ in range(_DRAWS)))
    return any(
        not same(answer.expected.structure, nominal.expected.structure)
        or not right(nominal, spec, [leaf.value for leaf in answer.expected.leaves])
        for answer in answers
    )


def _hold(
    problem: RunningProblem,
    spec: EvalSpec,
    device: Device,
    nominal: trial.Trial,
    found: Examination,
    passing: list[Mutant],
) -> list[Mutant]:
    """Find the stress that the problem tolerates. Return those of `passing` that also pass the stressed trials."""
    discrete = any(not is_measured(leaf.value) for leaf in nominal.expected.leaves)
    limits = [
        max(_CONDITION * relative_tolerance(leaf.value.dtype), 3 * leaf.relative_noise)
        for leaf in nominal.expected.leaves
    ]
    chosen = spec.checks.rules.stress_kinds
    kinds = [
        [
            stress.Stress(kind, size, signed)
            for size in amplitudes
            for signed in ((True,) if kind == "signs" else (True, False))
        ]
        for kind, amplitudes in stress.KINDS
        if (not chosen or stress.CONTRACT[kind] in chosen) and not (discrete and kind in _MAKES_TIES)
    ]

    def strongest(asked: Answering, candidates: Sequence[stress.Stress]) -> _Held | None:
        deaths = problem.deaths
        for candidate in candidates:
            this = other = _borne(asked, spec, device, found, candidate, limits)
            if this is not None and passing:
                # Mutants are made of two draws. The second draw's noise is not needed.
                other = _stressed(asked, spec, device, found, candidate, this.expected)
            if problem.deaths > deaths:
                return None  # it is judged without this kind
            if this is not None and other is not None:
                return _Held(candidate, this, other)
        return None

    at_once = _at_once(device, nominal)
    for begin in range(0, len(kinds), at_once):
        works = [functools.partial(strongest, candidates=candidates) for candidates in kinds[begin : begin + at_once]]
        for held in _each(problem, works, at_once):
            if held is not None:
                found.held.append(held.stress)
                passing = surviving(passing, problem, spec, device, held.this, held.other, unmade=True)
    return passing


@dataclass(frozen=True, slots=True)
class _Held:
    """A stress that the problem tolerates, and two draws under it; the same one twice if there are no mutants to try."""

    stress: stress.Stress
    this: trial.Trial
    other: trial.Trial


def _at_once(device: Device, example: trial.Trial) -> int:
    """Return how many such trials may be prepared together."""
    return max(1, trials_together(device, example.inputs.set_bytes, example.slot_bytes))


def _each(problem: RunningProblem, works: Sequence[Callable[[Answering], T]], at_once: int) -> list[T]:
    """Return what each of the `works` returns: done side by side, or one by one if that ends the problem's process.

    Only the process ends for that: the judge had asked for what no reference need bear.
    """
    deaths = problem.deaths
    try:
        found = side_by_side(problem, works, at_once)
    except ReferenceFailure:
        found = []
    problem.pardon(deaths)
    if not found:
        for work in works:
            found.append(work(problem))
            problem.pardon(deaths)
    return raised(found)


def _borne(
    problem: Answering,
    spec: EvalSpec,
    device: Device,
    found: Examination,
    candidate: stress.Stress,
    limits: Sequence[float],
) -> trial.Trial | None:
    """Return a trial under a stress, or None if the reference is not finite or less precise than `limits`."""
    tried = _stressed(problem, spec, device, found, candidate)
    if tried is None:
        return None
    leaves = tried.expected.leaves
    if any(_overflows_soon(leaf.value) for leaf in leaves):
        return None
    if len(leaves) != len(limits) or not found.can_tell(tried.expected):
        return None
    if any(leaf.relative_noise > limit for leaf, limit in zip(leaves, limits, strict=True)):
        return None
    return tried


def _overflows_soon(value: torch.Tensor) -> bool:
    """Return True if a half-precision answer is so large that an honest kernel's partial results may be infinite."""
    if value.dtype != torch.float16 or not value.numel():
        return False
    return float(value.abs().max()) > torch.finfo(torch.float16).max / _HEADROOM


def _stressed(
    problem: Answering,
    spec: EvalSpec,
    device: Device,
    found: Examination,
    candidate: stress.Stress,
    like: Expected | None = None,
) -> trial.Trial | None:
    """Return a trial under a stress, or None if the reference fails on it or is not finite. See `answer` for `like`."""
    vary = found.vary(candidate, device)
    try:
        prepared = trial.prepare(problem, spec, device, 0, vary, like=like, must_be_finite=True)
    except ReferenceFailure as failure:
        if failure.lacked_memory:
            raise  # lack of memory says nothing about the stress
        return None
    except (ValueError, trial.NotFiniteError):
        return None
    found.sizes.note(prepared)
    return prepared


def surviving(
    tried: Sequence[Mutant],
    problem: RunningProblem,
    spec: EvalSpec,
    device: Device,
    this: trial.Trial,
    other: trial.Trial,
    *,
    unmade: bool = False,
) -> list[Mutant]:
    """Return those of the `tried` mutants that pass `this` trial; `other` is another draw of the same kind.

    `unmade` says whether mutants pass that cannot be made of these draws: a trial that cannot try a mutant does not
    fail it.
    """

    def try_it(asked: Answering, mutant: Mutant) -> bool | None:
        return survives(mutant, materials(asked, this, other), this, spec)

    works = [functools.partial(try_it, mutant=mutant) for mutant in tried]
    passing, too_coarse = [], False
    for mutant, passes in zip(tried, _each(problem, works, _at_once(device, this)), strict=True):
        if mutant.bits is not None and too_coarse:
            continue  # a finer tier was already detected
        if unmade if passes is None else passes:
            passing.append(mutant)
        elif mutant.bits is not None and passes is not None:
            too_coarse = True
    return passing


def materials(problem: Answering, this: trial.Trial, other: trial.Trial) -> Material:
    """Return what mutants of `this` trial are made of."""

    def rerun(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        region = this.inputs.master.clone()
        for view, tensor in zip(tree.views(region, this.inputs.specs), tensors, strict=True):
            small_floats.raw(view).copy_(small_floats.raw(small_floats.narrowed(tensor, view.dtype)))
        return _plain(problem.answer(Call(0, this.inputs.structure, this.inputs.specs, region, this.seed)).values)

    return Material(
        _plain(this.inputs.tensors()),
        _plain([leaf.value for leaf in this.expected.leaves]),
        _plain(other.inputs.tensors()),
        _plain([leaf.value for leaf in other.expected.leaves]),
        rerun,
    )


def _plain(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors with which one can compute, since eight-bit formats cannot be used.

    Packed tensors are bytes to a mutant, as they are to torch.
    """
    return [
        small_floats.widened(tensor) if small_floats.can_vary(tensor.dtype) else small_floats.raw(tensor)
        for tensor in tensors
    ]


def survives(mutant: Mutant, material: Material, this: trial.Trial, spec: EvalSpec) -> bool | None:
    """Return whether a mutant passes, or None if it cannot be made."""
    try:
        leaves = mutant.make(material)
    except Exception:  # the reference refuses the mutant's inputs, so a candidate would fail, too
        return False
    if leaves is None:
        return None
    wanted = [leaf.value.dtype for leaf in this.expected.leaves]
    if len(wanted) == len(leaves):
        leaves = [_as(dtype, leaf) for dtype, leaf in zip(wanted, leaves, strict=True)]
    return right(this, spec, leaves)


def _as(dtype: torch.dtype, leaf: torch.Tensor) -> torch.Tensor:
    """Return a mutant's output in the format of the answer, if `_plain` had changed that."""
    if small_floats.can_vary(dtype):
        return small_floats.narrowed(leaf, dtype)
    return leaf.view(dtype) if small_floats.is_coded(dtype) and leaf.dtype == torch.uint8 else leaf


def right(this: trial.Trial, spec: EvalSpec, leaves: Sequence[torch.Tensor]) -> bool:
    """Return True if `leaves` would pass as the answer. Comparing a few elements of each usually suffices."""
    wanted = this.expected.leaves
    if [(leaf.value.shape, leaf.value.dtype) for leaf in wanted] != [(leaf.shape, leaf.dtype) for leaf in leaves]:
        return False
    if any(leaf.value.numel() > _GLANCE for leaf in wanted):
        few = [
            replace(leaf, spec=tree.describe(glance), value=glance, truth=_glance(leaf.truth))
            for leaf in wanted
            for glance in [_glance(leaf.value)]
        ]
        if not _matches(replace(this.expected, leaves=few), spec, [_glance(leaf) for leaf in leaves]):
            return False
    return _matches(this.expected, spec, leaves)


def _glance(leaf: torch.Tensor) -> torch.Tensor:
    flat = leaf.reshape(-1)
    return flat[:: max(1, len(flat) // _GLANCE)].contiguous()


def _matches(expected: Expected, spec: EvalSpec, leaves: Sequence[torch.Tensor]) -> bool:
    specs = [leaf.spec for leaf in expected.leaves]
    return compare(expected, expected.structure, specs, leaves, spec.checks.rules.tolerance).mismatch is None


def warnings(found: Examination) -> list[pb.Finding]:
    """Return the findings that results of a weak problem carry."""
    weak = [name for name in found.pass_all if name not in PRECISION_MUTANTS]
    if weak:
        evidence = f"this problem cannot tell a kernel from {', '.join(weak)}"
        return [verdict.finding("D06", pb.Finding.SEVERITY_WARNING, evidence)]
    if found.pass_all:
        evidence = f"this problem cannot tell float32 arithmetic from {', '.join(found.pass_all)}"
        return [verdict.finding("D06", pb.Finding.SEVERITY_INFO, evidence)]
    return []

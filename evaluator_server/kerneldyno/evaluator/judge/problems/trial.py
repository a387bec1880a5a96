"""One correctness trial: fresh secret inputs, what is right for them, and whether the candidate's answer is.

Inputs exist three times: `master` as drawn, a copy that the reference works on, and the runner's, in the shared arena. After
the call the runner's must equal what the reference left of its own, byte for byte, so that neither a changed input nor an
input that should have been changed goes unnoticed.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kerneldyno.v1 import evaluation_pb2 as pb

from ...devices.base import Device
from ...shared import small_floats, tree
from ...shared.precision import round_to
from ...shared.spec import EvalSpec
from ...toolkits import Problem, ReferenceFailure
from ..comparison.compare import Expected, all_finite, compare, expect, is_measured
from ..comparison.evidence import Comparison
from . import noise
from .excerpt import Excerpt
from .inputs import Inputs, Vary, draw
from .stress import Stress
from .tiers import BITS, coarser, rms

#: Errors that are this much smaller than those of a precision's rounding are not of that precision.
_CLEARLY_FINER = 0.3

#: A copy of inputs that is larger than this is given back where it holds what they hold, in bytes.
_WORTH_SHARING = 64 << 20

#: Has a copy of drawn inputs put to where a runner will work on them.
Stage = Callable[[Inputs], None]
#: Returns what becomes of an input tensor.
Change = Callable[[torch.Tensor], torch.Tensor]


class NotFiniteError(Exception):
    """The reference's answer is not finite, where it must be."""


@dataclass(slots=True)
class Trial:
    """Inputs and what a right candidate makes of them."""

    #: What the generators are set to before the call: never what the inputs were drawn under.
    seed: int
    inputs: Inputs
    after: torch.Tensor
    expected: Expected
    #: Whether the reference's output shares memory with its inputs, so that it changes when they do.
    aliased: bool
    #: Whether the reference changes its inputs, on any inputs whatever their values.
    mutates: bool = False
    #: Whether the runner has its inputs already.
    staged: bool = False
    #: Of a large problem, some rows, answered in float64 as well.
    block: Block | None = None
    #: What the inputs were changed by; None for nominal ones.
    stress: Stress | None = None

    def forget_inputs(self) -> None:
        """Give back the memory of what is not needed to compare an output."""
        self.inputs = self.inputs.outline()
        self.after = self.inputs.master
        self.block = None

    def outline(self) -> Trial:
        """Return what the trial is like, without its tensors: outputs cannot be compared with it any more."""
        nothing = self.inputs.outline()
        return Trial(self.seed, nothing, nothing.master, self.expected.outline(), self.aliased, self.mutates)

    @property
    def slot_bytes(self) -> int:
        """Size of one output slot in an arena."""
        return tree.layout([leaf.spec for leaf in self.expected.leaves])[1]


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of a trial: which, and a trial of theirs."""

    which: torch.Tensor
    trial: Trial


@dataclass(frozen=True, slots=True)
class Method:
    """How it is found out how far answers to a problem may be off."""

    #: How a large problem is cut: float64 twins are of some rows only.
    excerpt: Excerpt | None = None
    #: A precision that the reference may compute in by torch's settings, and does not in this process; UNSPECIFIED where
    #: it does.
    own_precision: pb.Precision.ValueType = pb.PRECISION_UNSPECIFIED

    def allowed(self, spec: EvalSpec, values: Sequence[torch.Tensor]) -> pb.Precision.ValueType:
        """Return the precision whose rounding is allowed beside float32's; UNSPECIFIED where none coarser is."""
        return spec.allowed_precision if coarser(spec.allowed_precision, values) else self.own_precision


def answer(
    problem: Problem,
    spec: EvalSpec,
    device: Device,
    number: int,
    inputs: Inputs,
    like: Expected | None = None,
    *,
    method: Method = Method(),
    spares: bool = False,
    stage: Stage | None = None,
    must_be_finite: bool = False,
) -> Trial:
    """Run the reference on `inputs`, and in float64 where it can.

    Args:
        like: an answer to inputs of the same kind. Its noise is taken over, and nothing is computed in float64.
        method: with an excerpt, only some rows are computed in float64.
        spares: whether the reference works on the inputs themselves, which it leaves as they are, and not on a copy.
        stage: has the inputs copied to where a runner will work on them before the reference does.
        must_be_finite: whether to raise NotFiniteError where the answer is not, before anything is computed in float64.

    Raises:
        ReferenceFailure: the reference has raised, or lacked memory.
    """
    seed = secrets.randbits(31)
    try:
        staged = stage is not None
        if stage is not None:
            stage(inputs)
        after = inputs.master if spares else inputs.master.clone()
        version = after._version
        structure, values = tree.flatten(problem.expected(number, inputs.arguments(after, device), seed))
        mutates = after._version != version
        first, last = after.data_ptr(), after.data_ptr() + after.numel()
        aliased = any(first <= value.data_ptr() < last for value in values)
        values = [small_floats.cloned(value.detach()) for value in values]
        if must_be_finite and not all(all_finite(value) for value in values):
            raise NotFiniteError
        if not mutates and after.numel() > _WORTH_SHARING and _same_bytes(after, inputs.master):
            after = inputs.master
        block, excerpt = None, method.excerpt
        if spec.tolerance.preset != pb.Tolerance.PRESET_CALIBRATED or like is not None:
            expected = expect(structure, values, None)
            if like is not None:
                expected = expected.as_noisy_as(like)
        elif excerpt is not None and excerpt.separable:
            which = excerpt.telling_rows(values)
            picked = excerpt.pick(inputs, which, device)
            rows = answer(problem, spec, device, number, picked, method=replace(method, excerpt=None))
            block = Block(which, rows)
            expected = noise.from_rows(structure, values, which, rows.expected)
        elif excerpt is not None:
            expected = noise.from_another_run(
                structure, values, problem, device, number, inputs, seed, method.allowed(spec, values)
            )
        else:
            allowed = method.allowed(spec, values)
            expected = _answered_precisely(problem, device, number, inputs, seed, structure, values, allowed)
        device.synchronize()
        return Trial(seed, inputs, after, expected, aliased, mutates, staged, block)
    except tree.UnsupportedValueError as error:
        raise ReferenceFailure("reference", TypeError(f"the reference returned {error}")) from error
    except (ReferenceFailure, NotFiniteError):
        raise
    except BaseException as error:
        raise ReferenceFailure("reference", error) from error


def _answered_precisely(
    problem: Problem,
    device: Device,
    number: int,
    inputs: Inputs,
    seed: int,
    structure: Any,
    values: list[torch.Tensor],
    allowed: pb.Precision.ValueType,
) -> Expected:
    """Make an Expected with the float64 twin of all; of another run where there is no such twin, or no memory for it."""
    try:
        precise = _twin(problem, device, inputs, seed)
        if precise is not None:
            move = noise.shake_of(values)
            # How far outputs move with their inputs is conditioning.
            others = [_twin(problem, device, inputs, seed, lambda tensor: noise.shaken(tensor, move)) or []]
            rounded: list[torch.Tensor] = []
            most = noise.STEP
            if allowed:
                bits = BITS[allowed]
                rounded = _twin(problem, device, inputs, seed, lambda tensor: round_to(tensor, bits), bits) or []
                most = math.inf
            device.synchronize()
            return expect(structure, values, precise, others, rounded, most)
    except torch.OutOfMemoryError:
        device.clear()
    if not any(is_measured(value) for value in values):
        return expect(structure, values, None)
    return noise.from_another_run(structure, values, problem, device, number, inputs, seed, allowed)


def prepare(
    problem: Problem,
    spec: EvalSpec,
    device: Device,
    number: int,
    vary: Vary | None = None,
    *,
    like: Expected | None = None,
    method: Method = Method(),
    spares: bool = False,
    stage: Stage | None = None,
    must_be_finite: bool = False,
) -> Trial:
    """Draw inputs and run the reference on them; the arguments are those of `answer`. Raises ReferenceFailure."""
    inputs = draw(problem, device, number, vary)
    prepared = answer(
        problem,
        spec,
        device,
        number,
        inputs,
        like,
        method=method,
        spares=spares,
        stage=stage,
        must_be_finite=must_be_finite,
    )
    if vary is not None:
        # Where most operands are zeros, or equal, rounding them changes nothing, and rounding what is made of them does.
        prepared.expected = prepared.expected.element_by_element()
    return prepared


def unused_precision(
    problem: Problem, spec: EvalSpec, device: Device, precision: pb.Precision.ValueType
) -> pb.Precision.ValueType:
    """Return `precision`, which the reference may compute in, where its answers are clearly finer; else UNSPECIFIED.

    Libraries choose an algorithm for each call, by the memory that is left, too: in another process the very same code may
    compute in the coarser precision, and is as right as here.
    """
    nominal = prepare(problem, spec, device, 0)
    rounded = twin_at(problem, device, nominal, precision)
    for at, leaf in enumerate(nominal.expected.leaves):
        if leaf.has_twin and rounded is not None and at < len(rounded) and rounded[at].shape == leaf.truth.shape:
            error, rounding = rms(leaf.value.double() - leaf.truth), rms(rounded[at] - leaf.truth)
            if error < _CLEARLY_FINER * rounding:
                return precision
    return pb.PRECISION_UNSPECIFIED


def twin_at(
    problem: Problem, device: Device, trial: Trial, precision: pb.Precision.ValueType, change: Change | None = None
) -> list[torch.Tensor] | None:
    """Return the float64 answer to a trial with every operand that comes from outside rounded to `precision`.

    Inputs may be changed in another way; the reference's own parameters are rounded in any case.
    """
    bits = BITS[precision]
    return _twin(problem, device, trial.inputs, trial.seed, change or (lambda tensor: round_to(tensor, bits)), bits)


def _twin(
    problem: Problem, device: Device, inputs: Inputs, seed: int, change: Change | None = None, bits: int | None = None
) -> list[torch.Tensor] | None:
    """Return the float64 answer for inputs of which the floating-point tensors went through `change`.

    With `bits` the reference's parameters are rounded to so many.
    """
    tensors = [change(tensor) if change is not None and is_measured(tensor) else tensor for tensor in inputs.tensors()]
    arguments = tree.rebuild(inputs.structure, tensors, device.torch_device)
    result = problem.precise(arguments, seed) if bits is None else problem.precise_at(arguments, seed, bits)
    return None if result is None else [value.detach() for value in tree.flatten(result)[1]]


def judge(
    trial: Trial, spec: EvalSpec, structure: Any, specs: Sequence[tree.TensorSpec], slot: torch.Tensor
) -> Comparison:
    """Compare what a runner says it returned, and what it left in `slot`, with what is right."""
    leaves = [leaf.spec for leaf in trial.expected.leaves]
    return compare(trial.expected, structure, specs, tree.views(slot, leaves), spec.tolerance)


def judge_bytes(trial: Trial, spec: EvalSpec, slot: torch.Tensor) -> Comparison:
    """The same for a slot of which the runner says nothing: it must hold what the expected structure describes."""
    return judge(trial, spec, trial.expected.structure, [leaf.spec for leaf in trial.expected.leaves], slot)


def inputs_intact(trial: Trial, arena_set: torch.Tensor) -> bool:
    """Say whether the runner's inputs are now what the reference made of its own."""
    return _same_bytes(arena_set[: trial.inputs.set_bytes], trial.after)


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Compare regions eight bytes at a time, which `tree.layout` aligns: that takes an eighth of the operations."""
    return bool(torch.equal(one.view(torch.int64), other.view(torch.int64)))

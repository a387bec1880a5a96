"""One correctness trial: fresh secret inputs, the right answer to them, and a check of the candidate's answer.

Inputs exist three times: `master` as drawn, the copy on which the reference works, and the runner's copy in the shared
arena. After the call the runner's copy must equal what the reference left in its own, byte for byte. So the judge
notices both a changed input and an input that should have been changed.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...devices.base import Device
from ...shared import tree
from ...shared.enums import Precision, Preset
from ...shared.precision import round_to
from ...shared.reference_failure import ReferenceFailure
from ...shared.running_problem import Answering, Call, PreciseRun
from ...shared.spec import EvalSpec
from ..comparison.compare import Expected, all_finite, compare, expect, is_measured
from ..comparison.evidence import Comparison
from ..comparison.structures import floats, twin_noise
from ..memory.together import trials_together
from ..runners.handle import RunnerStartError
from ..runners.work import numbers
from . import noise
from .excerpt import Excerpt
from .inputs import Inputs, Vary, draw, equal, same_bytes
from .stress import Stress
from .tiers import BITS, coarser, rms

#: Errors below this share of a precision's rounding errors do not come from that precision.
_CLEARLY_FINER = 0.3

#: A copy of inputs larger than this, in bytes, is freed if it equals the inputs.
_WORTH_SHARING = 64 << 20

#: A stand-in for an earlier answer if nothing will be compared.
UNJUDGED = Expected(None, ())

#: Copies drawn inputs to where a runner will work on them.
Stage = Callable[[Inputs], None]
#: Returns a changed input tensor.
Change = Callable[[torch.Tensor], torch.Tensor]
#: A change of the inputs, if there is one, and to how many mantissa bits parameters are rounded, if they are.
_Changed = tuple[Change | None, int | None]


class NotFiniteError(Exception):
    """The reference's answer is not finite, although it must be."""


@dataclass(slots=True)
class Trial:
    """Inputs, and what a right candidate makes of them."""

    #: The seed of the generators before the call; never the seed of the inputs.
    seed: int
    inputs: Inputs
    after: torch.Tensor
    expected: Expected
    #: True if the reference's output shares memory with its inputs, so that it changes when they do.
    aliased: bool
    #: True if the reference writes to its inputs, whatever values it writes.
    mutates: bool = False
    #: True if the runner has its inputs already.
    staged: bool = False
    #: For a large problem: some rows, also answered in float64.
    block: Block | None = None
    #: The stress that changed the inputs; None for nominal ones.
    stress: Stress | None = None
    #: Device memory in bytes that the reference's call took at its peak; None if it was not measured.
    peak: int | None = None

    def forget_inputs(self) -> None:
        """Free the memory that is not needed to compare an output."""
        self.inputs = self.inputs.outline()
        self.after = self.inputs.master
        self.block = None

    def outline(self) -> Trial:
        """Return the trial's form without its tensors. Outputs cannot be compared with it any more."""
        nothing = self.inputs.outline()
        return Trial(self.seed, nothing, nothing.master, self.expected.outline(), self.aliased, self.mutates)

    @property
    def slot_bytes(self) -> int:
        """Size of one output slot in an arena, in bytes."""
        return tree.layout([leaf.spec for leaf in self.expected.leaves])[1]


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of a trial: their indices, and a trial of them."""

    which: torch.Tensor
    trial: Trial


@dataclass(frozen=True, slots=True)
class Method:
    """How the judge determines how far answers to a problem may be off."""

    #: How a large problem is cut: then the float64 twin covers only some rows.
    excerpt: Excerpt | None = None
    #: A precision in which the reference may compute by torch's settings, but does not in this process; UNSPECIFIED if
    #: there is none.
    own_precision: Precision = Precision.UNSPECIFIED

    def allowed(self, spec: EvalSpec, values: Sequence[torch.Tensor]) -> Precision:
        """Return the precision whose rounding is allowed besides float32's; UNSPECIFIED if no coarser one is."""
        return (
            spec.checks.rules.allowed_precision
            if coarser(spec.checks.rules.allowed_precision, values)
            else self.own_precision
        )


def answer(
    problem: Answering,
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
    measured: bool = False,
) -> Trial:
    """Run the reference on `inputs`, and in float64 if possible.

    Args:
        problem: The problem.
        spec: What the client asked for.
        device: The device.
        number: The number of the trial.
        inputs: The input set.
        like: An answer to inputs of the same kind. Its noise is used, and nothing is computed in float64.
        method: How noise is measured. With an excerpt, only some rows are computed in float64.
        spares: Whether the reference works on the inputs themselves, which it does not change, and not on a copy.
        stage: Copies the inputs to where a runner will work on them, before the reference starts.
        must_be_finite: Whether to raise NotFiniteError for an answer that is not finite, before any float64 run.
        measured: Whether to measure the memory that the call takes.

    Raises:
        ReferenceFailure: The reference raised an exception, or lacked memory.
        NotFiniteError: The answer is not finite.
    """
    seed = secrets.randbits(31)
    try:
        staged = stage is not None
        if stage is not None:
            stage(inputs)
        after = inputs.master if spares else inputs.master.clone()
        returned = problem.answer(Call(number, inputs.structure, inputs.specs, after, seed, measured))
        structure, values = returned.structure, returned.values
        if must_be_finite and not all(all_finite(value) for value in values):
            raise NotFiniteError
        if not returned.mutates and after.numel() > _WORTH_SHARING:
            after = inputs.master
        block, excerpt = None, method.excerpt
        if spec.checks.rules.tolerance.preset != Preset.CALIBRATED or like is not None:
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
                structure, values, problem, number, inputs, seed, method.allowed(spec, values)
            )
        else:
            allowed = method.allowed(spec, values)
            expected = _answered_precisely(problem, device, number, inputs, seed, structure, values, allowed)
        return Trial(
            seed,
            inputs,
            after,
            expected,
            returned.aliased,
            returned.mutates,
            staged=staged,
            block=block,
            peak=returned.peak,
        )
    except (ReferenceFailure, NotFiniteError, RunnerStartError, asyncio.CancelledError):
        raise
    except BaseException as error:
        raise ReferenceFailure("reference", error) from error


def _answered_precisely(
    problem: Answering,
    device: Device,
    number: int,
    inputs: Inputs,
    seed: int,
    structure: Any,
    values: list[torch.Tensor],
    allowed: Precision,
) -> Expected:
    """Make an Expected with a float64 twin of everything, or with another run if there is no twin or no memory."""
    try:
        move = noise.shake_of(values)
        # The movement of outputs with their inputs is conditioning.
        changed: list[_Changed] = [(None, None), (lambda tensor: noise.shaken(tensor, move), None)]
        if allowed:
            changed.append(_rounded(allowed))
        output_bytes = sum(value.numel() * value.element_size() for value in values)
        together = trials_together(device, inputs.set_bytes, output_bytes) > 0
        (precise_structure, precise), moved, *rest = _twins(problem, inputs, seed, changed, together=together)
        if precise is not None:
            rounded = rest[0] if rest else (None, None)
            most = math.inf if allowed else noise.STEP
            expected = expect(structure, values, precise, [moved[1] or []], rounded[1] or [], most)
            number_noise = twin_noise(structure, precise_structure, [moved[0]], rounded[0], most)
            return replace(expected, number_noise=number_noise)
    except torch.OutOfMemoryError:
        device.clear()
    if not any(is_measured(value) for value in values) and next(floats(structure), None) is None:
        return expect(structure, values, None)
    return noise.from_another_run(structure, values, problem, number, inputs, seed, allowed)


def prepare(
    problem: Answering,
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
    """Draw inputs and run the reference on them. The arguments are those of `answer`. Raises ReferenceFailure."""
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
        # If most operands are zero or equal, rounding them changes nothing, but rounding intermediate results does.
        prepared.expected = prepared.expected.element_by_element()
    return prepared


def unused_precision(problem: Answering, spec: EvalSpec, device: Device, precision: Precision) -> Precision:
    """Return `precision` if the reference may compute in it, but its answers are clearly finer; else UNSPECIFIED.

    Libraries choose an algorithm for each call, partly by the free memory. In another process the very same code may
    compute in the coarser precision, and is just as right.
    """
    nominal = prepare(problem, spec, device, 0)
    rounded = twin_at(problem, nominal, precision)
    for at, leaf in enumerate(nominal.expected.leaves):
        if leaf.has_twin and rounded is not None and at < len(rounded) and rounded[at].shape == leaf.truth.shape:
            error, rounding = rms(leaf.value.double() - leaf.truth), rms(rounded[at] - leaf.truth)
            if error < _CLEARLY_FINER * rounding:
                return precision
    return Precision.UNSPECIFIED


def twin_at(
    problem: Answering, trial: Trial, precision: Precision, change: Change | None = None
) -> list[torch.Tensor] | None:
    """Return the float64 answer to a trial with every operand from outside rounded to `precision`.

    `change` replaces the rounding of the inputs. The reference's own parameters are rounded in any case.
    """
    rounding, bits = _rounded(precision)
    return _twins(problem, trial.inputs, trial.seed, [(change or rounding, bits)])[0][1]


def _rounded(precision: Precision) -> _Changed:
    bits = BITS[precision]
    return lambda tensor: round_to(tensor, bits), bits


def _twins(
    problem: Answering, inputs: Inputs, seed: int, changed: Sequence[_Changed], *, together: bool = False
) -> list[tuple[Any, list[torch.Tensor] | None]]:
    """Return structure and tensors of float64 answers, each to inputs whose floating-point tensors were changed.

    Return (None, None) for each that there is not. `together` says whether there is memory for all runs at once.
    """
    found: list[tuple[Any, list[torch.Tensor] | None]] = []
    at_once = len(changed) if together else 1
    for begin in range(0, len(changed), at_once):
        runs = [
            PreciseRun(inputs.structure, _changed(inputs.tensors(), change), seed, bits)
            for change, bits in changed[begin : begin + at_once]
        ]
        found += [each or (None, None) for each in problem.precise(runs)]
    return found


def _changed(tensors: Sequence[torch.Tensor], change: Change | None) -> list[torch.Tensor]:
    return [change(each) if change is not None and is_measured(each) else each for each in tensors]


def judge(
    trial: Trial, spec: EvalSpec, structure: Any, specs: Sequence[tree.TensorSpec], slot: torch.Tensor
) -> Comparison:
    """Compare what a runner says it returned, and what it left in `slot`, with the expected output."""
    leaves = [leaf.spec for leaf in trial.expected.leaves]
    return compare(trial.expected, structure, specs, tree.views(slot, leaves), spec.checks.rules.tolerance)


def judge_bytes(trial: Trial, spec: EvalSpec, slot: torch.Tensor) -> Comparison:
    """Do the same for a slot about which the runner says nothing: it must have the expected structure."""
    return judge(trial, spec, trial.expected.structure, [leaf.spec for leaf in trial.expected.leaves], slot)


def inputs_intact(trial: Trial, arena_set: torch.Tensor) -> bool:
    """Return True if the runner's inputs now equal what the reference left in its own, byte for byte."""
    if same_bytes(arena_set[: trial.inputs.set_bytes], trial.after):
        return True
    places = _places(trial)
    return all(equal(arena_set[at : at + size], trial.after[at : at + size]) for at, size in places)


def changed_padding(trial: Trial, arena_set: torch.Tensor) -> int:
    """Return how many of the bytes that fill the space behind each input tensor differ from what was put there."""
    if not trial.after.numel():
        return 0
    places = _places(trial)
    begins = [at for at, _ in places[1:]] + [trial.inputs.set_bytes]
    gaps = [slice(at + size, begin) for (at, size), begin in zip(places, begins, strict=True) if at + size < begin]
    if not gaps:
        return 0
    now, before = (torch.cat([region[gap] for gap in gaps]) for region in (arena_set, trial.after))
    return int(numbers((now != before).sum()))


def _places(trial: Trial) -> list[tuple[int, int]]:
    """Return where each input tensor begins, and its size, in bytes."""
    specs = trial.inputs.specs
    return [(at, spec.nbytes) for at, spec in zip(tree.layout(specs)[0], specs, strict=True)]

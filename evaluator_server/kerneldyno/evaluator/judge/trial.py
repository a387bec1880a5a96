"""One correctness trial: fresh secret inputs, what is right for them, and whether the candidate's answer is.

Inputs exist three times: `master` as drawn, a copy that the reference works on, and the runner's, in the shared arena. After
the call the runner's must equal what the reference left of its own, byte for byte, so that neither a changed input nor an
input that should have been changed goes unnoticed.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import tree
from ..devices.base import Device
from ..precision import BITS, coarser, round_to
from ..spec import EvalSpec
from ..toolkits import Problem, ReferenceFailure
from .compare import Comparison, Expected, compare, expect

#: Relative change of inputs that float32 arithmetic can be as wrong as: four units in the last place.
_SHAKE = 2.0**-22

#: Outputs that move by more than this, relative to their size, have crossed a step: that is no conditioning.
_STEP = 2.5e-3

#: Changes drawn inputs. Gets the tensors and a secret seed, returns tensors of the same shapes.
Vary = Callable[[list[torch.Tensor], int], list[torch.Tensor]]


@dataclass(slots=True)
class Inputs:
    """One input set: its structure, descriptions, and the bytes as drawn."""

    structure: Any
    specs: list[tree.TensorSpec]
    master: torch.Tensor

    @property
    def set_bytes(self) -> int:
        """Size of one input set in an arena."""
        return self.master.numel()

    def tensors(self) -> list[torch.Tensor]:
        """The tensors themselves, over the bytes of `master`."""
        return tree.views(self.master, self.specs)

    def arguments(self, region: torch.Tensor, device: Device) -> list[Any]:
        """Return positional arguments over the bytes of `region`."""
        arguments: list[Any] = tree.rebuild(self.structure, tree.views(region, self.specs), device.torch_device)
        return arguments


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
    #: Name of the kind of stress, or empty for nominal inputs.
    stress: str = ""

    def forget_inputs(self) -> None:
        """Give back the memory of what is not needed to compare an output."""
        self.inputs.master = self.after = torch.empty(0, dtype=torch.uint8)

    @property
    def slot_bytes(self) -> int:
        """Size of one output slot in an arena."""
        return tree.layout([leaf.spec for leaf in self.expected.leaves])[1]


def draw(
    problem: Problem, device: Device, number: int, vary: Vary | None = None, into: torch.Tensor | None = None
) -> Inputs:
    """Draw one input set from entropy that did not exist before, `into` zeros if given. Raises ReferenceFailure."""
    seed = secrets.randbits(31)
    try:
        structure, tensors = tree.flatten(list(problem.inputs(number, seed)))
        specs = [tree.describe(tensor) for tensor in tensors]
        if vary is not None:
            tensors = vary(tensors, seed)
        _, nbytes = tree.layout(specs)
        if into is None:
            master = torch.zeros(nbytes, dtype=torch.uint8, device=device.torch_device)
        elif nbytes == into.numel():
            master = into
        else:
            return Inputs(structure, specs, torch.empty(0, dtype=torch.uint8))  # the caller sees that they differ
        for view, tensor in zip(tree.views(master, specs), tensors, strict=True):
            view.copy_(tensor)
        return Inputs(structure, specs, master)
    except tree.UnsupportedValueError as error:
        raise ReferenceFailure("inputs", TypeError(f"get_inputs() returned {error}")) from error
    except BaseException as error:
        raise ReferenceFailure("inputs", error) from error


def answer(
    problem: Problem, spec: EvalSpec, device: Device, number: int, inputs: Inputs, like: Expected | None = None
) -> Trial:
    """Run the reference on `inputs`, and in float64 where it can. Raises ReferenceFailure.

    With `like`, an answer to inputs of the same kind, its noise is taken over, and nothing is computed in float64.
    """
    seed = secrets.randbits(31)
    try:
        after = inputs.master.clone()
        structure, values = tree.flatten(problem.expected(number, inputs.arguments(after, device), seed))
        first, last = after.data_ptr(), after.data_ptr() + after.numel()
        aliased = any(first <= value.data_ptr() < last for value in values)
        values = [value.detach().clone() for value in values]
        precise = None
        others: list[list[torch.Tensor]] = []
        rounded: list[torch.Tensor] = []
        most = _STEP
        if spec.tolerance.preset == "PRESET_CALIBRATED" and like is None:
            precise = _twin(problem, device, inputs, seed, None)
            if precise is not None:
                others += [_twin(problem, device, inputs, seed, _shake) or []]
                if coarser(spec.allowed_precision, values):
                    rounded = _rounded_twin(problem, device, inputs, seed, spec.allowed_precision) or []
                    most = math.inf
        device.synchronize()
        expected = expect(structure, values, precise, others, rounded, most)
        if like is not None:
            expected = expected.as_noisy_as(like)
        return Trial(seed, inputs, after, expected, aliased)
    except tree.UnsupportedValueError as error:
        raise ReferenceFailure("reference", TypeError(f"the reference returned {error}")) from error
    except BaseException as error:
        raise ReferenceFailure("reference", error) from error


def prepare(problem: Problem, spec: EvalSpec, device: Device, number: int, vary: Vary | None = None) -> Trial:
    """Draw inputs and run the reference on them. Raises ReferenceFailure."""
    prepared = answer(problem, spec, device, number, draw(problem, device, number, vary))
    if vary is not None:
        # Where most operands are zeros, or equal, rounding them changes nothing, and rounding what is made of them does.
        prepared.expected = prepared.expected.element_by_element()
    return prepared


def twin_at(problem: Problem, device: Device, trial: Trial, precision: str) -> list[torch.Tensor] | None:
    """Return the float64 answer to a trial with every operand that comes from outside rounded to `precision`."""
    return _rounded_twin(problem, device, trial.inputs, trial.seed, precision)


def _rounded_twin(
    problem: Problem, device: Device, inputs: Inputs, seed: int, precision: str
) -> list[torch.Tensor] | None:
    bits = BITS[precision]
    tensors = [round_to(tensor, bits) if tensor.is_floating_point() else tensor for tensor in inputs.tensors()]
    result = problem.precise_at(tree.rebuild(inputs.structure, tensors, device.torch_device), seed, bits)
    return None if result is None else [value.detach() for value in tree.flatten(result)[1]]


def _twin(
    problem: Problem, device: Device, inputs: Inputs, seed: int, change: Callable[[torch.Tensor], torch.Tensor] | None
) -> list[torch.Tensor] | None:
    """Return the float64 answer for inputs of which the floating-point tensors went through `change`."""
    tensors = [
        change(tensor) if change is not None and tensor.is_floating_point() else tensor for tensor in inputs.tensors()
    ]
    result = problem.precise(tree.rebuild(inputs.structure, tensors, device.torch_device), seed)
    return None if result is None else [value.detach() for value in tree.flatten(result)[1]]


def _shake(tensor: torch.Tensor) -> torch.Tensor:
    """Move each element by a random part of what float32 arithmetic can do to it: how far outputs move is conditioning."""
    return torch.rand_like(tensor, dtype=torch.float64).mul_(2 * _SHAKE).add_(1 - _SHAKE).mul_(tensor)


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
    return bool(torch.equal(arena_set[: trial.inputs.set_bytes], trial.after))

"""One correctness trial: fresh secret inputs, what is right for them, and whether the candidate's answer is.

Inputs exist three times: `master` as drawn, a copy that the reference works on, and the runner's, in the shared arena. After
the call the runner's must equal what the reference left of its own, byte for byte, so that neither a changed input nor an
input that should have been changed goes unnoticed.
"""

from __future__ import annotations

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

#: Changes drawn inputs: stress, or seasoning. Gets the tensors and a secret seed, returns tensors of the same shapes.
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

    @property
    def slot_bytes(self) -> int:
        """Size of one output slot in an arena."""
        return tree.layout([leaf.spec for leaf in self.expected.leaves])[1]


def draw(problem: Problem, device: Device, number: int, vary: Vary | None = None) -> Inputs:
    """Draw one input set from entropy that did not exist before. Raises ReferenceFailure."""
    seed = secrets.randbits(31)
    try:
        structure, tensors = tree.flatten(list(problem.inputs(number, seed)))
        specs = [tree.describe(tensor) for tensor in tensors]
        if vary is not None:
            tensors = vary(tensors, seed)
        _, nbytes = tree.layout(specs)
        master = torch.zeros(nbytes, dtype=torch.uint8, device=device.torch_device)
        for view, tensor in zip(tree.views(master, specs), tensors, strict=True):
            view.copy_(tensor)
        return Inputs(structure, specs, master)
    except tree.UnsupportedValueError as error:
        raise ReferenceFailure("inputs", TypeError(f"get_inputs() returned {error}")) from error
    except BaseException as error:
        raise ReferenceFailure("inputs", error) from error


def answer(problem: Problem, spec: EvalSpec, device: Device, number: int, inputs: Inputs) -> Trial:
    """Run the reference on `inputs`, and in float64 where it can. Raises ReferenceFailure."""
    seed = secrets.randbits(31)
    try:
        after = inputs.master.clone()
        structure, values = tree.flatten(problem.expected(number, inputs.arguments(after, device), seed))
        first, last = after.data_ptr(), after.data_ptr() + after.numel()
        aliased = any(first <= value.data_ptr() < last for value in values)
        values = [value.detach().clone() for value in values]
        precise = allowed = None
        if spec.tolerance.preset == "PRESET_CALIBRATED":
            precise = _twin(problem, device, inputs, seed, None)
            if precise is not None and coarser(spec.allowed_precision, values):
                allowed = _twin(problem, device, inputs, seed, spec.allowed_precision)
        device.synchronize()
        return Trial(seed, inputs, after, expect(structure, values, precise, allowed), aliased)
    except tree.UnsupportedValueError as error:
        raise ReferenceFailure("reference", TypeError(f"the reference returned {error}")) from error
    except BaseException as error:
        raise ReferenceFailure("reference", error) from error


def prepare(problem: Problem, spec: EvalSpec, device: Device, number: int, vary: Vary | None = None) -> Trial:
    """Draw inputs and run the reference on them. Raises ReferenceFailure."""
    return answer(problem, spec, device, number, draw(problem, device, number, vary))


def twin_at(problem: Problem, device: Device, trial: Trial, precision: str) -> list[torch.Tensor] | None:
    """Return the float64 answer to a trial with every operand that comes from outside rounded to `precision`."""
    return _twin(problem, device, trial.inputs, trial.seed, precision)


def _twin(
    problem: Problem, device: Device, inputs: Inputs, seed: int, precision: str | None
) -> list[torch.Tensor] | None:
    bits = None if precision is None else BITS[precision]
    region = inputs.master
    if bits is not None:
        region = region.clone()
        for tensor in tree.views(region, inputs.specs):
            if tensor.is_floating_point():
                tensor.copy_(round_to(tensor, bits))
    arguments = inputs.arguments(region, device)
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
    return bool(torch.equal(arena_set[: trial.inputs.set_bytes], trial.after))

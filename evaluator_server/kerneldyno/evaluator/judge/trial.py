"""One correctness trial: fresh secret inputs, what is right for them, and whether the candidate's answer is.

Inputs exist three times: `master` as drawn, a copy that the reference works on, and the runner's, in the shared arena. After
the call the runner's must equal what the reference left of its own, byte for byte, so that neither a changed input nor an
input that should have been changed goes unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import tree
from ..devices.base import Device
from ..spec import EvalSpec
from ..toolkits import Problem, ReferenceFailure
from .compare import Comparison, Expected, compare, expect


@dataclass(slots=True)
class Trial:
    """Inputs and what a right candidate makes of them."""

    seed: int
    structure: Any
    specs: list[tree.TensorSpec]
    master: torch.Tensor
    after: torch.Tensor
    expected: Expected

    @property
    def set_bytes(self) -> int:
        """Size of one input set in an arena."""
        return self.master.numel()

    @property
    def slot_bytes(self) -> int:
        """Size of one output slot in an arena."""
        return tree.layout([leaf.spec for leaf in self.expected.leaves])[1]


def prepare(problem: Problem, spec: EvalSpec, device: Device, number: int, seed: int) -> Trial:
    """Draw inputs under `seed` and run the reference on them. Raises ReferenceFailure."""
    try:
        structure, tensors = tree.flatten(list(problem.inputs(number, seed)))
        specs = [tree.describe(tensor) for tensor in tensors]
        _, nbytes = tree.layout(specs)
        master = torch.zeros(nbytes, dtype=torch.uint8, device=device.torch_device)
        for view, tensor in zip(tree.views(master, specs), tensors, strict=True):
            view.copy_(tensor)
        del tensors
        after = master.clone()
        arguments = _arguments(structure, specs, after, device)
        output_structure, values = tree.flatten(problem.expected(number, arguments, seed))
        values = [value.detach().clone() for value in values]
        precise = None
        if spec.tolerance.preset == "PRESET_CALIBRATED":
            answer = problem.precise(_arguments(structure, specs, master, device), seed)
            precise = None if answer is None else [value.detach() for value in tree.flatten(answer)[1]]
        device.synchronize()
        return Trial(seed, structure, specs, master, after, expect(output_structure, values, precise))
    except tree.UnsupportedValueError as error:
        raise ReferenceFailure("inputs", TypeError(f"get_inputs() or the reference returned {error}")) from error
    except BaseException as error:
        raise ReferenceFailure("reference", error) from error


def _arguments(structure: Any, specs: Sequence[tree.TensorSpec], region: torch.Tensor, device: Device) -> list[Any]:
    arguments: list[Any] = tree.rebuild(structure, tree.views(region, specs), device.torch_device)
    return arguments


def judge(
    trial: Trial, spec: EvalSpec, structure: Any, specs: Sequence[tree.TensorSpec], slot: torch.Tensor
) -> Comparison:
    """Compare what a runner says it returned, and what it left in `slot`, with what is right."""
    leaves = [leaf.spec for leaf in trial.expected.leaves]
    return compare(trial.expected, structure, specs, tree.views(slot, leaves), spec.tolerance, spec.allowed_precision)


def inputs_intact(trial: Trial, arena_set: torch.Tensor) -> bool:
    """Say whether the runner's inputs are now what the reference made of its own."""
    return bool(torch.equal(arena_set[: trial.set_bytes], trial.after))

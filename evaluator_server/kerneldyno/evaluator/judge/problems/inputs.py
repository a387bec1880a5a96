"""Input sets: the result of a reference's `get_inputs`, as bytes that can be copied to a runner."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...devices.base import Device
from ...shared import small_floats, tree
from ...shared.reference_failure import ReferenceFailure
from ...shared.running_problem import Answer, Answering, Call
from ..runners.work import numbers

#: Changes drawn inputs. It gets the tensors, a secret seed, and the tensors of the same shapes that receive the result.
Vary = Callable[[Sequence[torch.Tensor], int, Sequence[torch.Tensor]], None]


@dataclass(slots=True)
class Inputs:
    """One input set: its structure, descriptions, and the bytes as drawn."""

    structure: Any
    specs: list[tree.TensorSpec]
    master: torch.Tensor

    @property
    def set_bytes(self) -> int:
        """Size of one input set in an arena, in bytes."""
        return tree.layout(self.specs)[1]

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors themselves, over the bytes of `master`."""
        return tree.views(self.master, self.specs)

    def answered_by(self, problem: Answering, number: int, seed: int) -> Answer:
        """Return the reference's answer to these inputs, or rather to a copy of them. Raises ReferenceFailure."""
        return problem.answer(Call(number, self.structure, self.specs, self.master.clone(), seed))

    def outline(self) -> Inputs:
        """Return the structure and the descriptions without the bytes."""
        return Inputs(self.structure, self.specs, torch.empty(0, dtype=torch.uint8))


def draw(problem: Answering, device: Device, number: int, vary: Vary | None = None) -> Inputs:
    """Draw one input set from fresh entropy. Raises ReferenceFailure."""
    seed = secrets.randbits(31)
    with problem.drawn(number, seed) as (structure, tensors):
        try:
            specs = [tree.describe(tensor) for tensor in tensors]
            _, nbytes = tree.layout(specs)
            master = torch.zeros(nbytes, dtype=torch.uint8, device=device.torch_device)
            views = tree.views(master, specs)
            if vary is not None:
                vary(tensors, seed, views)
            else:
                for view, tensor in zip(views, tensors, strict=True):
                    small_floats.raw(view).copy_(small_floats.raw(tensor))
            return Inputs(structure, specs, master)
        except BaseException as error:
            raise ReferenceFailure("inputs", error) from error


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if two regions of one size are equal."""
    return equal(words(one), words(other))


def words(region: torch.Tensor) -> torch.Tensor:
    """Return a region as numbers of eight bytes, for an eighth of the operations. `tree.layout` aligns it to these."""
    return region.view(torch.int64)


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if all elements of two tensors of one shape are equal; other lanes go on meanwhile."""
    return bool(numbers((one == other).all()))

"""The form of a reference's output: what it consists of, and the shapes of its tensors.

It may depend on the values of the inputs (the indices of elements that are not zero), and then outputs need room for
more than the first one. It may not depend on anything else, since no candidate could have the right form then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from ...shared import tree
from ...shared.reference_failure import ReferenceFailure
from ...shared.running_problem import RunningProblem
from ..comparison.structures import form
from .trial import Trial

#: If outputs differ in size, there is room for this multiple of the largest one that was seen.
_MARGIN = 2


@dataclass(slots=True)
class OutputSizes:
    """The sizes of the outputs that were seen, in bytes."""

    seen: set[int] = field(default_factory=set)

    def note(self, current: Trial) -> None:
        """Note the size of a trial's output."""
        self.seen.add(current.slot_bytes)

    def room(self, first: int) -> int:
        """Return the room for one output of a problem whose first one took `first` bytes, and was noted if it counts."""
        return first if len(self.seen) < 2 else _MARGIN * max(first, *self.seen)


def require_same_form(problem: RunningProblem, example: Trial) -> None:
    """Call the reference again on the inputs of `example`. Raises ReferenceFailure if its output has another form."""
    again = example.inputs.answered_by(problem, 0, example.seed)
    if said := _difference(example, again.structure, again.values):
        advice = "the form of an output may depend on the inputs only, not on earlier calls or on chance"
        raise ReferenceFailure(
            "reference", ValueError(f"called twice with the same inputs, the reference {said}: {advice}")
        )


def _difference(example: Trial, structure: Any, values: list[torch.Tensor]) -> str:
    """Say how an answer differs in form from that of `example`; "" if it does not."""
    for leaf, value in zip(example.expected.leaves, values, strict=False):
        before, now = leaf.spec, tree.describe(value, keep_layout=False)
        if (before.shape, before.dtype) != (now.shape, now.dtype):
            return (
                f"returned a {before.dtype} tensor of shape {before.shape}, and then a {now.dtype} tensor of shape"
                f" {now.shape}"
            )
    return "" if form(structure) == form(example.expected.structure) else "returned values of different kinds"

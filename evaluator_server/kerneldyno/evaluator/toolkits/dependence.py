"""Whether the answers of a reference depend on state that its calls change, and on which.

A call is compared with the same call after other calls, on other inputs and under another seed. Most references change
nothing; then there is nothing to try. A batch normalisation in training mode changes its running statistics, and its
answers do not depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from ..shared import small_floats, tree
from ..shared.buffers import same_bytes
from ..shared.out_of_memory import is_lack_of_memory
from .state import Key, Place, Snapshot

#: An answer after other calls must differ from the right one by this many times what equal calls differ by.
_CLEARLY = 8.0
#: Differences of so many units in the last place come from another algorithm, which libraries choose for each call.
_ROUNDING = 8.0
#: Calls whose answers are compared: an answer that depends on parity is wrong in one of two.
_CALLS = 2
#: Most places that an error names.
_MOST_NAMED = 5


class StatefulReferenceError(Exception):
    """The answers of a reference depend on state that cannot be restored on both sides."""

    def __init__(self, places: Sequence[Place]) -> None:
        labels = list(dict.fromkeys(place.label for place in places))
        rest = f" and {len(labels) - _MOST_NAMED} more" if len(labels) > _MOST_NAMED else ""
        super().__init__(
            f"the answer depends on state that calls change: {', '.join(labels[:_MOST_NAMED])}{rest}. Compute it from"
            " the inputs, or make it in the constructor. If calls must change it, keep it in a buffer (register_buffer):"
            " each call then begins with the value that the constructor gave it"
        )


#: An answer: its structure and copies of its tensors, or the name of the exception that a call raised instead.
_Answer = tuple[Any, list[torch.Tensor]]


class Dependence:
    """Experiments with the calls of one reference."""

    def __init__(self, snapshot: Snapshot, call: Callable[[bool], Any], always: Collection[Key] = ()) -> None:
        """Prepare experiments.

        Args:
            snapshot: The state with which the judged calls begin.
            call: Makes a call: the one whose answers are compared, or (True) another one.
            always: Places that are restored before every call anyway.
        """
        self._snapshot = snapshot
        self._call = call
        self._always = set(always)

    def culprits(self) -> list[Place]:
        """Return the changed places on which the answer depends; nothing if it depends on none.

        Leave the state as it was when the snapshot was taken. Raises what the other call raises, and OutOfMemoryError.
        """
        try:
            self._snapshot.restore()
            self._call(True)
            after = []
            for _ in range(_CALLS):
                self._snapshot.restore(only=self._always)
                after.append(self._answer())
            places = [place for place in self._snapshot.changed() if place.key not in self._always]
            self._snapshot.restore()
            right = self._answer()
            if not places or all(_distance(right, each) == 0 for each in after):
                return []
            found = self._among(places)
            return found if found and self._matter(found) else []
        finally:
            self._snapshot.restore()

    def _among(self, places: list[Place]) -> list[Place]:
        """Return those of some places on which the answer depends; all if only several together change it."""
        if not self._matter(places):
            return []
        if len(places) == 1:
            return places
        half = len(places) // 2
        return self._among(places[:half]) + self._among(places[half:]) or places

    def _matter(self, places: list[Place]) -> bool:
        """Return True if answers are others when these places keep what other calls have left in them."""
        right, *again = self._answers(())
        spread = max(_distance(right, each) for each in again)
        off = max(_distance(right, each) for each in self._answers({place.key for place in places}))
        return off > _CLEARLY * spread

    def _answers(self, kept: Collection[Key]) -> list[_Answer]:
        """Return answers after another call, of which only `kept` is left."""
        self._snapshot.restore()
        self._call(True)
        answers = []
        for _ in range(_CALLS):
            self._snapshot.restore(but=kept)
            answers.append(self._answer())
        return answers

    def _answer(self) -> _Answer:
        try:
            structure, tensors = tree.flatten(self._call(False))
        except Exception as error:  # a call that fails after others depends on them, too
            if is_lack_of_memory(error):
                raise
            return type(error).__name__, []
        return structure, [small_floats.cloned(tensor.detach()) for tensor in tensors]


def _distance(one: _Answer, other: _Answer) -> float:
    """Return how far two answers are apart: 0 if they differ by rounding at most, infinite if their forms differ."""
    if one[0] != other[0]:
        return math.inf
    return math.hypot(*map(_apart, one[1], other[1]))


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    if same_bytes(one, other):
        return 0.0
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return math.inf
    wide = torch.complex128 if one.is_complex() else torch.float64
    left, right = (small_floats.widened(tensor).to(wide) for tensor in (one, other))
    if not torch.equal(torch.isfinite(left), torch.isfinite(right)):
        return math.inf
    left, right = left.nan_to_num(0.0, 0.0, 0.0), right.nan_to_num(0.0, 0.0, 0.0)
    distance = float(torch.linalg.vector_norm(left - right))
    exact = not (one.is_floating_point() or one.is_complex()) or small_floats.is_coded(one.dtype)
    epsilon = 0.0 if exact else min(torch.finfo(one.dtype).eps, torch.finfo(torch.float32).eps)
    return 0.0 if distance <= _ROUNDING * epsilon * float(torch.linalg.vector_norm(left)) else distance

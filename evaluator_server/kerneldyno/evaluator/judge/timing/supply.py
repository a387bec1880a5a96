"""Fresh secret inputs for bursts, and what is right for a few of them that nobody else knows. Used by `bursts`.

What a candidate will be timed on is drawn before it has the device to itself, as far as memory allows: while it is
timed everybody else stands still, and drawing takes as long as the bursts do.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from ...devices.base import Device
from ...shared import tree
from ...shared.spec import EvalSpec
from ...toolkits import ReferenceFailure
from ..memory.surplus import checks, drawn_ahead, kept_sets
from ..problems import trial
from ..problems.cache import BuiltProblem
from ..problems.inputs import Inputs, draw

#: Time for drawing the input sets of one burst, in seconds, above which earlier ones are used again, changed.
_DRAWING_SECONDS = {"cuda": 0.25, "cpu": 0.05}
#: Sets that are timed one by one to see whether drawing is slow; of the others many are under way at once.
_TIMED_SETS = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """Input sets for one burst, one after the other, and the trials of those whose outputs will be looked at."""

    count: int
    data: torch.Tensor
    right: dict[int, trial.Trial]


@dataclass(slots=True)
class Supply:
    """Draws input sets like those of `example`, for bursts of at most `longest` calls."""

    built: BuiltProblem
    spec: EvalSpec
    device: Device
    #: A nominal trial: what outputs look like, and how noisy they are.
    example: trial.Trial
    #: What one input set looks like.
    structure: Any
    specs: list[tree.TensorSpec]
    longest: int
    rng: random.Random
    #: Size of one input set in bytes.
    set_bytes: int = field(init=False)
    _cases: list[int] = field(init=False)
    _ahead: list[Batch] = field(default_factory=list)
    #: Inputs that were shown already, where the example has none.
    _seen: torch.Tensor | None = None
    _kept: list[torch.Tensor] = field(default_factory=list)
    _quickest: float = math.inf
    _timed: int = 0

    def __post_init__(self) -> None:
        self.set_bytes = tree.layout(self.specs)[1]
        # Of fixed cases those are timed that are as large as the first one; random inputs are all alike.
        problem = self.built.problem
        self._cases = [
            number
            for number in range(problem.cases or 1)
            if problem.cases is None or self._fits(draw(problem, self.device, number))
        ]

    @property
    def checks(self) -> int:
        """How many outputs of a burst are looked at."""
        return checks(self.set_bytes + self.example.slot_bytes)

    @property
    def room(self) -> int:
        """How many sets can be drawn ahead."""
        return drawn_ahead(self.device) // self.set_bytes

    @property
    def _most_kept(self) -> int:
        return kept_sets(self.device, self.set_bytes)

    async def draw_ahead(self, counts: Iterable[int], turn: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """Draw batches of these sizes for later, each in a `turn` of its own, until memory for them is used up.

        Of large outputs one answer may take more of it than all inputs do.
        """
        room, answers = self.room, drawn_ahead(self.device) // self.example.slot_bytes
        for count in counts:
            room -= count
            answers -= min(count, self.checks)
            if room < 0 or answers < 0:
                return
            async with turn():
                self._ahead.append(self._draw(count, self.checks))

    def take(self, count: int) -> Batch:
        """Return a batch of `count` sets that nobody has seen, drawn ahead if there is one. Raises ReferenceFailure.

        Of others, drawn while everybody stands still, fewer outputs are looked at.
        """
        for at, batch in enumerate(self._ahead):
            if batch.count == count:
                return self._ahead.pop(at)
        self._seen = None  # the memory of it is needed
        batch = self._draw(count, checks=1)
        if self.is_outlined:
            self._seen = batch.data  # as soon as it is: `familiar` is asked for none between this and the batch's burst
        return batch

    @property
    def is_outlined(self) -> bool:
        """Whether inputs are so large that the example's were not kept."""
        return not self.example.inputs.master.numel()

    def familiar(self, count: int) -> Batch:
        """Return a batch of inputs that are no secret, and of which no outputs are looked at.

        For calls that do not count, and for those of whom nobody doubts anything: drawing takes longer than they do.
        """
        if not self.is_outlined:
            return Batch(count, self.example.inputs.master.repeat(count), {})
        if self._seen is None or self._seen.numel() < count * self.set_bytes:
            self._seen = None
            self._seen = self._draw(count, checks=0).data
        return Batch(count, self._seen[: count * self.set_bytes], {})

    def _draw(self, count: int, checks: int) -> Batch:
        size = self.set_bytes
        data = torch.zeros(count * size, dtype=torch.uint8, device=self.device.torch_device)
        with (
            self.built.settings.in_force()
        ):  # once for all of them: to look what is set takes as long as to draw a small one
            began = time.monotonic()
            for index in range(count):
                self._draw_one(data[index * size :][:size], index)
            self._note_batch(began, count)
        self.built.examination.season(self.device, data, self.specs, count)
        checked = self.rng.sample(range(count), min(count, checks))
        right = {index: self._answer(index, data[index * size :][:size]) for index in checked}
        self.device.synchronize()
        return Batch(count, data, right)

    def _draw_one(self, target: torch.Tensor, index: int) -> None:
        """Draw one set; where drawing is slow, take an earlier one, of which secret elements are changed afterwards."""
        enough = _DRAWING_SECONDS[self.device.kind]
        slow = self._seconds_a_burst > enough
        if slow and self._kept and len(self._kept) == self._most_kept and self.built.examination.held:
            target.copy_(self.rng.choice(self._kept))
            return
        begin = time.monotonic()
        drawn = draw(self.built.problem, self.device, self._case(index), into=target)
        if not self._fits(drawn):
            raise ReferenceFailure("inputs", ValueError("get_inputs() must return the same shapes to be timed"))
        if slow or self._timed < _TIMED_SETS:
            self.device.synchronize()
            self._quickest = min(self._quickest, time.monotonic() - begin)
            self.built.seconds_a_set = self._quickest
            self._timed += 1
        if len(self._kept) < self._most_kept and self._seconds_a_burst > enough / 2:
            self._kept.append(target.clone())

    def _note_batch(self, began: float, count: int) -> None:
        """Many sets at once take less time than one after the other, unless they come from the host."""
        if count > _TIMED_SETS and self._seconds_a_burst <= _DRAWING_SECONDS[self.device.kind]:
            self.device.synchronize()
            self._quickest = min(self._quickest, (time.monotonic() - began) / count)
            self.built.seconds_a_set = self._quickest

    @property
    def _seconds_a_burst(self) -> float:
        """How long drawing for the longest burst takes."""
        return self.built.seconds_a_set * self.longest

    def _answer(self, index: int, data: torch.Tensor) -> trial.Trial:
        inputs = Inputs(self.structure, self.specs, data)
        problem, like = self.built.problem, self.example.expected
        spares = self.built.spares_inputs
        right = trial.answer(problem, self.spec, self.device, self._case(index), inputs, like, spares=spares)
        right.forget_inputs()
        return right

    def _case(self, index: int) -> int:
        """Which fixed case an input set holds; problems without cases draw at random."""
        return self._cases[index % len(self._cases)]

    def _fits(self, drawn: Inputs) -> bool:
        return [spec.shape for spec in drawn.specs] == [spec.shape for spec in self.specs]

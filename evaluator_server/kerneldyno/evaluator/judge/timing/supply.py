"""Fresh secret inputs for bursts, and the expected outputs of a few of them, which nobody else knows. Used by `bursts`.

Inputs are drawn before the candidate has the device to itself, as far as memory allows. While it is timed all others
wait, and drawing takes as long as the bursts do.
"""

from __future__ import annotations

import functools
import json
import math
import random
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch

from ...devices.base import Device
from ...shared import tree
from ...shared.running_problem import Answering
from ...shared.spec import EvalSpec
from ..memory.surplus import checks, drawn_ahead, kept_sets
from ..problems import trial
from ..problems.cache import BuiltProblem
from ..problems.inputs import Inputs, draw
from ..problems.side_by_side import raised, side_by_side
from ..runners.work import Execute, run, settle

#: If drawing the input sets of one burst takes longer than this, in seconds, earlier sets are changed and used again.
_DRAWING_SECONDS = {"cuda": 0.25, "cpu": 0.05}
#: Number of sets that are timed one by one to see whether drawing is slow; the others are queued together.
_TIMED_SETS = 3
#: Share of the timed input sets that are of another fixed case.
_OTHER_CASES = 1 / 3


@dataclass(frozen=True, slots=True)
class Batch:
    """Input sets for one burst, one after the other, and the trials of those whose outputs will be checked."""

    count: int
    data: torch.Tensor
    right: dict[int, trial.Trial]


@dataclass(slots=True)
class Supply:
    """Draws input sets like those of `example`, for bursts of at most `longest` calls."""

    built: BuiltProblem
    spec: EvalSpec
    device: Device
    #: A nominal trial. It shows what outputs look like and how noisy they are.
    example: trial.Trial
    #: The structure and the tensors of one input set.
    structure: Any
    specs: list[tree.TensorSpec]
    longest: int
    rng: random.Random
    #: Size of one input set, in bytes.
    set_bytes: int = field(init=False)
    #: Fixed cases that differ from the timed one, which is number 0, in the values of tensors only. Known once inputs
    #: have been drawn ahead.
    _alike: list[int] = field(default_factory=list)
    _ahead: list[Batch] = field(default_factory=list)
    #: Inputs that were revealed already, for use if the example has none.
    _seen: torch.Tensor | None = None
    _kept: list[torch.Tensor] = field(default_factory=list)
    _quickest: float = math.inf
    _timed: int = 0

    def __post_init__(self) -> None:
        self.set_bytes = tree.layout(self.specs)[1]

    @property
    def checks(self) -> int:
        """Number of a burst's outputs that are checked."""
        return checks(self.set_bytes + self.example.slot_bytes)

    @property
    def room(self) -> int:
        """Number of sets that can be drawn ahead."""
        return drawn_ahead(self.device) // self.set_bytes

    @property
    def _most_kept(self) -> int:
        return kept_sets(self.device, self.set_bytes)

    async def draw_ahead(self, counts: Iterable[int], execute: Execute) -> None:
        """Draw batches of these sizes ahead, until the memory for them is used up.

        Outputs count too: one large expected output may take more memory than all inputs.
        """
        for number in range(1, self.built.problem.cases or 1):
            if await execute(functools.partial(self._is_alike, number)):
                self._alike.append(number)
        room, answers = self.room, drawn_ahead(self.device) // self.example.slot_bytes
        fitting: list[int] = []
        for count in counts:
            room -= count
            answers -= min(count, self.checks)
            if room < 0 or answers < 0:
                break
            fitting.append(count)
        self._ahead += await execute(functools.partial(self._draw, fitting, self.checks))

    async def take(self, count: int) -> Batch:
        """Return a batch of `count` sets that nobody has seen, drawn ahead if possible. Raises ReferenceFailure.

        If the batch has to be drawn now, while all others are stopped, fewer outputs are checked.
        """
        for at, batch in enumerate(self._ahead):
            if batch.count == count:
                return self._ahead.pop(at)
        self._seen = None  # its memory is needed
        (batch,) = await run(functools.partial(self._draw, [count], checks=1))
        if self.is_outlined:
            self._seen = batch.data  # it will be by then: `familiar` is not called between this and the batch's burst
        return batch

    @property
    def is_outlined(self) -> bool:
        """True if inputs are so large that the example's were not kept."""
        return not self.example.inputs.master.numel()

    async def familiar(self, count: int) -> Batch:
        """Return a batch of inputs that are not secret; none of its outputs are checked.

        It is for untimed calls and for trusted sides: drawing takes longer than the calls do.
        """
        if not self.is_outlined:
            return Batch(count, self.example.inputs.master.repeat(count), {})
        if self._seen is None or self._seen.numel() < count * self.set_bytes:
            self._seen = None
            (batch,) = await run(functools.partial(self._draw, [count], checks=0))
            self._seen = batch.data
        return Batch(count, self._seen[: count * self.set_bytes], {})

    def _draw(self, counts: Sequence[int], checks: int) -> list[Batch]:
        """Draw batches of these sizes, with answers to `checks` sets of each."""
        device = self.device.torch_device
        regions = [torch.zeros(count * self.set_bytes, dtype=torch.uint8, device=device) for count in counts]
        cases = [[self._case() for _ in range(count)] for count in counts]
        self._fill([place for region in regions for place in torch.split(region, self.set_bytes)], [*chain(*cases)])
        for count, region in zip(counts, regions, strict=True):
            self.built.examination.season(self.device, region, self.specs, count)
        checked = [self._checked(each, checks) for each in cases]
        asked = [
            (each[index], region[index * self.set_bytes :][: self.set_bytes])
            for each, region, indices in zip(cases, regions, checked, strict=True)
            for index in indices
        ]
        answers = iter(self._answers(asked))
        room = max(self.built.footprint.outputs, self.example.slot_bytes)
        batches = []
        for count, region, indices in zip(counts, regions, checked, strict=True):
            right = {index: next(answers) for index in indices}
            right = {index: answer for index, answer in right.items() if answer.slot_bytes <= room}
            batches.append(Batch(count, region, right))
        settle(self.device)
        return batches

    def _fill(self, places: Sequence[torch.Tensor], cases: Sequence[int]) -> None:
        """Draw a set into each place. Raises ReferenceFailure."""
        done = 0
        while done < len(places):
            if self._is_slow and self._kept and len(self._kept) == self._most_kept and self.built.examination.held:
                # Earlier sets are used again, and their secret elements are changed afterwards.
                places[done].copy_(self.rng.choice(self._kept))
                done += 1
                continue
            # A few sets show how long one takes; the others are drawn in one go.
            known = self._timed >= _TIMED_SETS and not self._is_slow
            some = len(places) - done if known else min(_TIMED_SETS if not self._is_slow else 1, len(places) - done)
            self._draw_some(places[done : done + some], cases[done : done + some])
            done += some

    def _checked(self, cases: list[int], checks: int) -> list[int]:
        """Choose the sets whose outputs are checked, at random; one of another case is among them if there is one."""
        order = self.rng.sample(range(len(cases)), len(cases))
        other = next((index for index in order if cases[index]), None)
        return sorted(order, key=lambda index: index != other)[:checks]

    def _draw_some(self, places: Sequence[torch.Tensor], cases: Sequence[int]) -> None:
        """Draw some sets, note how long one takes, and keep a few if that is long. Raises ReferenceFailure."""
        seeds = [secrets.randbits(31) for _ in cases]
        begin = time.monotonic()
        self.built.problem.draw_sets(cases, seeds, self.specs, places)
        settle(self.device)
        self._quickest = min(self._quickest, (time.monotonic() - begin) / len(cases))
        self.built.seconds_a_set = self._quickest
        self._timed += len(cases)
        if self._seconds_a_burst > _DRAWING_SECONDS[self.device.kind] / 2:
            for place in places[: self._most_kept - len(self._kept)]:
                self._kept.append(place.clone())

    @property
    def _is_slow(self) -> bool:
        return self._seconds_a_burst > _DRAWING_SECONDS[self.device.kind]

    @property
    def _seconds_a_burst(self) -> float:
        """Seconds to draw the inputs of the longest burst."""
        return self.built.seconds_a_set * self.longest

    def _answers(self, asked: Sequence[tuple[int, torch.Tensor]]) -> list[trial.Trial]:
        """Return the trials of some sets of these cases: small ones are answered side by side."""
        works = [functools.partial(self._answer, case=case, data=data) for case, data in asked]
        return raised(side_by_side(self.built.problem, works, self.built.at_once(self.device)))

    def _answer(self, problem: Answering, case: int, data: torch.Tensor) -> trial.Trial:
        inputs = Inputs(self.structure, self.specs, data)
        like, spares = self.example.expected, self.built.spares_inputs
        right = trial.answer(problem, self.spec, self.device, case, inputs, like, spares=spares)
        right.forget_inputs()
        return right

    def _case(self) -> int:
        """Return the number of the fixed case for the next input set; 0 for problems without cases, which draw at random.

        Fixed cases are known to the candidate after the checks, so it could return an answer that it has kept. Others of
        the same form come between, where that answer is wrong. They are the minority, so that medians are the timed
        case's.
        """
        return self.rng.choice(self._alike) if self._alike and self.rng.random() < _OTHER_CASES else 0

    def _is_alike(self, number: int) -> bool:
        """Return True if a fixed case has the form of the timed one: it can take its place in the arenas."""
        problem, example = self.built.problem, self.example
        drawn = draw(problem, self.device, number)
        if drawn.specs != self.specs or json.dumps(drawn.structure) != json.dumps(self.structure):
            return False
        expected = trial.answer(problem, self.spec, self.device, number, drawn, trial.UNJUDGED).expected
        same = [leaf.spec for leaf in expected.leaves] == [leaf.spec for leaf in example.expected.leaves]
        return same and json.dumps(expected.structure) == json.dumps(example.expected.structure)

"""Excerpts of large problems: some rows of the batch, for questions that would cost too much on all rows.

An excerpt is a problem of the same kind. If each row of the output depends only on the same row of the inputs, what a
float64 run shows for some rows holds for all. Otherwise (statistics over the batch, losses) the excerpt still shows
which inputs the reference tolerates and which mutants pass; the noise is then measured on all rows (`noise`).
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...devices.base import Device
from ...shared import small_floats, tree
from ...shared.reference_failure import ReferenceFailure
from ...shared.running_problem import Answer, Call, Counted, Part, PreciseRun, RunningProblem
from ..comparison.compare import is_measured
from ..comparison.structures import same
from ..runners.work import settle
from .inputs import Inputs

#: Approximate size of an excerpt's inputs and of what the reference makes of them, in bytes.
_BYTES = 32 << 20
#: How far rows of the output may be from those of an excerpt, relative to their size. Another algorithm stays below
#: this; other data does not.
_ALIKE = 0.03


@dataclass(frozen=True, slots=True)
class Excerpt:
    """How a problem is cut along the first dimension."""

    rows: int
    #: Number of rows in all.
    of: int
    #: For each input tensor, whether it is cut.
    cut: tuple[bool, ...]
    #: True if each row of the output depends only on the same row of those inputs.
    separable: bool = False

    def pick(self, inputs: Inputs, which: torch.Tensor, device: Device) -> Inputs:
        """Return the rows `which` of an input set, as a set of its own."""
        tensors = [
            tensor.index_select(0, which) if cut else tensor
            for tensor, cut in zip(inputs.tensors(), self.cut, strict=True)
        ]
        specs = [tree.describe(tensor) for tensor in tensors]
        master = torch.zeros(tree.layout(specs)[1], dtype=torch.uint8, device=device.torch_device)
        for view, tensor in zip(tree.views(master, specs), tensors, strict=True):
            view.copy_(tensor)
        return Inputs(inputs.structure, specs, master)

    def telling_rows(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the rows that show most about an answer: half of them the largest ones, the others at random."""
        device = values[0].device
        sizes = torch.zeros(self.of, device=device)
        for value in values:
            if is_measured(value) and value.numel():
                largest_of_each = torch.linalg.vector_norm(value.reshape(self.of, -1), math.inf, dim=1)
                sizes = torch.maximum(sizes, largest_of_each.float().nan_to_num_(0.0))
        largest = torch.topk(sizes, (self.rows + 1) // 2).indices
        others = torch.randperm(self.of, device=device)
        others = others[~torch.isin(others, largest)][: self.rows - len(largest)]
        return torch.cat((largest, others)).sort().values


class Excerpted(RunningProblem):
    """A problem on some rows of its inputs, with other rows each time. Everything else is the problem's own."""

    def __init__(self, problem: RunningProblem, excerpt: Excerpt) -> None:
        self._problem = problem
        self._excerpt = excerpt
        #: The inputs that were drawn last, and the first rows of the parts that were not used yet.
        self._drawn: tuple[Any, list[torch.Tensor]] = (None, [])
        self._unused: list[int] = []
        self.symbol, self.instantiate = problem.symbol, problem.instantiate
        self.init_args, self.init_kwargs, self.init_seed = problem.init_args, problem.init_kwargs, problem.init_seed
        self.precision, self.gradients = problem.precision, problem.gradients
        self.training, self.buffers = problem.training, problem.buffers
        self.workloads, self.cases = problem.workloads, problem.cases
        self.constant_names, self.constants = problem.constant_names, problem.constants
        self.parameter_bytes, self.input_bytes = problem.parameter_bytes, None

    @contextlib.contextmanager
    def drawn(self, number: int, seed: int) -> Iterator[tuple[Any, list[torch.Tensor]]]:
        excerpt = self._excerpt
        # Drawing all rows takes long. But tensors that are not cut must change too, so then everything is drawn again.
        if not self._unused or not all(excerpt.cut):
            with self._problem.drawn(number, seed) as (structure, tensors):
                self._drawn = structure, [tensor.clone() for tensor in tensors]
            self._unused = list(range(0, excerpt.of - excerpt.rows + 1, excerpt.rows))
            random.Random(seed).shuffle(self._unused)
        structure, tensors = self._drawn
        start = self._unused.pop()
        rows = [
            tensor[start : start + excerpt.rows].clone() if cut else tensor
            for tensor, cut in zip(tensors, excerpt.cut, strict=True)
        ]
        yield structure, rows

    def draw_sets(self, *given: Any) -> None:
        raise NotImplementedError("an excerpt is never timed")

    def answer(self, call: Call) -> Answer:
        return self._problem.answer(call)

    def precise(self, runs: Sequence[PreciseRun]) -> list[tuple[Any, list[torch.Tensor]] | None]:
        return self._problem.precise(runs)

    def answer_together(self, calls: Sequence[Call]) -> list[Answer | BaseException]:
        return self._problem.answer_together(calls)

    def precise_together(
        self, runs: Sequence[PreciseRun]
    ) -> list[tuple[Any, list[torch.Tensor]] | BaseException | None]:
        return self._problem.precise_together(runs)

    def count(self, *given: Any) -> Counted:
        return self._problem.count(*given)

    def parameters(self) -> Mapping[str, tuple[tree.TensorSpec, int]]:
        return self._problem.parameters()

    def values(self, parts: Sequence[Part]) -> contextlib.AbstractContextManager[list[torch.Tensor]]:
        return self._problem.values(parts)

    @property
    def held_bytes(self) -> int:
        return self._problem.held_bytes

    @property
    def deaths(self) -> int:
        """See RunningProblem."""
        return self._problem.deaths

    def pardon(self, deaths: int) -> bool:
        return self._problem.pardon(deaths)


def find(
    problem: RunningProblem,
    device: Device,
    inputs: Inputs,
    structure: Any,
    values: Sequence[torch.Tensor],
    seed: int,
    nbytes: int,
) -> Excerpt | None:
    """Find how a problem can be cut. Return None if it cannot.

    Args:
        problem: The problem.
        device: The device.
        inputs: One input set.
        structure: The structure of the reference's answer to it.
        values: The tensors of that answer.
        seed: The seed of that answer.
        nbytes: The memory that the whole problem takes, in bytes.

    Raises:
        ReferenceFailure: Memory ran out; other failures of the reference only rule out a cut.
    """
    found = None
    for of, cut in _cuts(inputs, values):
        rows = max(2 if of >= 4 else 1, min(of // 2, _BYTES * of // max(nbytes, 1)))
        excerpt = Excerpt(rows, of, cut)
        with contextlib.suppress(_UnlikeError):
            whole = structure, values
            if all(_holds(problem, device, inputs, whole, seed, excerpt, start) for start in (0, of - rows)):
                return Excerpt(rows, of, cut, separable=True)
            found = found or excerpt
    return found


class _UnlikeError(Exception):
    """A reference does not accept cut inputs, or its answer to them is of another kind."""


def _cuts(inputs: Inputs, values: Sequence[torch.Tensor]) -> Iterator[tuple[int, tuple[bool, ...]]]:
    """Yield possible numbers of rows, and for each the tensors that have them.

    The rows are those of the output, or else those of the largest input.
    """
    tensors = inputs.tensors()
    if not tensors:
        return
    largest = max(tensors, key=lambda tensor: tensor.nbytes)
    wanted = [value.shape[0] for value in values[:1] if value.dim()]
    wanted += [largest.shape[0]] if largest.dim() else []
    seen = set()
    for of in dict.fromkeys(wanted):
        those = tuple(tensor.dim() > 0 and tensor.shape[0] == of for tensor in tensors)
        first = tuple(at == those.index(True) for at in range(len(those))) if any(those) else those
        for cut in (those, first):
            chosen = [tensor for tensor, is_cut in zip(tensors, cut, strict=True) if is_cut]
            if of < 2 or not chosen or (of, cut) in seen or any(_is_symmetric(tensor) for tensor in chosen):
                continue
            seen.add((of, cut))
            yield of, cut


def _is_symmetric(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1] and small_floats.equal(tensor, tensor.T)


def _holds(
    problem: RunningProblem,
    device: Device,
    inputs: Inputs,
    whole: tuple[Any, Sequence[torch.Tensor]],
    seed: int,
    excerpt: Excerpt,
    start: int,
) -> bool:
    """Return True if an excerpt's answer is a part of the `whole` answer. Raises _UnlikeError.

    A plain number is no part of anything: only one that is always the same leaves the answer separable.
    """
    structure, values = whole
    which = torch.arange(start, start + excerpt.rows, device=device.torch_device)
    part = excerpt.pick(inputs, which, device)
    try:
        returned = problem.answer(Call(0, part.structure, part.specs, part.master, seed))
        made_structure, made = returned.structure, returned.values
        settle(device)
    except ReferenceFailure as failure:
        if failure.lacked_memory:
            raise
        raise _UnlikeError from failure
    except torch.OutOfMemoryError as error:
        raise ReferenceFailure("reference", error) from error
    if len(made) != len(values) or any(one.dtype != other.dtype for one, other in zip(made, values, strict=True)):
        raise _UnlikeError
    parts = all(_is_part(one, value, which, excerpt) for one, value in zip(made, values, strict=True))
    return bool(values) and parts and same(made_structure, structure)


def _is_part(made: torch.Tensor, value: torch.Tensor, which: torch.Tensor, excerpt: Excerpt) -> bool:
    if value.dim() == 0 or value.shape[0] != excerpt.of or made.shape != (excerpt.rows, *value.shape[1:]):
        return False
    rows = value.index_select(0, which)
    if not is_measured(rows):
        return small_floats.equal(made, rows)
    off, size = (made - rows).abs_().float(), rows.float()
    typical = float(size.square().mean().sqrt()) if size.numel() else 0.0
    return bool((off <= _ALIKE * (size.abs_() + typical)).all())

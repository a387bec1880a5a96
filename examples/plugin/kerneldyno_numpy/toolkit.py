"""The toolkit "pairwise": problems that are a plain function of two vectors.

The reference defines `reference(a, b)` and optionally `SIZE`; the candidate defines `pairwise(a, b)`. Judges load this
module. It executes the reference, which is trusted, and never the candidate, which is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kerneldyno.evaluator.toolkits import Problem, ProblemSpec, ReferenceFailure, Toolkit
from kerneldyno.evaluator.toolkits.base import run_source

DEFAULT_SIZE = 4096


class PairwiseProblem(Problem):
    """A problem with two vectors as inputs and the reference's result as output."""

    symbol = "pairwise"
    instantiate = False

    def __init__(self, spec: ProblemSpec, device: torch.device) -> None:
        module = run_source(spec.reference_code)
        self._reference: Callable[..., Any] = module.reference
        self._size = int(getattr(module, "SIZE", DEFAULT_SIZE))
        self._device = device
        self.init_kwargs = {}
        self.timed = self._reference

    def inputs(self, trial: int, seed: int) -> tuple[Any, ...]:
        generator = torch.Generator(self._device).manual_seed(seed)
        return tuple(torch.randn(self._size, device=self._device, generator=generator) for _ in range(2))

    def expected(self, trial: int, arguments: Sequence[Any], seed: int) -> Any:
        return self._reference(*arguments)

    def precise(self, arguments: Sequence[Any], seed: int) -> Any:
        return self._reference(*(vector.double() for vector in arguments))


class PairwiseToolkit(Toolkit):
    """Toolkit that builds problems from a function."""

    name = "pairwise"

    def build(self, spec: ProblemSpec, device: torch.device, seed: int) -> Problem:
        try:
            return PairwiseProblem(spec, device)
        except BaseException as error:  # whatever it is, it is the problem's fault and not the candidate's
            raise ReferenceFailure("build", error) from error


TOOLKIT = PairwiseToolkit()

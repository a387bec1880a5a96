"""A toolkit's problem in this process, behind the interface that the judge knows (`shared/running_problem.py`).

It runs in the process of a problem (`runner/problem.py`), in programs that judge nobody (`vet`), and in tests. It keeps
the reference's settings of torch apart from those of the process.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..devices import hostmemory
from ..devices.base import Device
from ..shared import small_floats, tree
from ..shared.gradients import Gradients
from ..shared.reference_failure import ReferenceFailure
from ..shared.running_problem import Answer, Call, Counted, Part, PreciseRun, RunningProblem
from ..shared.spec import ProblemSpec
from . import toolkits, torch_settings
from .counting import count

#: If more than this is held, in bytes, it is worth the time to look for reference cycles.
_MUCH_BYTES = 1 << 30


class LocalProblem(RunningProblem):
    """One built problem whose reference runs in this process."""

    def __init__(self, problem: torch_settings.OwnSettingsProblem, device: Device, before: int = 0) -> None:
        """Take over a problem that was just built. Raises ReferenceFailure if its constructor's arguments cannot travel.

        `before` is the device memory in bytes that this process had allocated before.
        """
        self._problem = problem
        self._before = before
        self._device = device
        self.symbol, self.instantiate = problem.symbol, problem.instantiate
        self.init_seed, self.precision, self.training = problem.init_seed, problem.precision, problem.training
        self.workloads, self.cases = problem.workloads, problem.cases
        with _named("build", "get_init_inputs()"):
            self.init_args, positional = tree.flatten(list(problem.init_args), are_arguments=True)
            self.init_kwargs, named = tree.flatten(problem.init_kwargs, are_arguments=True)
            if positional or named:
                raise tree.UnsupportedValueError("a tensor; pass shapes and build tensors in the constructor")
        self.constants = problem.state()
        self.constant_names = list(self.constants)
        self.parameter_bytes, self.input_bytes = problem.parameter_bytes(), problem.input_bytes()

    # Both become known when inputs are drawn for the first time.
    @property
    def gradients(self) -> Gradients | None:  # type: ignore[override]
        """See RunningProblem."""
        return self._problem.gradients

    @property
    def buffers(self) -> Sequence[str]:  # type: ignore[override]
        """See RunningProblem."""
        return self._problem.buffers

    @contextlib.contextmanager
    def drawn(self, number: int, seed: int) -> Iterator[tuple[Any, list[torch.Tensor]]]:
        with _named("inputs", "get_inputs()"), self._measured_once():
            found = tree.flatten(list(self._problem.inputs(number, seed)), are_arguments=True)
        yield found

    @contextlib.contextmanager
    def _measured_once(self) -> Iterator[None]:
        if self.drawing_bytes is not None:
            yield
            return
        with hostmemory.measured() as peak:
            yield
        self.drawing_bytes = peak.nbytes or 0

    def draw_sets(
        self,
        numbers: Sequence[int],
        seeds: Sequence[int],
        specs: Sequence[tree.TensorSpec],
        into: Sequence[torch.Tensor],
    ) -> None:
        with self._problem.settings.in_force():  # reading the settings takes as long as drawing a small set
            for number, seed, region in zip(numbers, seeds, into, strict=True):
                with self.drawn(number, seed) as (_, tensors):
                    if [tuple(tensor.shape) for tensor in tensors] != [spec.shape for spec in specs]:
                        error = ValueError("get_inputs() must return the same shapes to be timed")
                        raise ReferenceFailure("inputs", error)
                    store(tensors, specs, region)

    def answer(self, call: Call) -> Answer:
        found = self.called(call)
        return replace(found, values=list(map(small_floats.cloned, found.values)))

    def called(self, call: Call) -> Answer:
        """Do the same, but return the values themselves, which may share memory with the region."""
        region = call.region
        version = region._version
        with _named("reference", "the reference"), contextlib.ExitStack() as stack:
            used = stack.enter_context(self._device.measured()) if call.measured else None
            arguments = tree.rebuild(call.structure, tree.views(region, call.specs), self._device.torch_device)
            returned, values = tree.flatten(self._problem.expected(call.number, arguments, call.seed))
            first, last = region.data_ptr(), region.data_ptr() + region.numel()
            aliased = any(first <= value.data_ptr() < last for value in values)
            values = [tree.resolved(value.detach()) for value in values]
            if call.measured:
                self._device.synchronize()
        return Answer(returned, values, region._version != version, aliased, None if used is None else used.peak)

    def precise(self, runs: Sequence[PreciseRun]) -> list[tuple[Any, list[torch.Tensor]] | None]:
        found: list[tuple[Any, list[torch.Tensor]] | None] = []
        for run in runs:
            arguments = tree.rebuild(run.structure, run.tensors, self._device.torch_device)
            problem, bits = self._problem, run.bits
            result = (
                problem.precise(arguments, run.seed) if bits is None else problem.precise_at(arguments, run.seed, bits)
            )
            if result is None:
                found.append(None)
                continue
            returned, values = tree.flatten(result)
            values = [tree.resolved(value.detach()) for value in values]
            # The next run may write to the same memory.
            found.append((returned, values if len(runs) == 1 else [small_floats.cloned(value) for value in values]))
        return found

    def count(self, structure: Any, specs: Sequence[tree.TensorSpec], region: torch.Tensor, seed: int) -> Counted:
        arguments = tree.rebuild(structure, tree.views(region, specs), self._device.torch_device)
        call: Callable[[], Any] = lambda: self._problem.expected(0, arguments, seed)  # noqa: E731
        return count(call, self._device)

    def parameters(self) -> Mapping[str, tuple[tree.TensorSpec, int]]:
        found = self._problem.parameters()
        return {
            name: (tree.describe(tensor, keep_layout=False), tree.checksum(tensor)) for name, tensor in found.items()
        }

    @contextlib.contextmanager
    def values(self, parts: Sequence[Part]) -> Iterator[list[torch.Tensor]]:
        known = self._problem.parameters()
        yield [
            small_floats.raw(known[part.name].detach()).contiguous().view(-1)[part.start : part.start + part.count]
            for part in parts
        ]

    @property
    def held_bytes(self) -> int:
        if self._device.allocated_bytes() - self._before > _MUCH_BYTES:
            gc.collect()  # memory that only reference cycles hold is not kept
        return self._device.allocated_bytes() - self._before


def build_local(spec: ProblemSpec, device: Device, seed: int) -> LocalProblem:
    """Build the problem of `spec` in this process under a secret `seed`. Raises ReferenceFailure."""
    before = device.allocated_bytes()
    with hostmemory.measured() as peak:
        problem = torch_settings.build(toolkits()[spec.toolkit], spec, device.torch_device, seed)
    local = LocalProblem(problem, device, before)
    local.construction_bytes = peak.nbytes
    return local


def store(tensors: Sequence[torch.Tensor], specs: Sequence[tree.TensorSpec], region: torch.Tensor) -> None:
    """Copy tensors to their places in `region`."""
    for view, tensor in zip(tree.views(region, specs), tensors, strict=True):
        small_floats.raw(view).copy_(small_floats.raw(tensor))


@contextlib.contextmanager
def _named(stage: str, who: str) -> Iterator[None]:
    """Raise what the body raises as a ReferenceFailure. A value that cannot travel names `who` returned it."""
    try:
        yield
    except ReferenceFailure:
        raise
    except tree.UnsupportedValueError as error:
        raise ReferenceFailure(stage, TypeError(f"{who} returned {error}")) from error
    except BaseException as error:
        raise ReferenceFailure(stage, error) from error

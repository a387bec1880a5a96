"""Problems, which are references that were built and examined once and are then kept, found by their identity.

Everything that executes a reference goes through this module. So the server can be told (if a reference kills the
judge, the attempt identifies it), and no reference runs while a candidate is being timed.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kerneldyno.v1 import evaluation_pb2 as pb

from ...devices import hostmemory
from ...devices.base import Device
from ...shared.spec import EvalSpec
from ...toolkits import Problem, toolkits
from ...toolkits.torch_settings import TorchSettings, build
from ..memory.footprint import WITH_PRECISE, Footprint, constructing
from ..memory.surplus import most_ahead
from ..runners.lease import Lease
from . import trial
from .cases import with_all_cases
from .counting import Counted, count
from .examination import Examination, examine
from .excerpt import Excerpted, find
from .inputs import draw
from .stress import Stress, Trait, trait

_log = logging.getLogger("kerneldyno.judge")

#: Most built problems that are kept, and their limit as a share of the device's memory. Each holds its model's
#: parameters, also in float64.
_KEPT = 32
_KEPT_SHARE = 1 / 8
#: A reference that keeps more than this in addition to its parameters, in bytes, is not kept itself.
_HOARDED_BYTES = 1 << 30


class NeedsMoreError(Exception):
    """A problem needs more memory than it may have now, which is known from its sizes: `nbytes` at least."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(f"{nbytes} bytes")
        self.nbytes = nbytes


@dataclass(slots=True)
class Announce:
    """Tells the server that a reference of this attempt begins or ends to execute, and knows its memory limit."""

    tell: Callable[[str], Coroutine[Any, Any, None]]
    #: What the judge may allocate for it, in bytes; None for whatever there is.
    within: int | None = None


@dataclass(slots=True)
class BuiltProblem:
    """A problem, and what the judge knows about it."""

    problem: Problem
    examination: Examination
    footprint: Footprint
    #: How the noise of its answers is measured.
    method: trial.Method = field(default_factory=trial.Method)
    #: True if its reference works on the inputs themselves and not on a copy: they are large, and it does not change
    #: them.
    spares_inputs: bool = False
    #: The torch settings under which its reference executes.
    settings: TorchSettings = field(default_factory=TorchSettings)
    #: The secret seed under which it was built.
    seed: int = 0
    #: How many calls of its reference can be queued ahead of the device, as far as seen; 0 if not even one.
    queueable: int = 1 << 30
    #: Seconds to draw one input set, when that was last measured.
    seconds_a_set: float = 0.0
    #: What a call of its reference consists of, once counted.
    counted: Counted | None = None
    #: Device memory in bytes that was taken when the problem was built and examined, and not freed.
    retained: int = 0
    #: Number of lanes that judge a candidate of it now.
    users: int = 0

    @property
    def nbytes(self) -> int:
        """Device memory that it takes as long as it is kept, in bytes."""
        return max(WITH_PRECISE * self.footprint.parameters, self.retained)

    @property
    def hoards(self) -> bool:
        """True if its reference keeps more than parameters from call to call.

        Then nobody knows how much that will be.
        """
        return self.retained > WITH_PRECISE * self.footprint.parameters + _HOARDED_BYTES

    def prepare(
        self,
        spec: EvalSpec,
        device: Device,
        number: int,
        kind: Stress | None = None,
        stage: trial.Stage | None = None,
        *,
        rough: bool = False,
    ) -> trial.Trial:
        """Draw inputs, under a kind of stress if given, and run the reference on them. Raises ReferenceFailure.

        Args:
            spec: What the client asked for.
            device: The device.
            number: The number of the trial.
            kind: The stress; None for nominal inputs.
            stage: Copies large inputs to the runner before the reference works on them.
            rough: Whether only the form of the outputs is needed, and not by how much they may be off.
        """
        vary = None if kind is None else self.examination.vary(kind, device)
        spares = self.spares_inputs and stage is not None
        return trial.prepare(
            self.problem,
            spec,
            device,
            number,
            vary,
            like=trial.UNJUDGED if rough else None,
            method=self.method,
            spares=spares,
            stage=stage if spares else None,
        )


class Problems:
    """The judge's problems."""

    def __init__(self, device: Device, lease: Lease) -> None:
        self.device = device
        self._lease = lease
        self._built: OrderedDict[str, BuiltProblem] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._built)

    def find(self, spec: EvalSpec) -> BuiltProblem | None:
        """Return the problem of `spec` if it is kept."""
        return self._built.get(spec.problem_key)

    def recall(self, spec: EvalSpec) -> BuiltProblem | None:
        """Return the problem of `spec` if it is kept, and count this as a use."""
        built = self.find(spec)
        if built is not None:
            self.hits += 1
            self._built.move_to_end(spec.problem_key)
        return built

    async def get(self, spec: EvalSpec, announce: Announce) -> BuiltProblem:
        """Return the problem of `spec`. Build and examine it now if it is not kept.

        Raises ReferenceFailure, NeedsMoreError.
        """
        key = spec.problem_key
        async with self.executing(announce):
            if (built := self.recall(spec)) is None:
                self.misses += 1
                before = self.device.allocated_bytes()
                built = self._built[key] = self._meet(spec, announce.within)
                built.retained = self.device.allocated_bytes() - before
                if built.hoards:
                    gc.collect()  # memory that only reference cycles hold is not kept
                    built.retained = self.device.allocated_bytes() - before
                self._make_room(built)
            return built

    @contextlib.contextmanager
    def used(self, spec: EvalSpec, built: BuiltProblem) -> Iterator[None]:
        """Count a lane as a user for the body. A problem that hoards memory is dropped after its last user."""
        built.users += 1
        try:
            yield
        finally:
            built.users -= 1
            if built.hoards and not built.users and self.find(spec) is built:
                self.forget(spec)

    def forget(self, spec: EvalSpec) -> None:
        """Drop the problem of `spec`: its reference may hold memory that it should not."""
        self._built.pop(spec.problem_key, None)

    @property
    def idle_bytes(self) -> int:
        """Device memory in bytes of the problems that nobody uses now."""
        return sum(built.nbytes for built in self._built.values() if not built.users)

    def drop_one(self) -> bool:
        """Drop the least recently used problem that takes memory and has no user. Return False if there is none."""
        for key, built in self._built.items():
            if not built.users and built.nbytes:
                del self._built[key]
                return True
        return False

    def clear(self) -> None:
        """Drop all problems, because somebody needs the memory."""
        self._built.clear()

    def _make_room(self, newest: BuiltProblem) -> None:
        room = self.device.at_most(1 << 62, _KEPT_SHARE)
        taken = sum(built.nbytes for built in self._built.values())
        while len(self._built) > _KEPT or (taken > room and next(iter(self._built.values())) is not newest):
            _, oldest = self._built.popitem(last=False)
            taken -= oldest.nbytes

    def _meet(self, spec: EvalSpec, within: int | None) -> BuiltProblem:
        """Build a problem and examine it, its memory first. Raises NeedsMoreError.

        That is raised before anything large is allocated, if the sizes of inputs show that `within` bytes do not
        suffice.
        """
        device = self.device
        # The seed is secret and belongs to this judge alone, so no candidate can have computed anything for it in
        # advance.
        seed = secrets.randbits(31)
        with hostmemory.measured() as building:
            problem = build(toolkits()[spec.toolkit], spec, device.torch_device, seed)
        least = problem.parameter_bytes() + 2 * (problem.input_bytes() or 0)  # as drawn, and as kept
        if within is not None and least > within:
            raise NeedsMoreError(least)
        with hostmemory.measured() as drawing:
            inputs = draw(problem, device, 0)
        with device.measured() as used:
            # Measure nothing of the answer here. How large answers are compared is decided later.
            first = trial.answer(problem, spec, device, 0, inputs, trial.UNJUDGED)
        working = 2 * (inputs.set_bytes + first.slot_bytes)
        if used.peak is not None:  # the copy of the inputs does not belong to the reference
            working = max(first.slot_bytes, used.peak - inputs.set_bytes)
        ahead = most_ahead(device, inputs.set_bytes, first.slot_bytes)
        parameters = problem.parameter_bytes()
        footprint = Footprint(
            *(inputs.set_bytes, first.slot_bytes, working, parameters, ahead),
            construction=constructing(parameters, building.nbytes),
            drawing=drawing.nbytes or 0,
            secret=sum(tensor.numel() * tensor.element_size() for tensor in problem.state().values()),
        )
        footprint = with_all_cases(footprint, problem, spec, device)
        counted = None
        if problem.cases is None and (device.kind != "cpu" or footprint.is_large):
            with device.measured() as used:
                counted = count(problem, device, first)
            if used.peak is not None and counted.is_known:  # without the judge's copy of the output
                working = min(working, max(first.slot_bytes, used.peak - inputs.set_bytes))
            footprint = replace(footprint, flops=counted.flops, working=working)
        excerpt = None
        examined: Problem = problem
        traits: list[Trait] | None = None
        if footprint.is_large and problem.cases is None:
            values = [leaf.value for leaf in first.expected.leaves]
            excerpt = find(problem, device, inputs, values, first.seed, footprint.inputs + footprint.working)
            if excerpt is not None:
                examined = Excerpted(problem, excerpt)
                traits = [trait(tensor) for tensor in inputs.tensors()]
        spares = excerpt is not None and not first.mutates
        del first, inputs
        examination = examine(examined, spec, device, traits)
        method = trial.Method(excerpt, self._own_precision(examined, spec, counted))
        return BuiltProblem(problem, examination, footprint, method, spares, problem.settings, seed, counted=counted)

    def _own_precision(self, problem: Problem, spec: EvalSpec, counted: Counted | None) -> pb.Precision.ValueType:
        if counted is None or not counted.may_use_tf32:
            return pb.PRECISION_UNSPECIFIED
        try:
            return trial.unused_precision(problem, spec, self.device, pb.PRECISION_TF32)
        except Exception as error:  # the reference has no rounded form, or there is no memory for it
            _log.info("event=precision_unknown detail=%r", f"{type(error).__name__}: {error}"[:300])
            return pb.PRECISION_UNSPECIFIED

    async def count(self, built: BuiltProblem, example: trial.Trial, announce: Announce) -> Counted:
        """Return what a call of a reference consists of, and count it now if necessary. Raises OutOfMemoryError."""
        if built.counted is None:
            async with self.executing(announce):
                built.counted = count(built.problem, self.device, example)
        return built.counted

    @contextlib.asynccontextmanager
    async def executing(self, announce: Announce) -> AsyncIterator[None]:
        """Announce that a reference executes in the body. Only one does at a time, and never during a timing.

        If `announce` has a memory limit, it applies to the body. Without a limit the reference may take whatever is
        free, since it then takes it from nobody else.
        """
        async with self._lease.work():
            await announce.tell("begin")
            try:
                if announce.within is not None:
                    self.device.keep_within(self.device.allocated_bytes() + announce.within)
                yield
            finally:
                self.device.keep_within(None)
                await announce.tell("end")

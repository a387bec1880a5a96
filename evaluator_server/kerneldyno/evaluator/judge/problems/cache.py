"""References, built and examined once and kept hot: the problems that candidates are judged against, by identity.

Everything that executes a reference goes through here, so that the server can be told (a reference that kills the
judge is known by its attempt) and so that no reference runs while a candidate is being timed.
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

from ...devices.base import Device
from ...shared.spec import EvalSpec
from ...toolkits import Problem, toolkits
from ...toolkits.torch_settings import TorchSettings, seclude
from ..comparison.compare import Expected
from ..memory.footprint import WITH_PRECISE, Footprint
from ..memory.surplus import most_ahead
from ..runners.lease import Lease
from . import trial
from .counting import Counted, count
from .examination import Examination, examine
from .excerpt import Excerpted, find
from .inputs import draw
from .stress import Stress, Trait, trait

_log = logging.getLogger("kerneldyno.judge")

#: Built problems that are kept, and what they may take of the device's memory together; each holds its model's parameters,
#: and these in float64.
_KEPT = 32
_KEPT_SHARE = 1 / 8
#: A reference that keeps more than this beside its parameters is not kept itself, in bytes.
_HOARDED_BYTES = 1 << 30


class NeedsMoreError(Exception):
    """A problem needs more memory than it may have now, as its sizes alone tell: `nbytes` at least."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(f"{nbytes} bytes")
        self.nbytes = nbytes


@dataclass(slots=True)
class Announce:
    """Tells the server that a reference of this attempt begins or ends to execute, and knows what it may take."""

    tell: Callable[[str], Coroutine[Any, Any, None]]
    #: What the judge may allocate for it, in bytes; None: whatever there is.
    within: int | None = None


@dataclass(slots=True)
class BuiltProblem:
    """A problem and what has been learnt about it."""

    problem: Problem
    examination: Examination
    footprint: Footprint
    #: How its answers' noise is measured.
    method: trial.Method = field(default_factory=trial.Method)
    #: Whether its reference works on inputs themselves, and not on a copy: they are large, and it leaves them as they are.
    spares_inputs: bool = False
    #: Those of torch that its reference executes under.
    settings: TorchSettings = field(default_factory=TorchSettings)
    #: What it was built under; secret.
    seed: int = 0
    #: How many calls of its reference can be queued ahead of the device, as far as has been seen; 0: not even one.
    queueable: int = 1 << 30
    #: How long one input set took to draw, in seconds, when it was last done.
    seconds_a_set: float = 0.0
    #: What a call of its reference is made of, once counted.
    counted: Counted | None = None
    #: Device memory that was taken when it was met, and not given back, in bytes.
    retained: int = 0
    #: Lanes that judge a candidate of it now.
    users: int = 0

    @property
    def nbytes(self) -> int:
        """Device memory that it takes as long as it is kept."""
        return max(WITH_PRECISE * self.footprint.parameters, self.retained)

    @property
    def hoards(self) -> bool:
        """Whether its reference keeps more than parameters from call to call: nobody knows how much that will be."""
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
        """Draw inputs under a kind of stress, if any, and run the reference on them. Raises ReferenceFailure.

        `stage` has a runner get a copy of large inputs before the reference works on them. A `rough` answer says what
        outputs look like, and nothing of how far they may be off.
        """
        vary = None if kind is None else self.examination.vary(kind, device)
        spares = self.spares_inputs and stage is not None
        return trial.prepare(
            self.problem,
            spec,
            device,
            number,
            vary,
            like=_UNJUDGED if rough else None,
            method=self.method,
            spares=spares,
            stage=stage if spares else None,
        )


#: What an answer is like with which nothing is compared.
_UNJUDGED = Expected(None, ())


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
        """Return the problem of `spec` if it is kept, as one that is used again."""
        built = self.find(spec)
        if built is not None:
            self.hits += 1
            self._built.move_to_end(spec.problem_key)
        return built

    async def get(self, spec: EvalSpec, announce: Announce) -> BuiltProblem:
        """Return the problem of `spec`, built and examined now if it is not kept.

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
                    gc.collect()  # what only cycles hold is not kept
                    built.retained = self.device.allocated_bytes() - before
                self._make_room(built)
            return built

    @contextlib.contextmanager
    def used(self, spec: EvalSpec, built: BuiltProblem) -> Iterator[None]:
        """Count a lane as a user for the body; a problem that hoards memory is not kept after its last one."""
        built.users += 1
        try:
            yield
        finally:
            built.users -= 1
            if built.hoards and not built.users and self.find(spec) is built:
                self.forget(spec)

    def forget(self, spec: EvalSpec) -> None:
        """Keep the problem of `spec` no longer: its reference may hold memory that it should not."""
        self._built.pop(spec.problem_key, None)

    @property
    def idle_bytes(self) -> int:
        """Device memory of the problems that are only kept for later."""
        return sum(built.nbytes for built in self._built.values() if not built.users)

    def drop_one(self) -> bool:
        """Drop the problem that takes memory and was not used for longest, if there is one; say whether."""
        for key, built in self._built.items():
            if not built.users and built.nbytes:
                del self._built[key]
                return True
        return False

    def clear(self) -> None:
        """Keep no problem: somebody needs the memory."""
        self._built.clear()

    def _make_room(self, newest: BuiltProblem) -> None:
        room = self.device.at_most(1 << 62, _KEPT_SHARE)
        taken = sum(built.nbytes for built in self._built.values())
        while len(self._built) > _KEPT or (taken > room and next(iter(self._built.values())) is not newest):
            _, oldest = self._built.popitem(last=False)
            taken -= oldest.nbytes

    def _meet(self, spec: EvalSpec, within: int | None) -> BuiltProblem:
        """Build a problem and find out about it: how much memory it takes first of all. Raises NeedsMoreError.

        That is raised before anything large is allocated, where the sizes of inputs tell that `within` bytes do not suffice.
        """
        device = self.device
        # The seed is secret and of this judge alone: no candidate can have computed anything ahead for it.
        seed = secrets.randbits(31)
        problem = seclude(lambda: toolkits()[spec.toolkit].build(spec, device.torch_device, seed))
        least = problem.parameter_bytes() + 2 * (problem.input_bytes() or 0)  # as drawn, and as kept
        if within is not None and least > within:
            raise NeedsMoreError(least)
        inputs = draw(problem, device, 0)
        with device.measured() as used:
            # As coarse as it gets: what large answers are to be compared with is found out later.
            first = trial.answer(problem, spec, device, 0, inputs, _UNJUDGED)
        working = 2 * (inputs.set_bytes + first.slot_bytes)
        if used.peak is not None:  # the inputs' copy is not the reference's
            working = max(first.slot_bytes, used.peak - inputs.set_bytes)
        ahead = most_ahead(device, inputs.set_bytes, first.slot_bytes)
        footprint = Footprint(inputs.set_bytes, first.slot_bytes, working, problem.parameter_bytes(), ahead)
        counted = None
        if problem.cases is None and (device.kind != "cpu" or footprint.is_large):
            with device.measured() as used:
                counted = count(problem, device, first)
            if used.peak is not None and counted.is_known:  # without the copy of the output that the judge makes
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
        except Exception as error:  # a reference without a rounded form, or no memory for it
            _log.info("event=precision_unknown detail=%r", f"{type(error).__name__}: {error}"[:300])
            return pb.PRECISION_UNSPECIFIED

    async def count(self, built: BuiltProblem, example: trial.Trial, announce: Announce) -> Counted:
        """Return what a call of a reference is made of, counted now if it has not been. Raises OutOfMemoryError."""
        if built.counted is None:
            async with self.executing(announce):
                built.counted = count(built.problem, self.device, example)
        return built.counted

    @contextlib.asynccontextmanager
    async def executing(self, announce: Announce) -> AsyncIterator[None]:
        """Announce that a reference executes in the body, one at a time, and never during somebody's timing.

        Who takes whatever memory there is takes it from nobody else.
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

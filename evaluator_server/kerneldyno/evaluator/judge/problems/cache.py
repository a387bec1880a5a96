"""Problems that are built and examined once and are then kept, found by their identity.

Each has a process of its own, in which its reference runs. The process ends when nobody has asked for a while, or when
somebody needs its memory; what the judge knows about the problem stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from ...devices.base import Device
from ...shared.enums import Precision
from ...shared.running_problem import Answering, Counted, RunningProblem
from ...shared.spec import EvalSpec, ProblemSpec
from ..memory.footprint import CONTEXT_BYTES, WITH_PRECISE, Footprint, constructing
from ..memory.surplus import most_ahead
from ..memory.together import most_passing, most_prepared, trials_together
from ..runners import work
from ..runners.lease import Lease
from ..runners.work import T
from . import forms, trial
from .cases import with_all_cases
from .examination import Examination, examine
from .excerpt import Excerpted, find
from .inputs import draw
from .side_by_side import side_by_side
from .stress import Stress, Trait, trait

_log = logging.getLogger("kerneldyno.judge")

#: Most processes of problems that are kept, for how many seconds after their last use, and their limit as a share of the
#: device's memory. Each holds its model's parameters, also in float64.
_KEPT = 32
_KEPT_SECONDS = {"cuda": 120.0, "cpu": 20.0}  # a process without a context is made quickly
_KEPT_SHARE = 1 / 8
#: Most problems that are known. What is known stays when the process ends.
_MOST_KNOWN = 256
#: A reference that keeps more than this in addition to its parameters, in bytes, is not kept itself.
_HOARDED_BYTES = 1 << 30

#: Builds a problem under a secret seed, which may have so many bytes of device memory, or None for what there is.
Begin = Callable[[ProblemSpec, int, int | None], Awaitable[RunningProblem]]


class NeedsMoreError(Exception):
    """A problem needs more memory than it may have now, which is known from its sizes: `nbytes` at least."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(f"{nbytes} bytes")
        self.nbytes = nbytes


@dataclass(slots=True)
class BuiltProblem:
    """A problem, and what the judge knows about it."""

    problem: RunningProblem
    examination: Examination
    footprint: Footprint
    #: How the noise of its answers is measured.
    method: trial.Method = field(default_factory=trial.Method)
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
    #: Number of lanes that judge a candidate of it now, and of those among them that wait for memory.
    users: int = 0
    waiting: int = 0

    @property
    def nbytes(self) -> int:
        """Device memory that it takes as long as its process lives, in bytes."""
        if not self.problem.is_alive:
            return 0
        kept = max(WITH_PRECISE * self.footprint.parameters, self.retained) + self.footprint.secret
        return kept + self.problem.arena_bytes + CONTEXT_BYTES

    @property
    def spares_inputs(self) -> bool:
        """True if its reference works on the inputs themselves and not on a copy."""
        return self.footprint.spares_inputs

    @contextlib.contextmanager
    def awaiting_memory(self) -> Iterator[None]:
        """Count a user as one that waits for memory, for the body. Whoever was admitted may end the process meanwhile."""
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

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
        must_be_finite: bool = False,
    ) -> trial.Trial:
        """Draw inputs, under a kind of stress if given, and run the reference on them.

        Args:
            spec: What the client asked for.
            device: The device.
            number: The number of the trial.
            kind: The stress; None for nominal inputs.
            stage: Copies large inputs to the runner before the reference works on them.
            rough: Whether only the form of the outputs is needed, and not by how much they may be off.
            must_be_finite: Whether an answer that is not finite is of no use.

        Raises:
            ReferenceFailure: The reference failed.
            NotFiniteError: The answer is not finite.
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
            must_be_finite=must_be_finite,
        )

    def at_once(self, device: Device) -> int:
        """Return how many trials may be prepared together."""
        if self.footprint.is_large or self.problem.cases is not None:
            return 1
        return max(1, trials_together(device, self.footprint.inputs, self.footprint.outputs))

    def prepare_together(
        self, spec: EvalSpec, device: Device, wanted: Sequence[tuple[int, Stress | None]]
    ) -> list[trial.Trial | BaseException]:
        """Prepare trials of these numbers and kinds side by side. Return for each what `prepare` returns or raises.

        Answers under stress must be finite.

        Raises ReferenceFailure if the problem's process ends.
        """

        def prepare(asked: Answering, number: int, kind: Stress | None) -> trial.Trial:
            vary = None if kind is None else self.examination.vary(kind, device)
            return trial.prepare(asked, spec, device, number, vary, method=self.method, must_be_finite=kind is not None)

        return side_by_side(
            self.problem, [functools.partial(prepare, number=number, kind=kind) for number, kind in wanted]
        )


class Problems:
    """The judge's problems."""

    def __init__(self, device: Device, lease: Lease, begin: Begin) -> None:
        """Create it. `begin` builds a problem."""
        self.device = device
        self._lease = lease
        self._begin = begin
        #: What ends processes while nobody waits for it, and the device memory in bytes that each will free.
        self._ending: dict[asyncio.Future[object], int] = {}
        self._built: OrderedDict[str, BuiltProblem] = OrderedDict()
        #: A lock for each problem that is being built.
        self._meeting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._built)

    def find(self, spec: EvalSpec) -> BuiltProblem | None:
        """Return the problem of `spec` if it is kept."""
        return self._built.get(spec.examined_key)

    def recall(self, spec: EvalSpec) -> BuiltProblem | None:
        """Return the problem of `spec` if it is kept, and count this as a use."""
        built = self.find(spec)
        if built is not None and built.problem.is_given_up and not built.users:
            self.forget(spec)  # what ended it may have passed
            return None
        if built is not None:
            self.hits += 1
            self._built.move_to_end(spec.examined_key)
        return built

    async def get(self, spec: EvalSpec, within: int | None) -> BuiltProblem:
        """Return the problem of `spec`. Build and examine it now if it is not kept.

        Raises ReferenceFailure, NeedsMoreError.
        """
        key = spec.examined_key
        async with self._meeting.setdefault(key, asyncio.Lock()):
            if (built := self.recall(spec)) is None:
                self.misses += 1
                # The seed is secret and belongs to this judge alone, so no candidate can have computed anything for it in
                # advance.
                seed = secrets.randbits(31)
                problem = await self._begin(spec.problem, seed, within)
                try:
                    built = await self.execute(lambda: self._meet(problem, spec, seed, within))
                except BaseException:
                    await problem.rest()
                    raise
                self._built[key] = built
                self._make_room()
            return built

    @contextlib.contextmanager
    def used(self, spec: EvalSpec, built: BuiltProblem) -> Iterator[None]:
        """Count a lane as a user for the body. The process of one that hoards memory ends after its last user."""
        built.users += 1
        try:
            yield
        finally:
            built.users -= 1
            if not built.users and (built.hoards or self.find(spec) is not built):
                self._end_later(built)

    def forget(self, spec: EvalSpec) -> None:
        """Drop the problem of `spec`: its reference may hold memory that it should not."""
        built = self._built.pop(spec.examined_key, None)
        if built is not None and not built.users:
            self._end_later(built)

    def _end_later(self, built: BuiltProblem) -> None:
        """End a problem's process while nobody waits for that."""
        nbytes = built.nbytes
        ending = asyncio.ensure_future(built.problem.rest())
        self._ending[ending] = nbytes
        ending.add_done_callback(self._ending.pop)

    @property
    def idle_bytes(self) -> int:
        """Device memory in bytes of the processes that nobody needs now, and of those that are being ended.

        Contexts of those that somebody waits with do not count: each lane has some set aside.
        """
        idle = sum(built.nbytes - (CONTEXT_BYTES if built.users else 0) for built in self._idle)
        return idle + sum(self._ending.values())

    @property
    def _unused(self) -> list[BuiltProblem]:
        """The problems with a process that nobody uses, the least recently used one first."""
        return [built for built in self._built.values() if not built.users and built.problem.is_alive]

    @property
    def _idle(self) -> list[BuiltProblem]:
        """Those, and after them the problems with a process whose users all wait for memory."""
        known = self._built.values()
        return self._unused + [built for built in known if 0 < built.users == built.waiting and built.problem.is_alive]

    async def rest_one(self) -> bool:
        """End the process of the first problem that no lane needs now. Return False if there is none."""
        if self._ending:
            await asyncio.wait(self._ending, return_when=asyncio.FIRST_COMPLETED)
            return True
        for built in self._idle[:1]:
            await built.problem.rest()
            return True
        return False

    async def clear(self) -> None:
        """End the processes of all problems that no lane needs now, because somebody needs the memory."""
        while await self.rest_one():
            pass

    async def quieten(self, built: BuiltProblem) -> None:
        """End the processes of all problems that nobody asks: this lane's own, and those that nobody uses.

        Their references may have left work on the device, which ends with them.
        """
        await self.clear()
        if not built.problem.is_asked:
            await built.problem.rest()

    async def expire(self) -> None:
        """End the processes of problems that nobody has asked for a while."""
        since = time.monotonic() - _KEPT_SECONDS[self.device.kind]
        for built in self._unused:
            if not built.users and built.problem.last_asked < since:
                await built.problem.rest()

    @property
    def nbytes(self) -> int:
        """Device memory in bytes that the processes of all problems take."""
        return sum(built.nbytes for built in self._built.values())

    @property
    def alive(self) -> int:
        """Number of problems that have a process now."""
        return sum(built.problem.is_alive for built in self._built.values())

    def _make_room(self) -> None:
        idle, room = self._unused, self.device.at_most(1 << 62, _KEPT_SHARE)
        while idle and (self.alive > _KEPT or sum(built.nbytes for built in idle) > room):
            self._end_later(idle.pop(0))
        while len(self._built) > _MOST_KNOWN:
            oldest = next(iter(self._built.values()))
            if oldest.users:
                break
            self._built.popitem(last=False)
            self._end_later(oldest)

    def _meet(self, problem: RunningProblem, spec: EvalSpec, seed: int, within: int | None) -> BuiltProblem:
        """Examine a problem that was built, its memory first. Raises NeedsMoreError.

        That is raised before anything large is allocated, if the sizes of inputs show that `within` bytes do not
        suffice.
        """
        device = self.device
        least = problem.parameter_bytes + 2 * (problem.input_bytes or 0)  # as drawn, and as kept
        if within is not None and least > within:
            raise NeedsMoreError(least)
        inputs = draw(problem, device, 0)
        # Compare nothing with the answer here. How large answers are compared is decided later.
        first = trial.answer(problem, spec, device, 0, inputs, trial.UNJUDGED, measured=True)
        forms.require_same_form(problem, first)
        working = 2 * (inputs.set_bytes + first.slot_bytes) if first.peak is None else max(first.slot_bytes, first.peak)
        ahead = most_ahead(device, inputs.set_bytes, first.slot_bytes)
        footprint = Footprint(
            *(inputs.set_bytes, first.slot_bytes, working, problem.parameter_bytes, ahead),
            construction=constructing(problem.parameter_bytes, problem.construction_bytes),
            drawing=problem.drawing_bytes or 0,
            secret=sum(tensor.numel() * tensor.element_size() for tensor in problem.constants.values()),
            passing=most_passing(device, inputs.set_bytes, first.slot_bytes),
            prepared=most_prepared(device, inputs.set_bytes, first.slot_bytes) if problem.cases is None else 0,
        )
        footprint = with_all_cases(footprint, problem, spec, device)
        counted = None
        if problem.cases is None and (device.kind != "cpu" or footprint.is_large):
            counted = problem.count(inputs.structure, inputs.specs, inputs.master.clone(), first.seed)
            if counted.peak is not None and counted.is_known:  # without a copy of the output
                working = min(working, max(first.slot_bytes, counted.peak))
            footprint = replace(footprint, flops=counted.flops, working=working)
        excerpt = None
        examined: RunningProblem = problem
        traits: list[Trait] | None = None
        if footprint.is_large and problem.cases is None:
            values = [leaf.value for leaf in first.expected.leaves]
            nbytes = footprint.inputs + footprint.working
            excerpt = find(problem, device, inputs, first.expected.structure, values, first.seed, nbytes)
            if excerpt is not None:
                examined = Excerpted(problem, excerpt)
                traits = [trait(tensor) for tensor in inputs.tensors()]
        footprint = replace(footprint, spares_inputs=excerpt is not None and not first.mutates)
        outputs = first.slot_bytes
        del first, inputs
        examination = examine(examined, spec, device, traits)
        if problem.cases is None:
            if excerpt is None:
                examination.sizes.seen.add(outputs)
            footprint = replace(footprint, outputs=examination.sizes.room(outputs))
        method = trial.Method(excerpt, self._own_precision(examined, spec, counted))
        problem.limit(footprint.judged_at_most)
        if footprint.is_large:
            problem.put_away()  # the lane may have to wait for the memory of its plan, and holds none meanwhile
        held = problem.held_bytes
        return BuiltProblem(problem, examination, footprint, method, seed, counted=counted, retained=held)

    def _own_precision(self, problem: RunningProblem, spec: EvalSpec, counted: Counted | None) -> Precision:
        if counted is None or not counted.may_use_tf32:
            return Precision.UNSPECIFIED
        try:
            return trial.unused_precision(problem, spec, self.device, Precision.TF32)
        except Exception as error:  # the reference has no rounded form, or there is no memory for it
            _log.info("event=precision_unknown detail=%r", f"{type(error).__name__}: {error}"[:300])
            return Precision.UNSPECIFIED

    async def count(self, built: BuiltProblem, example: trial.Trial) -> Counted:
        """Return what a call of a reference consists of, and count it now if necessary. Raises OutOfMemoryError."""
        if built.counted is None:
            inputs = example.inputs
            built.counted = await self.execute(
                lambda: built.problem.count(inputs.structure, inputs.specs, inputs.master.clone(), example.seed)
            )
        return built.counted

    async def execute(self, piece: Callable[[], T]) -> T:
        """Run `piece`, which may ask problems, as a piece of the judge's own work on the device."""
        return await work.execute(self._lease, piece)

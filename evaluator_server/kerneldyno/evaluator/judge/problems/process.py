"""A problem in a process of its own: the judge's side of `runner/problem.py`.

Its methods wait for the process, so they are called in pieces of work (`runners/work.py`). While the process works,
other lanes go on, or somebody is timed. A process that ends, hangs or breaks the protocol costs the evaluations of its
own problem only: it is born again under the same seed a few times, and then given up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from ...devices.base import Device
from ...shared import small_floats, tree, wire
from ...shared.reference_failure import ReferenceFailure
from ...shared.running_problem import INBOX, OUTBOX, Answer, Call, Counted, Draw, Part, PreciseRun, RunningProblem
from ...shared.spec import ProblemSpec
from ..runners.handle import ExitReport, Runner, RunnerGarbled, RunnerGone, RunnerLate, RunnerStartError
from ..runners.lease import is_timed, uninterrupted
from ..runners.pool import Pool
from ..runners.work import numbers, settle, wait
from . import told
from .boxes import Boxes
from .inputs import words
from .turn import Turn

_log = logging.getLogger("kerneldyno.judge")

T = TypeVar("T")
P = ParamSpec("P")

#: How often a process is born again after its reference has ended it.
_REBIRTHS = 3
#: Most of what a process printed that is logged when it dies, in characters.
_LOG_CHARS = 1000
#: If less than this passes between judge and process, in bytes, the judge does not look how much memory is free: that
#: takes time.
_MUCH_BYTES = 4 << 30
#: Most bytes of input sets that are drawn by one order.
_DRAWN_AT_ONCE_BYTES = {"cuda": 512 << 20, "cpu": 64 << 20}


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """What a problem's process may use."""

    #: Seconds for one order.
    seconds: float
    #: Host memory in bytes.
    host_bytes: int
    #: Device memory in bytes; None for no limit.
    device_bytes: int | None = None


@dataclasses.dataclass(slots=True)
class Lives:
    """How many processes of problems a judge has made, and how they ended."""

    births: int = 0
    #: Ended to free what they held, and by their reference: it crashed, hung or used too much.
    rested: int = 0
    died: int = 0


async def begin(
    spec: ProblemSpec, seed: int, device: Device, pool: Pool, bounds: Bounds, lives: Lives
) -> ProblemProcess:
    """Make a process, and build a problem in it. Raises ReferenceFailure, RunnerStartError."""
    problem = ProblemProcess(spec, seed, device, pool, bounds, lives)
    try:
        await problem.start()
    except BaseException:
        await problem.rest()
        raise
    return problem


def _question(method: Callable[Concatenate[ProblemProcess, P], T]) -> Callable[Concatenate[ProblemProcess, P], T]:
    """Make a method one question: no other lane asks the process before it has returned."""

    @functools.wraps(method)
    def ask(self: ProblemProcess, *given: P.args, **named: P.kwargs) -> T:
        with self._asking():
            return method(self, *given, **named)

    return ask  # type: ignore[return-value]  # wraps() gives it another type


class ProblemProcess(RunningProblem):
    """One built problem whose reference runs in a process of its own."""

    def __init__(self, spec: ProblemSpec, seed: int, device: Device, pool: Pool, bounds: Bounds, lives: Lives) -> None:
        """Describe the process. `start` makes it."""
        self._spec = spec
        self._seed = seed
        self._device = device
        self._pool = pool
        self.bounds = bounds
        self._lives = lives
        self._runner: Runner | None = None
        self._constants: Mapping[str, torch.Tensor] | None = None
        #: Bytes of an element of each parameter and buffer, once they were listed.
        self._sizes: dict[str, int] = {}
        self._boxes: Boxes | None = None
        self._turn = Turn(pool.lease)
        #: How often its reference has ended it.
        self._deaths = 0
        self._last_death: ReferenceFailure | None = None
        #: Monotonic time of the last order, in seconds.
        self.last_asked = time.monotonic()

    async def start(self) -> None:
        """Make the process, and build the problem in it. Raises ReferenceFailure, RunnerStartError."""
        self._runner = await self._pool.take_for_problem(self.bounds.host_bytes)
        self._boxes = Boxes(self._device, self._runner.descriptors, self._ask)
        self._lives.births += 1
        self._runner.send({"op": "run_problem", "memory_bytes": self.bounds.host_bytes})
        order = {"op": "build", "problem": self._spec.to_plain(), "seed": self._seed}
        (answer,) = await self._exchange([{**order, "memory_bytes": self.bounds.device_bytes}])
        self._describe(told.heed(answer, "build"))

    def _describe(self, said: Any) -> None:
        with told.suspicion():
            about = told.read_about(said)
            self.gradients, self.buffers = told.read_late(said)
        self.symbol, self.instantiate = about.symbol, about.instantiate
        self.init_args, self.init_kwargs, self.init_seed = about.init_args, about.init_kwargs, about.init_seed
        self.precision, self.training = about.precision, about.training
        self.workloads, self.cases = about.workloads, about.cases
        self.parameter_bytes, self.input_bytes = about.parameter_bytes, about.input_bytes
        self.construction_bytes = about.construction_bytes
        self.constant_names = about.constants

    @property
    def constants(self) -> Mapping[str, torch.Tensor]:  # type: ignore[override]
        """See RunningProblem."""
        if self._constants is None:
            self._constants = self._fetch_constants() if self.constant_names else {}
        return self._constants

    @_question
    def _fetch_constants(self) -> Mapping[str, torch.Tensor]:
        (values,) = self._take([self._ask({"op": "constants"}, "build")])
        with told.suspicion():
            return dict(zip(self.constant_names, map(small_floats.cloned, values), strict=True))

    @_question
    def limit(self, nbytes: int) -> None:
        self.bounds = dataclasses.replace(self.bounds, device_bytes=nbytes)
        self._ask({"op": "limit", "memory_bytes": nbytes}, "reference")

    @contextlib.contextmanager
    def drawn(self, number: int, seed: int) -> Iterator[tuple[Any, list[torch.Tensor]]]:
        with self.drawn_together([Draw(number, seed)]) as (found,):
            yield found

    @contextlib.contextmanager
    def drawn_together(self, draws: Sequence[Draw]) -> Iterator[list[tuple[Any, list[torch.Tensor]]]]:
        with self._asking():
            orders = [{"op": "draw", "number": draw.number, "seed": draw.seed} for draw in draws]
            saids = [told.heed(answer, "inputs") for answer in self._ask_together(orders, "inputs")]
            sets = self._take(saids, INBOX)
            with told.suspicion():
                self.gradients, self.buffers = told.read_late(saids[0])
                self.drawing_bytes = told.read_bytes(saids[0].get("drawing_bytes"))
                found = [
                    (told.read_structure(said.get("structure"), len(tensors)), tensors)
                    for said, tensors in zip(saids, sets, strict=True)
                ]
            yield found

    @_question
    def draw_sets(
        self,
        numbers: Sequence[int],
        seeds: Sequence[int],
        specs: Sequence[tree.TensorSpec],
        into: Sequence[torch.Tensor],
    ) -> None:
        _, size = tree.layout(specs)
        at_once = max(1, _DRAWN_AT_ONCE_BYTES[self._device.kind] // size)
        described = [spec.to_json() for spec in specs]
        for begin in range(0, len(numbers), at_once):
            some = slice(begin, begin + at_once)
            count = len(numbers[some])
            places = self._ready.places([size] * count)
            order = {"op": "draw_sets", "numbers": list(numbers[some]), "seeds": list(seeds[some])}
            self._ask({**order, "specs": described}, "inputs")
            for region, drawn in zip(into[some], places, strict=True):
                region.copy_(drawn)

    def answer(self, call: Call) -> Answer:
        (found,) = self.answer_together([call])
        if isinstance(found, BaseException):
            raise found
        return found

    @_question
    def answer_together(self, calls: Sequence[Call]) -> list[Answer | BaseException]:
        places = self._ready.post([call.region for call in calls])
        orders = [
            {
                "op": "answer",
                "number": call.number,
                "structure": call.structure,
                "seed": call.seed,
                "measured": call.measured,
                "specs": [spec.to_json() for spec in call.specs],
                "begin": place.storage_offset(),
            }
            for call, place in zip(calls, places, strict=True)
        ]
        saids = [told.outcome(answer) for answer in self._ask_together(orders, "reference")]
        taken = iter(self._take([said for said in saids if not isinstance(said, ReferenceFailure)]))
        # torch counts its own writes to inputs. A kernel of the reference's may write as well.
        pairs = zip(calls, places, strict=True)
        changed = numbers(torch.stack([(words(call.region) != words(place)).any() for call, place in pairs]))
        return [
            said
            if isinstance(said, ReferenceFailure)
            else self._read_answer(call, said, next(taken), place, is_changed)
            for call, said, place, is_changed in zip(calls, saids, places, changed, strict=True)
        ]

    def _read_answer(
        self, call: Call, said: Any, tensors: Sequence[torch.Tensor], place: torch.Tensor, is_changed: bool
    ) -> Answer:
        values = [small_floats.cloned(tensor) for tensor in tensors]
        with told.suspicion():
            aliased = told.read_flag(said.get("aliased"))
            mutates = told.read_flag(said.get("mutates")) or is_changed
            if mutates:
                call.region.copy_(place)
            returned = told.read_structure(said.get("structure"), len(values))
            return Answer(returned, values, mutates, aliased, told.read_bytes(said.get("peak")))

    def precise(self, runs: Sequence[PreciseRun]) -> list[tuple[Any, list[torch.Tensor]] | None]:
        found = self.precise_together(runs)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return found  # type: ignore[return-value]  # no exception is in it

    @_question
    def precise_together(
        self, runs: Sequence[PreciseRun]
    ) -> list[tuple[Any, list[torch.Tensor]] | BaseException | None]:
        specs = [[tree.describe(tensor) for tensor in run.tensors] for run in runs]
        places = self._ready.places([tree.layout(each)[1] for each in specs])
        for run, each, place in zip(runs, specs, places, strict=True):
            for view, tensor in zip(tree.views(place, each), run.tensors, strict=True):
                small_floats.raw(view).copy_(small_floats.raw(tensor))
        orders = [
            {
                "op": "precise",
                "structure": run.structure,
                "seed": run.seed,
                "bits": run.bits,
                "specs": [spec.to_json() for spec in each],
                "begin": place.storage_offset(),
            }
            for run, each, place in zip(runs, specs, places, strict=True)
        ]
        saids = [told.outcome(answer) for answer in self._ask_together(orders, "reference")]
        taken = iter(self._take([said for said in saids if not (said is None or isinstance(said, ReferenceFailure))]))
        found: list[tuple[Any, list[torch.Tensor]] | BaseException | None] = []
        for said in saids:
            if said is None:
                found.append(None)
            elif isinstance(said, ReferenceFailure):
                found.append(torch.OutOfMemoryError(str(said)) if said.lacked_memory else said)
            else:
                values = [small_floats.cloned(value) for value in next(taken)]
                with told.suspicion():
                    found.append((told.read_structure(said.get("structure"), len(values)), values))
        return found

    @_question
    def count(self, structure: Any, specs: Sequence[tree.TensorSpec], region: torch.Tensor, seed: int) -> Counted:
        self._ready.post([region])
        described = [spec.to_json() for spec in specs]
        order = {"op": "count", "structure": structure, "seed": seed, "specs": described, "begin": 0}
        try:
            said = self._ask(order, "reference")
        except ReferenceFailure as failure:
            if failure.lacked_memory:
                raise torch.OutOfMemoryError(str(failure)) from failure
            return Counted()
        with told.suspicion():
            return told.read_counted(said)

    @_question
    def parameters(self) -> Mapping[str, tuple[tree.TensorSpec, int]]:
        said = self._ask({"op": "parameters"}, "build")
        with told.suspicion():
            found = told.read_parameters(said)
        self._sizes = {name: spec.torch_dtype.itemsize for name, (spec, _) in found.items()}
        return found

    @contextlib.contextmanager
    def values(self, parts: Sequence[Part]) -> Iterator[list[torch.Tensor]]:
        with self._asking():
            told_parts = [[part.name, part.start, part.count] for part in parts]
            (values,) = self._take([self._ask({"op": "values", "parts": told_parts}, "build")])
            with told.suspicion():
                told.read_parts(
                    [tree.describe(value) for value in values], [part.count * self._sizes[part.name] for part in parts]
                )
            yield values

    @_question
    def put_away(self) -> None:
        self._ready.put_away()

    @property
    def held_bytes(self) -> int:
        return self._ask_held_bytes()

    @_question
    def _ask_held_bytes(self) -> int:
        with told.suspicion():
            return told.read_bytes(self._ask({"op": "held"}, "reference")) or 0

    @property
    def arena_bytes(self) -> int:  # type: ignore[override]
        """See RunningProblem."""
        return 0 if self._boxes is None else self._boxes.nbytes

    @property
    def is_alive(self) -> bool:
        """True if it has a process now."""
        return self._runner is not None and not self._runner.has_ended

    @property
    def is_asked(self) -> bool:
        """See RunningProblem."""
        return self._turn.is_wanted

    @property
    def deaths(self) -> int:
        """See RunningProblem."""
        return self._deaths

    def pardon(self, deaths: int) -> bool:
        has_died = self._deaths > deaths
        self._deaths = min(self._deaths, deaths)
        return has_died

    @property
    def is_given_up(self) -> bool:
        """See RunningProblem."""
        return self._deaths > _REBIRTHS

    def rest(self) -> Coroutine[Any, Any, object]:
        """See RunningProblem."""
        self._lives.rested += self.is_alive
        return self._end()

    def _end(self) -> Coroutine[Any, Any, ExitReport | None]:
        """Have no process any more, nor what it gave, and return what ends it and frees the arenas."""
        self._constants = None  # the same seed makes the same ones
        runner, self._runner = self._runner, None
        boxes, self._boxes = self._boxes, None
        return self._discard(runner, boxes)  # somebody may make the next process meanwhile

    async def _discard(self, runner: Runner | None, boxes: Boxes | None) -> ExitReport | None:
        report = None if runner is None else await self._pool.discard(runner)
        if boxes is not None:
            boxes.close()
        return report

    # Asking

    def _ask(self, order: wire.Frame, stage: str) -> Any:
        """Send an order and wait for its answer; meanwhile somebody may be timed.

        Raises ReferenceFailure. `stage` is that of failures of the process itself.
        """
        (answer,) = self._ask_together([order], stage)
        return told.heed(answer, stage)

    def _ask_together(self, orders: Sequence[wire.Frame], stage: str) -> list[wire.Frame]:
        """Send several orders at once, and wait for the answer to each. Raises ReferenceFailure."""
        settle(self._device)  # nobody reads any more what the process may write over
        self._make_way()
        count = len(orders)
        series = [{**order, "series": [index, count]} for index, order in enumerate(orders)] if count > 1 else orders
        return wait(self._order(series, stage))

    def _make_way(self) -> None:
        """Free what the judge's allocator keeps for later if the process may need it: the plan has it only once."""
        most = self.bounds.device_bytes
        if most is not None and self.arena_bytes > _MUCH_BYTES and self._device.lacks(most):
            self._device.clear()

    async def _order(self, orders: Sequence[wire.Frame], stage: str) -> list[wire.Frame]:
        if not self.is_alive:
            if self._runner is None and self._last_death is not None:
                raise self._last_death.again()
            failure = ReferenceFailure(stage, RuntimeError("the problem's process ended between two orders"))
            failure.was_killed = True
            raise failure
        assert self._runner is not None
        async with self._pool.lease.away(self._runner):
            # An answer that is left over would be taken for that to the next order.
            return await uninterrupted(self._exchange(orders, stage))

    async def _exchange(self, orders: Sequence[wire.Frame], stage: str = "build") -> list[wire.Frame]:
        """Send orders and return their answers, each within the limit. If one does not come, end the process.

        Raises ReferenceFailure, and RunnerStartError if the process was killed from outside.
        """
        runner = self._runner
        assert runner is not None
        self.last_asked = time.monotonic()
        runner.is_asked = True
        try:
            for order in orders:
                runner.send(order)
            return [await runner.answer(self.bounds.seconds) for _ in orders]
        except RunnerLate:
            limit = self.bounds.seconds
            text = f"the reference took longer than {limit:g} s; an evaluator's --reference-timeout allows more"
            raise await self._dead(ReferenceFailure(stage, TimeoutError(text))) from None
        except RunnerGone:
            try:
                failure = (await runner.gone()).of_reference(stage, self.bounds.host_bytes)
            except RunnerStartError:
                await self._end()
                raise
            raise await self._dead(failure) from None
        except RunnerGarbled as error:
            text = f"the reference wrote to the judge's channel: {error}"
            raise await self._dead(ReferenceFailure(stage, RuntimeError(text))) from None
        finally:
            runner.is_asked = False

    async def _dead(self, failure: ReferenceFailure) -> ReferenceFailure:
        """Note that the reference has ended its process with this failure, and return it."""
        self._deaths += 1
        self._lives.died += 1
        self._last_death = failure.again()
        report = await self._end()
        logs = "" if report is None else report.logs.strip()[-_LOG_CHARS:]
        _log.warning("event=problem_ended deaths=%d detail=%r logs=%r", self._deaths, str(failure)[:300], logs)
        return failure

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """See RunningProblem."""
        async with self._turn.kept():
            await uninterrupted(self._revive())
            yield

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Have the process to oneself for one question, and make it if there is none.

        Raises ReferenceFailure if its reference has ended it too often, and RunnerStartError.
        """
        with self._turn.question():
            if not is_timed() and not self.is_alive:  # nothing is made while somebody is timed
                wait(self._revive_away())
            yield

    async def _revive_away(self) -> None:
        async with self._pool.lease.away(None):
            await uninterrupted(self._revive())  # whoever asks next takes it for built

    async def _revive(self) -> None:
        """Make the process if there is none. Raises ReferenceFailure, RunnerStartError."""
        if self.is_alive:
            return
        if self._runner is not None:  # it has ended while nobody asked it anything
            text = "the reference ended its process between two calls"
            await self._dead(ReferenceFailure("reference", RuntimeError(text)))
        if self.is_given_up:
            assert self._last_death is not None
            raise self._last_death.again()
        await self._end()
        await self.start()

    # Tensors

    @property
    def _ready(self) -> Boxes:
        assert self._boxes is not None
        return self._boxes

    def _take(self, saids: Sequence[Any], box: int = OUTBOX) -> list[list[torch.Tensor]]:
        # The tensors of an answer cannot take more than this.
        most = self._device.room_bytes() if self.bounds.device_bytes is None else self.bounds.device_bytes
        return self._ready.take(saids, most, box)

"""A problem in a process of its own: the judge's side of `runner/problem.py`.

Its methods wait for the process, so they are called in a thread (`asking`), in which the judge has its turn on the
device. While the process works, others may have that turn. A process that ends, hangs or breaks the protocol costs the
evaluations of its own problem only: it is born again under the same seed a few times, and then given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from ...devices.base import Arena, Device
from ...shared import small_floats, tree, wire
from ...shared.reference_failure import ReferenceFailure
from ...shared.running_problem import INBOX, OUTBOX, Answer, Counted, Part, RunningProblem
from ...shared.spec import ProblemSpec
from ..runners.handle import ExitReport, Runner, RunnerGarbled, RunnerGone, RunnerLate, RunnerStartError
from ..runners.lease import is_timed
from ..runners.pool import Pool
from . import told
from .asking import require_caller

_log = logging.getLogger("kerneldyno.judge")

T = TypeVar("T")
P = ParamSpec("P")

#: How often a process is born again after its reference has ended it.
_REBIRTHS = 3
#: Most of what a process printed that is logged when it dies, in characters.
_LOG_CHARS = 1000
#: Smallest arena, and most bytes of input sets that are drawn by one order.
_LEAST_ARENA_BYTES = 1 << 20
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
        self._loop = asyncio.get_running_loop()
        self.bounds = bounds
        self._lives = lives
        self._runner: Runner | None = None
        self._constants: Mapping[str, torch.Tensor] | None = None
        #: Bytes of an element of each parameter and buffer, once they were listed.
        self._sizes: dict[str, int] = {}
        self._arenas: dict[int, Arena] = {}
        #: Held for one question, which may take several orders: lanes must not mix theirs.
        self._question = asyncio.Lock()
        self._waiting = 0
        #: True while one lane, which is timed, has it for more than a question.
        self._is_taken = False
        #: How often its reference has ended it.
        self._deaths = 0
        self._last_death: ReferenceFailure | None = None
        #: Monotonic time of the last order, in seconds.
        self.last_asked = time.monotonic()

    async def start(self) -> None:
        """Make the process, and build the problem in it. Raises ReferenceFailure, RunnerStartError."""
        await self._pool.lease.quiet()  # starting a process disturbs timing more than anything else
        # Nothing is timed in it, so it needs no full queues, and takes its turn among the spares that open the device.
        self._runner = await self._pool.spawn(full_queues=False, role="problem", memory_bytes=self.bounds.host_bytes)
        self._lives.births += 1
        order = {"op": "build", "problem": self._spec.to_plain(), "seed": self._seed}
        said = self._heed(await self._exchange({**order, "memory_bytes": self.bounds.device_bytes}), "build")
        self._describe(said)

    def _describe(self, said: Any) -> None:
        with self._suspicion():
            about = told.read_about(said)
            self.gradients, self.buffers = told.read_late(said)
        self.symbol, self.instantiate = about.symbol, about.instantiate
        self.init_args, self.init_kwargs, self.init_seed = about.init_args, about.init_kwargs, about.init_seed
        self.precision, self.training = about.precision, about.training
        self.workloads, self.cases = about.workloads, about.cases
        self.parameter_bytes, self.input_bytes = about.parameter_bytes, about.input_bytes
        self.construction_bytes = about.construction_bytes
        self._names = about.constants

    @property
    def constants(self) -> Mapping[str, torch.Tensor]:  # type: ignore[override]
        """See RunningProblem. Asks for them once.

        This is no cached_property: in Python 3.11 that holds one lock for all problems while it asks for one's constants.
        """
        if self._constants is None:
            self._constants = self._fetch_constants() if self._names else {}
        return self._constants

    @_question
    def _fetch_constants(self) -> Mapping[str, torch.Tensor]:
        values = self._take(self._ask({"op": "constants"}, "build"))
        with self._suspicion():
            return dict(zip(self._names, map(small_floats.cloned, values), strict=True))

    @_question
    def limit(self, nbytes: int) -> None:
        self.bounds = dataclasses.replace(self.bounds, device_bytes=nbytes)
        self._ask({"op": "limit", "memory_bytes": nbytes}, "reference")

    @_question
    def draw(self, number: int, seed: int) -> tuple[Any, list[torch.Tensor]]:
        said = self._ask({"op": "draw", "number": number, "seed": seed}, "inputs")
        tensors = self._take(said)
        with self._suspicion():
            self.gradients, self.buffers = told.read_late(said)
            self.drawing_bytes = told.read_bytes(said.get("drawing_bytes"))
            return told.read_structure(said.get("structure"), len(tensors)), tensors

    @_question
    def draw_sets(
        self, numbers: Sequence[int], seeds: Sequence[int], specs: Sequence[tree.TensorSpec], into: torch.Tensor
    ) -> None:
        _, size = tree.layout(specs)
        at_once = max(1, _DRAWN_AT_ONCE_BYTES[self._device.kind] // size)
        described = [spec.to_json() for spec in specs]
        for begin in range(0, len(numbers), at_once):
            some = slice(begin, begin + at_once)
            count = len(numbers[some])
            outbox = self._arena(OUTBOX, count * size)
            order = {"op": "draw_sets", "numbers": list(numbers[some]), "seeds": list(seeds[some])}
            self._ask({**order, "specs": described}, "inputs")
            into[begin * size :][: count * size].copy_(outbox[: count * size])

    @_question
    def answer(
        self,
        number: int,
        structure: Any,
        specs: Sequence[tree.TensorSpec],
        region: torch.Tensor,
        seed: int,
        *,
        measured: bool = False,
    ) -> Answer:
        inbox = self._post(region)
        order = {"op": "answer", "number": number, "structure": structure, "seed": seed, "measured": measured}
        said = self._ask({**order, "specs": [spec.to_json() for spec in specs]}, "reference")
        values = [small_floats.cloned(value) for value in self._take(said)]
        with self._suspicion():
            mutates, aliased = told.read_flag(said.get("mutates")), told.read_flag(said.get("aliased"))
            if mutates:
                region.copy_(inbox[: region.numel()])
            returned = told.read_structure(said.get("structure"), len(values))
            return Answer(returned, values, mutates, aliased, told.read_bytes(said.get("peak")))

    @_question
    def precise(
        self, structure: Any, tensors: Sequence[torch.Tensor], seed: int, bits: int | None = None
    ) -> tuple[Any, list[torch.Tensor]] | None:
        specs = [tree.describe(tensor) for tensor in tensors]
        inbox = self._arena(INBOX, tree.layout(specs)[1])
        for view, tensor in zip(tree.views(inbox, specs), tensors, strict=True):
            small_floats.raw(view).copy_(small_floats.raw(tensor))
        self._device.synchronize()
        order = {"op": "precise", "structure": structure, "seed": seed, "bits": bits}
        try:
            said = self._ask({**order, "specs": [spec.to_json() for spec in specs]}, "reference")
        except ReferenceFailure as failure:
            if failure.lacked_memory:
                raise torch.OutOfMemoryError(str(failure)) from failure
            raise
        if said is None:
            return None
        values = [small_floats.cloned(value) for value in self._take(said)]
        with self._suspicion():
            return told.read_structure(said.get("structure"), len(values)), values

    @_question
    def count(self, structure: Any, specs: Sequence[tree.TensorSpec], region: torch.Tensor, seed: int) -> Counted:
        self._post(region)
        order = {"op": "count", "structure": structure, "seed": seed, "specs": [spec.to_json() for spec in specs]}
        try:
            said = self._ask(order, "reference")
        except ReferenceFailure as failure:
            if failure.lacked_memory:
                raise torch.OutOfMemoryError(str(failure)) from failure
            return Counted()
        with self._suspicion():
            return told.read_counted(said)

    @_question
    def parameters(self) -> Mapping[str, tuple[tree.TensorSpec, int]]:
        said = self._ask({"op": "parameters"}, "build")
        with self._suspicion():
            found = told.read_parameters(said)
        self._sizes = {name: spec.torch_dtype.itemsize for name, (spec, _) in found.items()}
        return found

    @_question
    def values(self, parts: Sequence[Part]) -> list[torch.Tensor]:
        told_parts = [[part.name, part.start, part.count] for part in parts]
        values = self._take(self._ask({"op": "values", "parts": told_parts}, "build"))
        with self._suspicion():
            told.read_parts(
                [tree.describe(value) for value in values], [part.count * self._sizes[part.name] for part in parts]
            )
        return values

    @property
    def held_bytes(self) -> int:
        return self._ask_held_bytes()

    @_question
    def _ask_held_bytes(self) -> int:
        with self._suspicion():
            return told.read_bytes(self._ask({"op": "held"}, "reference")) or 0

    @property
    def arena_bytes(self) -> int:  # type: ignore[override]
        """See RunningProblem."""
        return sum(arena.data.numel() for arena in self._arenas.values())

    @property
    def is_alive(self) -> bool:
        """True if it has a process now."""
        return self._runner is not None and not self._runner.has_ended

    @property
    def is_asked(self) -> bool:
        """See RunningProblem."""
        return self._question.locked() or self._waiting > 0

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

    async def rest(self) -> None:
        """End the process, which holds memory. It is made again when the problem is asked for the next time."""
        self._lives.rested += self.is_alive
        await self._end()

    async def _end(self) -> ExitReport | None:
        """End the process, and free the arenas."""
        runner, self._runner = self._runner, None
        report = None if runner is None else await self._pool.discard(runner)
        arenas, self._arenas = self._arenas, {}
        for arena in arenas.values():
            arena.close()
        return report

    # Asking

    def _ask(self, order: wire.Frame, stage: str) -> Any:
        """Send an order and wait for its answer, while others may have the judge's turn on the device.

        Raises ReferenceFailure. `stage` is that of failures of the process itself.
        """
        require_caller()
        return self._wait(self._ask_in_turn(order, stage))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _ask_in_turn(self, order: wire.Frame, stage: str) -> Any:
        if not self.is_alive:
            raise self._last_death or ReferenceFailure(stage, RuntimeError("the problem's process has ended"))
        assert self._runner is not None
        async with self._pool.lease.away(self._runner):
            answer = await self._exchange(order, stage)
        return self._heed(answer, stage)

    async def _exchange(self, order: wire.Frame, stage: str = "build") -> wire.Frame:
        """Send an order and return its answer. If there is none, end the process.

        Raises ReferenceFailure, and RunnerStartError if the process was killed from outside.
        """
        runner = self._runner
        assert runner is not None
        self.last_asked = time.monotonic()
        runner.is_asked = True
        try:
            return await runner.ask(order, self.bounds.seconds)
        except RunnerLate:
            limit = self.bounds.seconds
            text = f"the reference took longer than {limit:g} s; an evaluator's --reference-timeout allows more"
            raise await self._dead(stage, TimeoutError(text)) from None
        except RunnerGone:
            report = await runner.gone()
            if report.lost:  # somebody killed it from outside, which no reference can do
                await self._end()
                raise RunnerStartError("the process of the problem was killed") from None
            if report.out_of_memory:
                text = f"the reference needs more than {self.bounds.host_bytes >> 20} MiB of host memory"
                raise await self._dead(stage, MemoryError(text)) from None
            how = f"signal {report.signal}" if report.signal else f"status {report.exit_code}"
            raise await self._dead(stage, RuntimeError(f"the reference ended its process: {how}")) from None
        except RunnerGarbled as error:
            raise await self._dead(
                stage, RuntimeError(f"the reference wrote to the judge's channel: {error}")
            ) from None
        finally:
            runner.is_asked = False

    async def _dead(self, stage: str, error: Exception) -> ReferenceFailure:
        """Note that the reference has ended its process, and return the failure to raise."""
        self._deaths += 1
        self._lives.died += 1
        failure = self._last_death = ReferenceFailure(stage, error)
        report = await self._end()
        logs = "" if report is None else report.logs.strip()[-_LOG_CHARS:]
        _log.warning("event=problem_ended deaths=%d detail=%r logs=%r", self._deaths, str(failure)[:300], logs)
        return failure

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """See RunningProblem."""
        async with self._question:
            await self._revive()
            self._is_taken = True
            try:
                yield
            finally:
                self._is_taken = False

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Have the process to oneself for one question, and make it if there is none.

        Raises ReferenceFailure if its reference has ended it too often, and RunnerStartError.
        """
        require_caller()
        if is_timed():  # the lane has the problem already: it cannot wait for others, which all stand still
            assert self._is_taken
            yield
            return
        self._wait(self._begin_question())
        try:
            if not self.is_alive:
                self._wait(self._revive_away())
            yield
        finally:
            self._loop.call_soon_threadsafe(self._question.release)

    async def _begin_question(self) -> None:
        if not self.is_asked:  # then this does not wait
            await self._question.acquire()
            return
        self._waiting += 1
        try:
            async with self._pool.lease.away(None):
                await self._question.acquire()
        finally:
            self._waiting -= 1

    async def _revive_away(self) -> None:
        async with self._pool.lease.away(None):
            await self._revive()

    async def _revive(self) -> None:
        """Make the process if there is none. Raises ReferenceFailure, RunnerStartError."""
        if self.is_alive:
            return
        if self._runner is not None:  # it has ended while nobody asked it anything
            await self._dead("reference", RuntimeError("the reference ended its process between two calls"))
        if self.is_given_up:
            assert self._last_death is not None
            raise self._last_death
        await self._end()
        await self.start()

    def _heed(self, answer: wire.Frame, stage: str) -> Any:
        if "ok" in answer:
            return answer["ok"]
        said = answer.get("error")
        where = said.get("stage") if isinstance(said, dict) else None
        failure = ReferenceFailure.from_runner(where if where in _STAGES else stage, told.read_error(said))
        if answer.get("lacked_memory") is True:
            failure.lacked_memory = True
        raise failure

    @contextlib.contextmanager
    def _suspicion(self) -> Any:
        """Raise as a failure of the reference what its process says and the program of a problem never does."""
        try:
            yield
        except (ValueError, AttributeError, TypeError, OverflowError, RecursionError) as error:
            failure = ReferenceFailure("reference", RuntimeError(f"the reference took its process over: {error}"))
            raise failure from error

    # Tensors

    def _post(self, region: torch.Tensor) -> torch.Tensor:
        """Copy inputs to where the process finds them, and return that arena."""
        inbox = self._arena(INBOX, region.numel())
        inbox[: region.numel()].copy_(region)
        self._device.synchronize()
        return inbox

    def _take(self, said: Any) -> list[torch.Tensor]:
        """Return the tensors of an answer, over the outbox: they may be used until the next order."""
        with self._suspicion():
            specs = told.read_specs(said.get("tensors"), self._most_bytes)
            stored = told.read_flag(said.get("stored"))
        nbytes = tree.layout(specs)[1]
        fits = OUTBOX in self._arenas and nbytes <= self._arenas[OUTBOX].data.numel()
        outbox = self._arena(OUTBOX, nbytes)
        if not (stored and fits):
            self._ask({"op": "store"}, "reference")
        return tree.views(outbox, specs)

    @property
    def _most_bytes(self) -> int:
        """More bytes than the tensors of an answer can take."""
        return self._device.room_bytes() if self.bounds.device_bytes is None else self.bounds.device_bytes

    def _arena(self, number: int, nbytes: int) -> torch.Tensor:
        """Return an arena of at least so many bytes."""
        arena = self._arenas.get(number)
        if arena is None or arena.data.numel() < nbytes:
            assert self._runner is not None
            if arena is not None:
                self._ask({"op": "arena", "number": number, "ticket": None}, "reference")
                self._arenas.pop(number).close()
            size = max(nbytes, _LEAST_ARENA_BYTES)
            arena = self._device.new_arena(size, self._runner.descriptors, number, grows=True)
            self._arenas[number] = arena
            self._ask({"op": "arena", "number": number, "ticket": arena.ticket()}, "reference")
        return arena.data


#: Stages that a process may name.
_STAGES = ("build", "inputs", "reference", "cases")

"""References in runners of their own, kept from one candidate to the next.

A time in the judge's process cannot be held against one in a runner: another allocator, another number of queues to
the device, another priority. A reference is therefore timed in a process that is the candidate's twin (same zygote,
same walls, same loop, same pace), and stands still except in its own bursts. The judge runs references as well, for
the answers.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

from ...devices.base import Device
from ...shared import tree, wire
from ...shared.spec import EvalSpec
from ...shared.tracebacks import ErrorDescription
from ...toolkits import ReferenceFailure
from ..memory.footprint import CONTEXT_BYTES, lies_over_inputs
from ..problems.cache import BuiltProblem
from ..runners.handle import Runner, RunnerGone, RunnerLate, RunnerStartError
from ..runners.lease import Lease
from ..runners.pool import Pool
from ..runners.side import Side, Sizes
from .device_time import Burst
from .end_to_end_time import PacedBurst
from .processors import Processors

#: Problem, whether runners are roomy, class by pace, input sets, and bytes of an output.
_Key = tuple[str, bool, int, int, int]

#: Reference runners that are kept, at most, and for how many seconds after their last use.
_KEPT = {"cuda": 16, "cpu": 3}
_KEPT_SECONDS = {"cuda": 30.0, "cpu": 10.0}
#: How long building a reference may take, torch.compile included, in seconds.
_BUILD_SECONDS = 300.0
#: Bursts of a call that does nothing, and of the reference with a warm cache, that are kept of each kind.
_BURSTS = 24
_KINDS = 200


class ReferenceRunner(Side):
    """One reference in a runner of its own."""

    def __init__(self, device: Device, lease: Lease, runner: Runner, sizes: Sizes) -> None:
        super().__init__(device, lease, runner)
        self.sizes = sizes
        #: Whether there is a reference to be timed.
        self.timed = False
        #: How long its answers may take, in seconds.
        self.limit = _BUILD_SECONDS
        #: Whether it has made the calls that load and tune what its bursts need.
        self.warmed_up = False
        #: What a call takes from end to end, in seconds, as seen then.
        self.per_call = 0.0
        #: The last value of its signals that was used.
        self.values = 0
        #: Warm bursts of the reference, made for the first candidate.
        self.warm: list[Burst] = []
        self._nothing: OrderedDict[Hashable, deque[Any]] = OrderedDict()
        self._prepared: Hashable = None

    def cold_nothing(self, kind: Hashable) -> deque[Burst]:
        """Return the cold bursts of nothing of one kind; what is added is kept."""
        return self._bursts(("cold", kind))

    def warm_nothing(self, kind: Hashable) -> deque[Burst]:
        """Return the warm bursts of nothing of one kind; what is added is kept."""
        return self._bursts(("warm", kind))

    def paced_nothing(self, kind: Hashable) -> deque[PacedBurst]:
        """Return the paced bursts of nothing of one kind; what is added is kept."""
        return self._bursts(("paced", kind))

    def _bursts(self, kind: Hashable) -> deque[Any]:
        bursts = self._nothing.setdefault(kind, deque(maxlen=_BURSTS))
        self._nothing.move_to_end(kind)
        while len(self._nothing) > _KINDS:  # candidates decide how many kinds there are
            self._nothing.popitem(last=False)
        return bursts

    async def build(self, spec: EvalSpec, seed: int) -> None:
        """Have the reference built and called once. Raises ReferenceFailure, RunnerStartError."""
        answer = await self.ask({"op": "build", "spec": spec.to_plain(), "seed": seed})
        self.timed = answer["timed"] is True

    async def prepare_nothing(self, structure: Any, specs: tuple[tree.TensorSpec, ...]) -> None:
        """Have a call ready that returns tensors of these descriptions."""
        if self._prepared != specs:
            order = {
                "op": "nothing",
                "structure": structure,
                "specs": [spec.to_json() for spec in specs],
                "laid_over": lies_over_inputs(tree.layout(specs)[1], self.station.arena.nbytes),
            }
            await self.ask(order)
            self._prepared = specs

    async def _frame(self) -> wire.Frame:
        try:
            return await self.runner.answer(self.limit)
        except RunnerLate:
            late = TimeoutError(f"the reference took longer than {self.limit:.0f} s in a runner of its own")
            raise ReferenceFailure("timing", late) from None
        except RunnerGone:
            report = await self.runner.gone()
            if report.out_of_memory:
                ended: Exception = MemoryError("the reference needs more host memory than a runner may have")
            elif report.lost or report.killed or report.signal == signal.SIGKILL:  # from outside
                raise RunnerStartError("the runner of the reference was killed") from None
            else:
                ended = RuntimeError(f"the reference ended its process: {report.signal or report.exit_code}")
            raise ReferenceFailure("timing", ended) from None

    def _heed(self, answer: wire.Frame) -> Any:
        if "ok" in answer:
            return answer["ok"]
        raise ReferenceFailure.from_runner("timing", ErrorDescription.from_json(answer["error"]))


@dataclass(slots=True)
class _Kept:
    side: ReferenceRunner
    #: Device memory that it takes.
    nbytes: int
    #: Lanes that use it or wait for the lease to.
    users: int = 0
    last_used: float = field(default_factory=time.monotonic)


class References:
    """The reference runners of one device."""

    def __init__(self, device: Device, pool: Pool, processors: Processors) -> None:
        self._device = device
        self._pool = pool
        self._processors = processors
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        #: One for each key that somebody makes a runner for.
        self._making: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._kept)

    def classes(self, spec: EvalSpec, *, roomy: bool) -> set[int]:
        """Return the classes, by pace, of the runners of a problem's reference that are kept."""
        return {key[2] for key in self._kept if key[:2] == (spec.problem_key, roomy)}

    @asynccontextmanager
    async def beside(
        self, built: BuiltProblem, spec: EvalSpec, sizes: Sizes, candidate: Runner, *, roomy: bool
    ) -> AsyncIterator[ReferenceRunner]:
        """Provide the runner of a problem's reference that is most like the candidate's; it is parked when this begins.

        Raises ReferenceFailure, RunnerStartError, OutOfMemoryError.
        """
        key = (spec.problem_key, roomy, self._pool.class_of(candidate), sizes.sets, sizes.slot_bytes)
        lock = self._making.setdefault(key, asyncio.Lock())
        async with lock:
            kept = self._kept.get(key)
            if kept is not None and kept.side.runner.has_ended:
                await self._discard(self._kept.pop(key).side)
                kept = None
            if kept is None:
                made = await self._make(built, spec, sizes, candidate, roomy=roomy)
                kept = _Kept(made, built.footprint.reference_runner(sizes) + CONTEXT_BYTES)
                # One of another pace serves this candidate alone: the next one may have more luck.
                if self._pool.class_of(kept.side.runner) == self._pool.class_of(candidate):
                    self._kept[key] = kept
            if shared := key in self._kept:
                self._kept.move_to_end(key)
            kept.users += 1
        try:
            yield kept.side
        except BaseException:
            if kept.side.unanswered and self._kept.get(key) is kept:  # it is in the midst of something
                del self._kept[key]
                await self._discard(kept.side)
            raise
        finally:
            kept.users -= 1
            kept.last_used = time.monotonic()
            if not shared:
                await self._discard(kept.side)
            await self._make_room()

    async def _make(
        self, built: BuiltProblem, spec: EvalSpec, sizes: Sizes, candidate: Runner, *, roomy: bool
    ) -> ReferenceRunner:
        runner = await self._pool.take_like(candidate, roomy=roomy)
        sizes = replace(sizes, slots=sizes.sets)  # nobody looks at earlier outputs of a reference
        side = ReferenceRunner(self._device, self._pool.lease, runner, sizes)
        try:
            await side.open_arenas(sizes, memory_bytes=built.footprint.reference_limit(sizes))
            await side.build(spec, built.seed)
            await side.settle(self._processors.chosen)
            async with self._pool.lease.work():  # between leases, which stop and resume those that are not parked
                await runner.park()
        except BaseException:
            await self._discard(side)
            raise
        return side

    async def expire(self) -> None:
        """End those that nobody has used for a while."""
        since = time.monotonic() - _KEPT_SECONDS[self._device.kind]
        await self._end(key for key, kept in self._kept.items() if kept.last_used < since)

    @property
    def idle_bytes(self) -> int:
        """Device memory of those that are only kept for later."""
        return sum(kept.nbytes for kept in self._kept.values() if not kept.users)

    async def end_one(self) -> bool:
        """End the one that nobody has used for longest, if there is one; say whether."""
        for key, kept in self._kept.items():
            if not kept.users:
                await self._end([key])
                return True
        return False

    async def clear(self) -> None:
        """End all that nobody uses now: somebody needs the memory."""
        await self._end(self._kept)

    async def _make_room(self) -> None:
        surplus = len(self._kept) - _KEPT[self._device.kind]
        await self._end(list(self._kept)[: max(0, surplus)])

    async def _end(self, keys: Any) -> None:
        for key in list(keys):
            if (kept := self._kept.get(key)) is not None and not kept.users:
                del self._kept[key]
                await self._discard(kept.side)

    async def _discard(self, side: ReferenceRunner) -> None:
        try:
            await self._pool.discard(side.runner)
        finally:
            side.close()

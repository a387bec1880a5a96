"""Reference runners: processes of their own for references, kept from one candidate to the next.

A time in the judge's process cannot be compared with one in a runner: the judge has another allocator, another number
of queues to the device and another priority. Therefore a reference is timed in a twin of the candidate's process (same
zygote, same walls, same loop, same pace). It is stopped except during its own bursts. The judge also runs references
itself, for the expected outputs.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

from ...devices.base import Device
from ...shared import tree, wire
from ...shared.reference_failure import ReferenceFailure
from ...shared.spec import EvalSpec
from ...shared.tracebacks import ErrorDescription
from ..memory.footprint import CONTEXT_BYTES, lies_over_inputs
from ..memory.host import HostMemory
from ..problems.cache import BuiltProblem
from ..runners.handle import Runner, RunnerGone, RunnerLate
from ..runners.lease import Lease
from ..runners.pool import Pool
from ..runners.side import Side, Sizes
from .device_time import Burst
from .end_to_end_time import PacedBurst
from .processors import Processors

#: What is timed, and whether its runner has full queues.
_Timed = tuple[str, bool]
#: That, pace class, number of input sets, bytes of an output, and the secret seed of the problem.
_Key = tuple[_Timed, int, int, int, int]

#: Most reference runners that are kept, and for how many seconds after their last use.
_KEPT = {"cuda": 16, "cpu": 3}
_KEPT_SECONDS = {"cuda": 30.0, "cpu": 10.0}
#: Most problems whose first candidate's class is remembered.
_MOST_EXPECTED = 256
#: Longest time limit for building a reference, including torch.compile, in seconds.
_BUILD_SECONDS = 300.0
#: Most bursts that are kept per kind (of empty calls, and of the reference with a warm cache), and most kinds.
_BURSTS = 24
_KINDS = 200


class ReferenceRunner(Side):
    """One reference in a runner of its own."""

    def __init__(self, device: Device, lease: Lease, runner: Runner, sizes: Sizes) -> None:
        super().__init__(device, lease, runner)
        self.sizes = sizes
        #: True if there is a reference to time.
        self.timed = False
        #: True if it is a library baseline: its outputs in timed calls are compared, as a candidate's are.
        self.is_checked = False
        #: Time limit for its answers, in seconds.
        self.limit = _BUILD_SECONDS
        #: True after it has made the calls that load and tune what its bursts need.
        self.warmed_up = False
        #: End-to-end seconds of a call, as seen during the warm-up.
        self.per_call = 0.0
        #: Warm bursts of the reference, made for the first candidate.
        self.warm: list[Burst] = []
        self._nothing: OrderedDict[Hashable, deque[Any]] = OrderedDict()
        self._prepared: Hashable = None

    def cold_nothing(self, kind: Hashable) -> deque[Burst]:
        """Return the kept cold bursts of empty calls of one kind. The caller may add to them."""
        return self._bursts(("cold", kind))

    def warm_nothing(self, kind: Hashable) -> deque[Burst]:
        """Return the kept warm bursts of empty calls of one kind. The caller may add to them."""
        return self._bursts(("warm", kind))

    def paced_nothing(self, kind: Hashable) -> deque[PacedBurst]:
        """Return the kept paced bursts of empty calls of one kind. The caller may add to them."""
        return self._bursts(("paced", kind))

    def _bursts(self, kind: Hashable) -> deque[Any]:
        bursts = self._nothing.setdefault(kind, deque(maxlen=_BURSTS))
        self._nothing.move_to_end(kind)
        while len(self._nothing) > _KINDS:  # candidates determine how many kinds there are
            self._nothing.popitem(last=False)
        return bursts

    async def build(self, spec: EvalSpec, seed: int, buffers: Sequence[str]) -> None:
        """Build the reference in the runner and call it once. Raises ReferenceFailure, RunnerStartError.

        `seed` and `buffers` are those of the problem that gives the expected answers.
        """
        self.is_checked = bool(spec.timing.form.baseline_code)
        if self.is_checked:  # the requester's program has the limits that the candidate has
            self.limit = min(_BUILD_SECONDS, spec.candidate.limits.compile + spec.candidate.limits.timing)
        order = {"op": "build", "problem": spec.problem.to_plain(), "form": spec.timing.form.to_plain(), "seed": seed}
        answer = await self.ask({**order, "buffers": list(buffers)})
        self.timed = answer["timed"] is True

    async def prepare_nothing(self, structure: Any, specs: tuple[tree.TensorSpec, ...]) -> None:
        """Prepare an empty call that returns tensors of these descriptions."""
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
            raise (await self.runner.gone()).of_reference("timing", self.runner.memory_bytes) from None

    def _heed(self, answer: wire.Frame) -> Any:
        if "ok" in answer:
            return answer["ok"]
        raise ReferenceFailure.from_runner("timing", ErrorDescription.from_json(answer["error"]))


@dataclass(slots=True)
class _Kept:
    side: ReferenceRunner
    #: Device memory that it takes, in bytes, and host memory that it may use in addition to what any runner may.
    nbytes: int
    host_bytes: int
    #: Number of lanes that use it or wait for the lease to use it.
    users: int = 0
    last_used: float = field(default_factory=time.monotonic)


class References:
    """The reference runners of one device."""

    def __init__(self, device: Device, pool: Pool, processors: Processors, host: HostMemory) -> None:
        self._device = device
        self._pool = pool
        self._host = host
        self._processors = processors
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        #: The class of the first candidate that was, or may be, timed beside it.
        self._expected: OrderedDict[_Timed, set[int]] = OrderedDict()
        #: A lock for each key for which a runner is being made.
        self._making: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._kept)

    def classes(self, spec: EvalSpec, *, full_queues: bool) -> set[int]:
        """Return the pace classes of the runners of a problem's reference, those to come if there is none yet."""
        timed = spec.timed_key, full_queues
        kept = {key[1] for key in self._kept if key[0] == timed}
        return kept or self._expected.get(timed, set())

    def expect(self, spec: EvalSpec, candidate: Runner, *, full_queues: bool) -> None:
        """Note that `candidate` may be timed, and needs a reference's runner of its class.

        The next candidates of the problem then get runners of that class as well, and one reference's runner serves
        them all, even if they all begin before there is one.
        """
        self._expected.setdefault((spec.timed_key, full_queues), {self._pool.class_of(candidate)})
        if len(self._expected) > _MOST_EXPECTED:
            self._expected.popitem(last=False)

    @asynccontextmanager
    async def beside(
        self, built: BuiltProblem, spec: EvalSpec, sizes: Sizes, candidate: Runner, *, full_queues: bool
    ) -> AsyncIterator[ReferenceRunner]:
        """Provide the runner of a problem's reference that is most like the candidate's; it is parked at the start.

        Raises ReferenceFailure, RunnerStartError, OutOfMemoryError.
        """
        timed = spec.timed_key, full_queues
        key = (timed, self._pool.class_of(candidate), sizes.sets, sizes.slot_bytes, built.seed)
        lock = self._making.setdefault(key, asyncio.Lock())
        async with lock:
            kept = self._kept.get(key)
            if kept is not None and kept.side.runner.has_ended:
                del self._kept[key]
                if not kept.users:
                    await self._discard(kept.side)
                kept = None
            if kept is None:
                made = await self._make(built, spec, sizes, candidate, full_queues=full_queues)
                nbytes = built.footprint.reference_runner(sizes) + CONTEXT_BYTES
                kept = _Kept(made, nbytes, made.runner.memory_bytes - self._host.base)
                # A runner of another pace serves this candidate only: the next candidate may find one of its own pace.
                if self._pool.class_of(kept.side.runner) == self._pool.class_of(candidate):
                    self._kept[key] = kept
            if key in self._kept:
                self._kept.move_to_end(key)
            kept.users += 1
        try:
            yield kept.side
        except BaseException:
            if kept.side.unanswered and self._kept.get(key) is kept:  # it is in the middle of an order
                del self._kept[key]
                await kept.side.runner.end()  # whoever waits to use it is told so by its first order
            raise
        finally:
            kept.users -= 1
            kept.last_used = time.monotonic()
            # Its arenas stay open for the last one that uses it.
            if self._kept.get(key) is not kept and not kept.users:
                await self._discard(kept.side)
            await self._make_room()

    async def _make(
        self, built: BuiltProblem, spec: EvalSpec, sizes: Sizes, candidate: Runner, *, full_queues: bool
    ) -> ReferenceRunner:
        runner = await self._pool.take_like(candidate, full_queues=full_queues)
        sizes = replace(sizes, slots=sizes.sets)  # nobody reads earlier outputs of a reference
        side = ReferenceRunner(self._device, self._pool.lease, runner, sizes)
        footprint = built.footprint
        host_bytes = self._host.limit(footprint.host_need(self._device, sizes, timed=True).reference)
        try:
            await side.open_arenas(sizes, host_bytes=host_bytes, memory_bytes=footprint.reference_limit(sizes))
            await side.build(spec, built.seed, built.problem.buffers)
            await side.settle(self._processors.chosen)
            async with self._pool.lease.work():  # between leases, which stop and resume all runners that are not parked
                await runner.park()
        except BaseException:
            await self._discard(side)
            raise
        return side

    async def expire(self) -> None:
        """End the runners that nobody has used for a while."""
        since = time.monotonic() - _KEPT_SECONDS[self._device.kind]
        await self._end(key for key, kept in self._kept.items() if kept.last_used < since)

    @property
    def idle_bytes(self) -> int:
        """Device memory in bytes of the runners that nobody uses now."""
        return sum(kept.nbytes for kept in self._kept.values() if not kept.users)

    @property
    def idle_host_bytes(self) -> int:
        """Host memory in bytes that the runners that nobody uses now may use, in addition to what any runner may."""
        return sum(kept.host_bytes for kept in self._kept.values() if not kept.users)

    async def end_one(self) -> bool:
        """End the unused runner whose last use is longest ago. Return False if there is none."""
        for key, kept in self._kept.items():
            if not kept.users:
                await self._end([key])
                return True
        return False

    async def clear(self) -> None:
        """End all runners that nobody uses now, because somebody needs the memory."""
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

"""The pool: keeps a few warm runners ready, and hands each out once.

It asks the zygote for runners; no answer is needed, since a runner that could not be made shows it by closing its
sockets.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
import time
from collections import Counter
from collections.abc import Collection

from ...devices.base import Device
from ...shared import wire
from ...walls import Walls
from .handle import ExitReport, Runner, RunnerStartError
from .lease import Lease

_log = logging.getLogger("kerneldyno.judge")

#: Failures in a row after which the pool says that runners cannot be started.
_MAX_FAILURES = 3
#: Processes fall into classes by their pace, whose members differ from their mean by no more than this factor. (On H200s
#: there are two: 1.95 to 2.02 us for a kernel that does next to nothing, and 2.07 to 2.14 us. A network of a hundred
#: short kernels took 645 us in any process of the one, and 661 us in any of the other.)
_SAME_PACE = 1.025
#: How many runners may be started to find one of the same class.
_TRIES = 8


@dataclasses.dataclass(frozen=True, slots=True)
class _Failed:
    """A spare that could not be started, and when that was known."""

    error: RunnerStartError
    at: float


class Pool:
    """Keeps `spares` warm runners and hands them out, each once."""

    def __init__(
        self, zygote: socket.socket, device: Device, device_name: str, *, spares: int, memory_bytes: int
    ) -> None:
        self._zygote = zygote
        self._device = device
        self._device_name = device_name
        self._spares = spares
        self._memory_bytes = memory_bytes
        #: Which walls the runners get; see `ladder`.
        self.walls = Walls(namespaces=True, filters=True)
        #: Variables that the runners get beside those that they keep.
        self.environment: dict[str, str] = {}
        #: Every runner that is alive, spares and taken ones: what the lease stops.
        self.runners: set[Runner] = set()
        self.lease = Lease(self.runners)
        #: Paces of each class, in cycles: their sum, and how many were seen.
        self._classes: list[tuple[float, int]] = []
        #: Spares that came back, and are more than are wanted.
        self._surplus = 0
        self.spawns = 0
        self.exits: Counter[str] = Counter(clean=0, killed=0, signal=0, error=0)
        self._ready: asyncio.Queue[Runner | _Failed] = asyncio.Queue()
        self._wanted = asyncio.Semaphore(0)
        self._failures = 0

    @property
    def spares_ready(self) -> int:
        """Warm runners that wait for a candidate."""
        return self._ready.qsize()

    async def spawn(self, *, roomy: bool = True) -> Runner:
        """Start one runner and wait until it is warm. Raises RunnerStartError.

        One that is not `roomy` is there sooner; see `Device.lean`.
        """
        channel, channel_theirs = socket.socketpair()
        control, control_theirs = socket.socketpair()
        descriptors = self._device.runner_descriptors()
        order = {
            "op": "spawn",
            "device": self._device_name,
            "walls": dataclasses.asdict(self.walls),
            "memory_bytes": self._memory_bytes,
            "environment": {
                **self.environment,
                **(self._device.roomy if roomy else self._device.lean),
            },
        }
        try:
            wire.send(self._zygote, order, (channel_theirs.fileno(), control_theirs.fileno(), *descriptors))
        finally:
            channel_theirs.close()
            control_theirs.close()
        self.spawns += 1
        runner = Runner(channel, control, descriptors)
        self.runners.add(runner)
        try:
            await runner.start()
        except BaseException:
            await runner.end()  # whoever waited for it may be gone, and then nobody else would
            self.runners.discard(runner)
            self.exits["error"] += 1
            raise
        return runner

    async def keep_ready(self) -> None:
        """Keep the spares up to number; runs as long as the judge does."""
        for _ in range(self._spares):
            self._wanted.release()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._spares):
                group.create_task(self._refill())

    async def _refill(self) -> None:
        while True:
            await self._wanted.acquire()
            await self.lease.quiet()  # starting a process is the loudest thing there is
            try:
                runner = await self.spawn(roomy=False)
            except RunnerStartError as error:
                _log.warning("a runner could not be started: %s", error)
                self._failures += 1
                if self._failures >= _MAX_FAILURES:
                    self._ready.put_nowait(_Failed(error, time.monotonic()))  # somebody waits, and shall be told
                else:
                    self._wanted.release()
                await asyncio.sleep(0.2 * self._failures)
                continue
            self._failures = 0
            self._ready.put_nowait(runner)

    async def take(self, *, roomy: bool, classes: Collection[int] = ()) -> Runner:
        """Return a warm runner that nobody else gets, for a candidate that needs a roomy one or not.

        It is one of these classes, if such a one is ready. Raises RunnerStartError.
        """
        if roomy and self._device.lean:
            runner = await self._make()
        else:
            runner = await self._take_spare()
            if classes and self.class_of(runner) not in classes:
                runner = self._exchange(runner, classes)
        runner.has_candidate = True
        return runner

    def class_of(self, runner: Runner) -> int:
        """Return the number of the class that a runner belongs to by its pace; 0 where processes do not differ in that."""
        if not runner.pace or runner.pace_class:
            return runner.pace_class
        means = [total / count for total, count in self._classes]
        apart = [max(mean, runner.pace) / min(mean, runner.pace) for mean in means]
        if not apart or min(apart) > _SAME_PACE:
            apart.append(1.0)
            self._classes.append((0.0, 0))
        at = apart.index(min(apart))
        total, count = self._classes[at]
        self._classes[at] = total + runner.pace, count + 1
        runner.pace_class = at + 1
        return runner.pace_class

    async def take_like(self, other: Runner, *, roomy: bool) -> Runner:
        """Return a warm runner that nobody else gets, of the same pace as `other` if one is to be had.

        Raises RunnerStartError.
        """
        wanted = self.class_of(other)
        found: list[Runner] = []
        try:
            for _ in range(_TRIES):
                found.append(await self._make() if roomy and self._device.lean else await self._take_spare())
                if self.class_of(found[-1]) == wanted:
                    break
            return found.pop()
        finally:
            for runner in found:
                if roomy and self._device.lean:
                    await self.discard(runner)
                else:
                    self._surplus += 1
                    self._ready.put_nowait(runner)

    async def _make(self) -> Runner:
        """Start a runner that nobody had ready, in as many attempts as one that is to be a spare gets."""
        for failures in range(1, _MAX_FAILURES):
            await self.lease.quiet()
            try:
                return await self.spawn()
            except RunnerStartError as error:
                _log.warning("a runner could not be started: %s", error)
                await asyncio.sleep(0.2 * failures)
        await self.lease.quiet()
        return await self.spawn()

    def _exchange(self, runner: Runner, classes: Collection[int]) -> Runner:
        """Return a spare of one of these classes instead of `runner`, or `runner` where none is ready."""
        others = [self._ready.get_nowait() for _ in range(self._ready.qsize())]
        for at, other in enumerate(others):
            if isinstance(other, Runner) and not other.has_ended and self.class_of(other) in classes:
                others[at], runner = runner, other
                break
        for other in others:
            self._ready.put_nowait(other)
        return runner

    async def _take_spare(self) -> Runner:
        began = time.monotonic()
        while True:
            spare = await self._ready.get()
            if self._surplus:
                self._surplus -= 1
            else:
                self._wanted.release()
            if isinstance(spare, _Failed):
                if spare.at >= began:
                    raise spare.error
                continue  # nobody was there to be told: the device may have been full then, and not be now
            if not spare.has_ended:
                return spare
            await self.discard(spare)  # died while it waited

    async def discard(self, runner: Runner, *, overdue: bool = False) -> ExitReport:
        """End a runner that was taken, count how it ended, and return that. `overdue`: it had passed a limit."""
        try:
            report = await runner.end()
        finally:
            self.runners.discard(runner)
        if report.killed:  # by us: the usual end of a runner that has done its work
            how = "killed" if overdue else "clean"
        else:
            how = "signal" if report.signal else "error" if report.exit_code else "clean"
        self.exits[how] += 1
        return report

    async def close(self) -> None:
        """End every runner."""
        await asyncio.gather(*(self.discard(runner) for runner in list(self.runners)))

    def stats(self) -> dict[str, int | dict[str, int]]:
        """Counters for the server's metrics."""
        return {
            "runner_spawns": self.spawns,
            "runner_exits": dict(self.exits),
            "runners": len(self.runners),
            "spares": self.spares_ready,
            "taken": sum(runner.has_candidate for runner in self.runners),
        }

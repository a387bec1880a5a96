"""The pool: keeps a few warm runners ready, and hands each out once.

It asks the zygote for runners and needs no answer: if a runner could not be made, its sockets close.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection

from ...devices.base import Device
from ...shared import wire
from ...walls import Walls
from .handle import ExitReport, Runner, RunnerStartError
from .lease import Lease

_log = logging.getLogger("kerneldyno.judge")

#: Failures in a row after which the pool reports that runners cannot be started.
_MAX_FAILURES = 3
#: Processes fall into classes by their pace; a member differs from the mean of its class by at most this factor. (On
#: H200s there are two classes: a nearly empty kernel takes 1.95 to 2.02 us in one and 2.07 to 2.14 us in the other. A
#: network of a hundred short kernels took 645 us in any process of the first, and 661 us in any of the second.)
_SAME_PACE = 1.025
#: Most runners that are started to find one of the same class.
_TRIES = 8
#: Most runners with full queues that are kept when such a search leaves them over, and for how many seconds. To start
#: one takes seconds.
_MOST_LEFT_OVER = 2
_LEFT_OVER_SECONDS = 30.0
#: The roles of processes that open the device.
_WITH_DEVICE = ("runner", "inspection")


@dataclasses.dataclass(frozen=True, slots=True)
class _Failed:
    """A spare that could not be started, and the (monotonic) time at which that was known, in seconds."""

    error: RunnerStartError
    at: float


class Pool:
    """Keeps `spares` warm runners, and hands out each of them once."""

    def __init__(
        self,
        zygote: socket.socket,
        device: Device,
        device_name: str,
        *,
        spares: int,
        memory_bytes: int,
        devices: int = 1,
    ) -> None:
        """Create a pool without runners.

        Args:
            zygote: The socket to the zygote.
            device: The device.
            device_name: Its name: cpu:0 or cuda:N.
            spares: Number of warm runners to keep.
            memory_bytes: Host memory of one runner, unless it is allowed more later (`Runner.allow`).
            devices: Number of devices of this server, each of which has a pool.
        """
        self._zygote = zygote
        self._device = device
        self._device_name = device_name
        self._spares = spares
        #: Host memory of a new runner, in bytes.
        self.memory_bytes = memory_bytes
        #: The walls that runners get; see `ladder`.
        self.walls = Walls(namespaces=True, filters=True)
        #: Environment variables that runners get in addition to those that they keep.
        self.environment: dict[str, str] = {}
        #: Spares that may open the device concurrently; see `Device.openings`.
        self._openings = asyncio.Semaphore(max(1, device.openings // devices))
        #: All living runners, spares and taken ones. The lease stops these.
        self.runners: set[Runner] = set()
        self.lease = Lease(self.runners)
        #: For each class, the sum of the paces in cycles, and their number.
        self._classes: list[tuple[float, int]] = []
        #: Runners with full queues that nobody has used, and since when (monotonic, seconds).
        self._left_over: list[tuple[Runner, float]] = []
        #: Number of spares that came back and exceed the wanted number, and of tasks that wait for a spare.
        self._surplus = 0
        self._waiting = 0
        self.spawns = 0
        self.exits: Counter[str] = Counter(clean=0, killed=0, signal=0, error=0)
        #: Rehearsals of candidates, by what they led to (`checks/rehearsal.py`).
        self.rehearsals: Counter[str] = Counter(failed=0, passed=0)
        self._ready: asyncio.Queue[Runner | _Failed] = asyncio.Queue()
        self._wanted = asyncio.Semaphore(0)
        self._failures = 0

    @property
    def spares_ready(self) -> int:
        """Number of warm runners that wait for a candidate."""
        return self._ready.qsize()

    @property
    def is_idle(self) -> bool:
        """True if no candidate is in a runner, and all spares are ready."""
        return self.spares_ready >= self._spares and not any(runner.has_candidate for runner in self.runners)

    async def spawn(
        self,
        *,
        full_queues: bool = True,
        role: str = "runner",
        descriptors: list[int] | None = None,
        tool: wire.Frame | None = None,
    ) -> Runner:
        """Start one runner and wait until it is warm.

        Args:
            full_queues: A runner without them starts faster; see `Device.quick_start_environment`.
            role: The program in the process; see `runner/warden.py`. Only a "runner" and an "inspection" can open the
                device.
            descriptors: The files that both sides share, which the runner closes when it ends; None: the device's.
            tool: The tool of an inspection: its name, and what it is asked for.

        Raises:
            RunnerStartError: It could not be started.
        """
        channel, channel_theirs = socket.socketpair()
        control, control_theirs = socket.socketpair()
        descriptors = self._device.runner_descriptors() if descriptors is None else descriptors
        walls = self.walls if role in _WITH_DEVICE else dataclasses.replace(self.walls, gpu_nodes=())
        order = {
            "op": "spawn",
            "role": role,
            "device": self._device_name,
            "walls": dataclasses.asdict(walls),
            "memory_bytes": self.memory_bytes,
            "tool": tool,
            "environment": {
                **self.environment,
                **(self._device.full_queues_environment if full_queues else self._device.quick_start_environment),
            },
        }
        try:
            wire.send(self._zygote, order, (channel_theirs.fileno(), control_theirs.fileno(), *descriptors))
        finally:
            channel_theirs.close()
            control_theirs.close()
        self.spawns += role == "runner"
        runner = Runner(channel, control, descriptors, role, self.memory_bytes)
        self.runners.add(runner)
        try:
            await runner.start(contextlib.nullcontext() if full_queues else self._opening())
        except BaseException:
            await runner.end()  # the waiting caller may be gone, and then nobody else would end it
            self.runners.discard(runner)
            self.exits["error"] += role == "runner"
            raise
        return runner

    @contextlib.asynccontextmanager
    async def _opening(self) -> AsyncIterator[None]:
        """Wait until one more spare may open the device. It may while the body runs."""
        async with self._openings:
            await self.lease.quiet()
            yield

    async def keep_ready(self) -> None:
        """Keep the number of spares constant. This runs as long as the judge does."""
        for _ in range(self._spares):
            self._wanted.release()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._spares):
                group.create_task(self._refill())

    async def _refill(self) -> None:
        while True:
            await self._wanted.acquire()
            await self.lease.quiet()  # starting a process disturbs timing more than anything else
            try:
                runner = await self.spawn(full_queues=False)
            except RunnerStartError as error:
                _log.warning("event=runner_start_failed detail=%r", str(error))
                self._failures += 1
                if self._failures >= _MAX_FAILURES:
                    self._ready.put_nowait(_Failed(error, time.monotonic()))  # somebody is waiting and must be told
                else:
                    self._wanted.release()
                await asyncio.sleep(0.2 * self._failures)
                continue
            self._failures = 0
            self._ready.put_nowait(runner)

    async def take(self, *, full_queues: bool, classes: Collection[int] = ()) -> Runner:
        """Return a warm runner that nobody else gets. `full_queues` says whether the candidate needs those.

        It belongs to one of these pace classes, if such a runner is ready. Raises RunnerStartError.
        """
        if full_queues and self._device.quick_start_environment:
            runner = self._take_left_over(classes) or self._take_left_over() or await self._make()
        else:
            runner = await self._take_spare()
            if classes and self.class_of(runner) not in classes:
                runner = self._exchange(runner, classes)
        runner.has_candidate = True
        return runner

    async def take_for_problem(self, memory_bytes: int) -> Runner:
        """Return a warm runner that nobody else gets and that will run a problem, with so much host memory.

        Raises RunnerStartError.
        """
        runner = await self._take_spare()
        runner.will_run_problem()
        try:
            await runner.allow(memory_bytes)
        except BaseException:
            await self.discard(runner)
            raise
        return runner

    def class_of(self, runner: Runner) -> int:
        """Return the number of a runner's pace class; 0 if processes do not differ in pace."""
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

    async def take_like(self, other: Runner, *, full_queues: bool) -> Runner:
        """Return a warm runner that nobody else gets, of the same pace as `other` if one can be found.

        Raises RunnerStartError.
        """
        wanted = self.class_of(other)
        made = full_queues and bool(self._device.quick_start_environment)
        if made and (runner := self._take_left_over({wanted})) is not None:
            return runner
        tries = 0
        others: list[Runner] = []
        try:
            while True:
                tries += 1
                runner = await self._make() if made else self._exchange(await self._take_spare(), {wanted})
                if tries == _TRIES or self.class_of(runner) == wanted:
                    return runner
                if made or not self._waiting:
                    others.append(runner)
                else:
                    self._give_back(runner)  # to whom any will do
                    await asyncio.sleep(0)  # otherwise this task would take it again before the waiting one wakes
        finally:
            for each in others:
                if made:
                    await self._leave_over(each)
                else:
                    self._give_back(each)

    def _give_back(self, spare: Runner) -> None:
        self._surplus += 1
        self._ready.put_nowait(spare)

    async def end_left_over(self, older_than: float = 0.0) -> None:
        """End the runners that searches have left over, at least `older_than` seconds ago."""
        until = time.monotonic() - older_than
        old = [runner for runner, since in self._left_over if since <= until]
        self._left_over = [each for each in self._left_over if each[1] > until]
        for runner in old:
            await self.discard(runner)

    async def expire(self) -> None:
        """End the runners that nobody has used for a while."""
        await self.end_left_over(_LEFT_OVER_SECONDS)

    def _take_left_over(self, classes: Collection[int] = ()) -> Runner | None:
        """Return a runner that a search has left over, of one of these classes if there are any; None if there is none."""
        for each in self._left_over:
            if not each[0].has_ended and (not classes or self.class_of(each[0]) in classes):
                self._left_over.remove(each)
                return each[0]
        return None

    async def _leave_over(self, runner: Runner) -> None:
        self._left_over.append((runner, time.monotonic()))
        if len(self._left_over) > _MOST_LEFT_OVER:
            await self.discard(self._left_over.pop(0)[0])

    async def _make(self) -> Runner:
        """Start a runner now, with as many attempts as a spare gets. Raises RunnerStartError."""
        for failures in range(1, _MAX_FAILURES):
            await self.lease.quiet()
            try:
                return await self.spawn()
            except RunnerStartError as error:
                _log.warning("event=runner_start_failed detail=%r", str(error))
                await asyncio.sleep(0.2 * failures)
        await self.lease.quiet()
        return await self.spawn()

    def _exchange(self, runner: Runner, classes: Collection[int]) -> Runner:
        """Return a ready spare of one of these classes in place of `runner`, or `runner` if there is none."""
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
            self._waiting += 1
            try:
                spare = await self._ready.get()
            finally:
                self._waiting -= 1
            if self._surplus:
                self._surplus -= 1
            else:
                self._wanted.release()
            if isinstance(spare, _Failed):
                if spare.at >= began:
                    raise spare.error
                continue  # nobody was waiting then; the device may have been full, and may not be now
            if not spare.has_ended:
                return spare
            await self.discard(spare)  # it died while it waited

    async def discard(self, runner: Runner, *, overdue: bool = False) -> ExitReport:
        """End a runner that was taken, count how it ended, and return that. `overdue`: it had exceeded a limit."""
        try:
            report = await runner.end()
        finally:
            self.runners.discard(runner)
        if report.killed:  # we killed it: the usual end of a runner that has done its work
            how = "killed" if overdue else "clean"
        else:
            how = "signal" if report.signal else "error" if report.exit_code else "clean"
        self.exits[how] += runner.role in ("runner", "problem")  # each problem's process was a runner when it was made
        return report

    async def close(self) -> None:
        """End every runner."""
        await asyncio.gather(*(self.discard(runner) for runner in list(self.runners)))

    def stats(self) -> dict[str, int | dict[str, int]]:
        """Return the counters for the server's metrics."""
        return {
            "runner_spawns": self.spawns,
            "runner_exits": dict(self.exits),
            "runners": sum(runner.role == "runner" for runner in self.runners),
            "rehearsals": dict(self.rehearsals),
            "spares": self.spares_ready,
            "taken": sum(runner.has_candidate for runner in self.runners),
        }

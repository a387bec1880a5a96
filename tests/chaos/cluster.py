"""A cluster of real processes on this machine, which tests kill, stop, restart and cut off.

It has one scheduler with its store on disk, and scripted nodes. Each node may connect through a proxy. Every fault is
noted in the history, from which the figures are computed. Nothing here waits until the processes agree on something.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kerneldyno.scheduler import failpoints
from tests.chaos.clients import events_file, recording
from tests.chaos.history import Event, History, read
from tests.chaos.proxy import Proxy
from tests.waiting import free_port

#: Time limit in seconds until a process prints that it is ready.
START_SECONDS = 60.0
_ROOT = Path(__file__).resolve().parents[2]


class Process:
    """A process that prints a line when it is ready, and that can be started again after its death."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self.starts = 0
        self.ready: dict[str, str] = {}
        """What its ready line said."""
        self.command = command
        """What the next start runs."""
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The id of the process that runs now or ran last."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process exists; it may be stopped."""
        return self._process is not None and self._process.returncode is None

    @property
    def up(self) -> bool:
        """Whether the process exists and has printed that it is ready."""
        return self.alive and bool(self.ready)

    async def start(self, environment: Mapping[str, str] | None = None) -> bool:
        """Start the process and wait until it is ready. Return False if it ended before that."""
        self.starts += 1
        self.ready = {}
        path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path, **(environment or {})},
            )
        assert self._process.stdout is not None
        line = (await asyncio.wait_for(self._process.stdout.readline(), START_SECONDS)).decode()
        self.ready = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if not line:
            await self._process.wait()
        return bool(line)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process exists."""
        if self.alive and self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def wait(self, seconds: float = 60.0) -> int:
        """Wait for the end of the process; return its exit status."""
        assert self._process is not None, f"{self.name} was never started"
        return await asyncio.wait_for(self._process.wait(), seconds)

    async def kill(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            await self._process.wait()


class Cluster:
    """A scheduler and nodes. Use it as an async context manager; at its end it kills every process that it started.

    Parameters:
        directory: folder for the store, logs and history.
        nodes: number of nodes. Their names are n1, n2, ...
        options: options of the scheduler's command line, without dashes: {"lease": 10}.
        module: module that runs as the scheduler.
        proxied: whether each node connects to the scheduler through its own proxy (`proxies`).
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 8,
        lanes: int = 2,
        devices: int = 1,
        mean_seconds: float = 0.02,
        options: Mapping[str, Any] | None = None,
        proxied: bool = False,
        module: str = "kerneldyno.scheduler",
        seed: int = 0,
    ) -> None:
        self.directory = directory
        self.random = random.Random(seed)
        self.address = f"127.0.0.1:{free_port()}"
        self.history = History(events_file(directory), by="suite")
        self.proxies: dict[str, Proxy] = {}
        self._node_options = {"lanes": lanes, "devices": devices, "mean-seconds": mean_seconds}
        self._proxied = proxied
        self._calm = asyncio.Event()
        self._stack = AsyncExitStack()
        settings = {
            "listen": self.address,
            "metrics": "127.0.0.1:0",
            "store": f"sqlite:{directory / 'store.sqlite'}",
            **(options or {}),
        }
        command = [sys.executable, "-m", module, "--exit-with-parent"]
        command += [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        self.scheduler = Process("scheduler", command, directory / "scheduler.log")
        self.nodes: dict[str, Process] = {}
        self._names = [f"n{number}" for number in range(1, nodes + 1)]

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        self._stack.enter_context(recording(self.history))
        self._stack.push_async_callback(self._end)
        try:
            assert await self.scheduler.start(), f"no scheduler: {self.scheduler_log()[-2000:]}"
            for name in self._names:
                await self._prepare(name)
            await asyncio.gather(*(self.start_node(name) for name in self._names))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    # The scheduler

    async def kill_scheduler(self) -> float:
        """Send SIGKILL to the scheduler; return the time."""
        at = self.history.note("fault", "info", what="kill", target="scheduler", wall=time.time())
        await self.scheduler.kill()
        return at

    async def start_scheduler(self, armed: str = "") -> bool:
        """Start the scheduler on its port and store, with failpoints `armed`. Return False if it never gets ready."""
        ready = await self.scheduler.start({failpoints.ENVIRONMENT: armed})
        self.history.note("fault", "info", what="started" if ready else "failed to start", target="scheduler")
        return ready

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of the series `name` on the scheduler's metrics page whose labels include `labels`."""
        with urllib.request.urlopen(f"http://{self.scheduler.ready['metrics']}/metrics", timeout=10) as response:
            page = response.read().decode()
        total = 0.0
        for line in page.splitlines():
            series, _, value = line.rpartition(" ")
            plain, _, rest = series.partition("{")
            if plain == name and labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', rest)).items():
                total += float(value)
        return total

    def scheduler_log(self) -> str:
        """Return everything that the scheduler logged, over all restarts."""
        return (self.directory / "scheduler.log").read_text(errors="replace")

    def logged(self, event: str) -> list[tuple[float, dict[str, str]]]:
        """Return the time (wall clock) and the fields of each `event` that the scheduler logged, over all restarts."""
        found = re.findall(rf"^time=(\S+)Z .*\bevent={event}\b(.*)$", self.scheduler_log(), re.MULTILINE)
        return [
            (datetime.fromisoformat(f"{when}+00:00").timestamp(), dict(re.findall(r"(\w+)='?([^\s']*)", rest)))
            for when, rest in found
        ]

    # Nodes

    async def start_node(self, name: str) -> None:
        """Start a node and wait until its Work stream is open."""
        if await self.nodes[name].start():
            self.history.note("fault", "info", what="started", target=name)

    async def kill_node(self, name: str) -> float:
        """Send SIGKILL to a node; return the time."""
        at = self.history.note("fault", "info", what="kill", target=name, wall=time.time())
        await self.nodes[name].kill()
        return at

    def signal_node(self, name: str, number: signal.Signals) -> float:
        """Send SIGSTOP, SIGCONT or SIGTERM to a node; return the time."""
        at = self.history.note("fault", "info", what=number.name, target=name, wall=time.time())
        self.nodes[name].signal(number)
        return at

    async def _prepare(self, name: str) -> None:
        target = self.address
        if self._proxied:
            proxy = Proxy(self.address, seed=self.random.randrange(1 << 30))
            self.proxies[name] = await self._stack.enter_async_context(proxy)
            target = proxy.address
        where = ["--scheduler", target, "--node-id", name, "--events", str(events_file(self.directory))]
        more = [word for option, value in self._node_options.items() for word in (f"--{option}", str(value))]
        log = self.directory / f"{name}.log"
        self.nodes[name] = Process(name, [sys.executable, "-m", "tests.chaos.node", *where, *more], log)

    # Faults that repeat until `calm`

    async def keep_killing_nodes(self, every_seconds: float, away_seconds: float = 1.0, most: float = math.inf) -> None:
        """Kill a random node every `every_seconds` (+-50 %) and start it again. At least half of the nodes stay up."""
        killed = 0
        async with asyncio.TaskGroup() as group:
            while killed < most and not await self._calm_within(every_seconds * self.random.uniform(0.5, 1.5)):
                up = [name for name, node in self.nodes.items() if node.up]
                if len(up) <= len(self.nodes) / 2:
                    continue  # this machine starts nodes more slowly than they are killed
                killed += 1
                name = self.random.choice(up)
                group.create_task(self._replace(name, away_seconds * self.random.uniform(0.0, 2.0)))

    async def keep_killing_scheduler(
        self, every_seconds: float, away_seconds: float = 0.2, most: float = math.inf
    ) -> None:
        """Kill the scheduler every `every_seconds` (+-50 %) and start it again, as a supervisor would."""
        killed = 0
        while killed < most and not await self._calm_within(every_seconds * self.random.uniform(0.5, 1.5)):
            killed += 1
            await self.kill_scheduler()
            await asyncio.sleep(away_seconds)
            await self.start_scheduler()

    async def keep_alive(self) -> None:
        """Start processes again that died by themselves. The scheduler starts without failpoints."""
        async with asyncio.TaskGroup() as group:
            busy: set[str] = set()

            async def revive(name: str) -> None:
                self.history.note("fault", "info", what="died", target=name)
                await (self.start_scheduler() if name == "scheduler" else self.start_node(name))
                busy.discard(name)

            while not await self._calm_within(0.05):
                for name, process in (("scheduler", self.scheduler), *self.nodes.items()):
                    if process.starts and not process.alive and name not in busy:
                        busy.add(name)
                        group.create_task(revive(name))

    async def calm(self, *faults: asyncio.Task[None]) -> None:
        """End the repeating faults. On return, everything that they killed runs again."""
        self._calm.set()
        await asyncio.gather(*faults)
        self._calm.clear()

    async def _calm_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._calm.wait(), seconds)
        return self._calm.is_set()

    async def _replace(self, name: str, away_seconds: float) -> None:
        await self.kill_node(name)
        await asyncio.sleep(away_seconds)
        await self.start_node(name)

    # The end of the run

    def events(self) -> list[Event]:
        """Return the history so far."""
        return read([events_file(self.directory)])

    async def _end(self) -> None:
        for process in (*self.nodes.values(), self.scheduler):
            await process.kill()
        with suppress(OSError):
            self.history.__exit__(None, None, None)

"""Two schedulers that share a PostgreSQL, and a fleet and clients that know both addresses.

One of them serves, and the other one is its standby. A scheduler that ends is started again after a second, as a
supervisor does: one that was killed, and one that found that the other one has taken over.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import grpc.aio

from kerneldyno.rpc import channel
from kerneldyno.rpc.rotation import Endpoint
from kerneldyno.v1.scheduler_service_pb2 import SchedulerServiceGetCapabilitiesRequest
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.chaos.cluster import Cluster, Process
from tests.chaos.proxy import Proxy
from tests.waiting import free_port

#: Seconds without a beat after which the other scheduler takes over.
LEASE_SECONDS = 1.5
#: Seconds until a scheduler that ended is started again.
AWAY_SECONDS = 1.0


class SharedPair(Cluster):
    """A cluster with two schedulers on one store. `address` is the list of both.

    Parameters:
        directory: folder for logs and history.
        urls: the database, as each of both schedulers reaches it; or one URL for both.
        lease: seconds without a beat after which the other scheduler takes over.
        proxied: whether each node reaches each scheduler through a proxy of its own (`links`).
        rest: as for a Cluster.
    """

    def __init__(
        self,
        directory: Path,
        urls: str | Sequence[str],
        *,
        lease: float = LEASE_SECONDS,
        options: Mapping[str, Any] | None = None,
        module: str = "kerneldyno.scheduler",
        proxied: bool = False,
        **rest: Any,
    ) -> None:
        super().__init__(directory, **{"nodes": 3, "lanes": 4, **rest})
        self.lease = lease
        self.active, self.other = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.address = f"{self.active},{self.other}"
        self.down_seconds: list[float] = []
        """For each time when the other scheduler took over, or the same one came back: for how long none served."""
        self.links: dict[tuple[str, str], Proxy] = {}
        """The proxies by the names of the node and the address of the scheduler."""
        self._behind_proxies = proxied
        both = [urls, urls] if isinstance(urls, str) else urls
        self.schedulers: dict[str, Process] = {}
        for address, url in zip((self.active, self.other), both, strict=True):
            settings = {"listen": address, "advertise": address, "store": url, "store-lease": lease}
            settings |= {"metrics": "127.0.0.1:0", **(options or {})}
            words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
            command = [sys.executable, "-m", module, "--exit-with-parent", *words]
            self.schedulers[address] = Process("scheduler", command, directory / "scheduler.log")
        self.scheduler = self.schedulers[self.active]

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        supervising: asyncio.Task[None] | None = None

        async def end() -> None:
            if supervising is not None:
                supervising.cancel()
                with suppress(asyncio.CancelledError):
                    await supervising  # what ended it before is an error of the run
            for scheduler in self.schedulers.values():
                await scheduler.kill()

        self._stack.push_async_callback(end)
        assert await self.schedulers[self.other].start(), self.scheduler_log()[-2000:]
        supervising = asyncio.create_task(self._supervise())
        return self

    async def take_over(self) -> None:
        """Kill the scheduler that serves, and wait until the other one does and the dead one is its standby."""
        killed = self.scheduler
        starts, died = killed.starts, time.monotonic()
        await self.kill_scheduler()
        await self.other_serves(died)
        await self.again(killed, starts)

    async def other_serves(self, since: float) -> None:
        """Wait until the scheduler serves that was the standby; `since` is when the other one stopped to."""
        while not await self._serves(self.other):  # noqa: ASYNC110 - the state of another process
            await asyncio.sleep(0.02)
        self.down_seconds.append(time.monotonic() - since)
        self._turn_to(self.other)

    async def either_serves(self, since: float) -> None:
        """Wait until any scheduler serves; `since` is when none did."""
        while True:
            for address in (self.active, self.other):
                if await self._serves(address):
                    self.down_seconds.append(time.monotonic() - since)
                    self._turn_to(address)
                    return
            await asyncio.sleep(0.02)

    async def again(self, scheduler: Process, starts: int) -> None:
        """Wait until a scheduler that had been started so often has ended and was started again."""
        while not (scheduler.starts > starts and scheduler.up):  # noqa: ASYNC110 - the state of another process
            await asyncio.sleep(0.02)

    def _turn_to(self, address: str) -> None:
        if address == self.other:
            self.active, self.other = self.other, self.active
        self.scheduler = self.schedulers[self.active]

    async def _prepare(self, name: str) -> None:
        await super()._prepare(name)
        if not self._behind_proxies:
            return
        for address in (self.active, self.other):
            proxy = Proxy(address, seed=self.random.randrange(1 << 30))
            self.links[name, address] = await self._stack.enter_async_context(proxy)
        reached = ",".join(proxy.address for (node, _), proxy in self.links.items() if node == name)
        command = self.nodes[name].command
        command[command.index("--scheduler") + 1] = reached

    async def _supervise(self) -> None:
        while True:
            for scheduler in self.schedulers.values():
                if not scheduler.alive:
                    await asyncio.sleep(AWAY_SECONDS)
                    if await scheduler.start():
                        self.history.note("fault", "info", what="started", target="scheduler")
            await asyncio.sleep(0.05)

    async def _serves(self, address: str) -> bool:
        """Ask this scheduler alone: a client would follow the hint of a standby to the other one."""
        async with channel.open_one(Endpoint(address)) as peer:
            ask = SchedulerServiceStub(peer).GetCapabilities
            with suppress(grpc.aio.AioRpcError):
                # One that is stopped takes the call, and does not answer.
                await ask(SchedulerServiceGetCapabilitiesRequest(), timeout=2.0)
                return True
        return False

"""Two schedulers that share a PostgreSQL, and a fleet and clients that know both: the real thing, beside pair.py's."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, Self

from kerneldyno.client import AsyncClient, UnavailableError
from tests.chaos.cluster import Cluster, Process
from tests.waiting import free_port

#: Seconds without a beat after which the other scheduler takes over.
LEASE_SECONDS = 1.5


class SharedPair(Cluster):
    """A cluster with two schedulers on one store. `address` is the list of both."""

    def __init__(self, directory: Path, url: str, *, lease: float = LEASE_SECONDS, **options: Any) -> None:
        first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self._settings = {"metrics": "127.0.0.1:0", "store": url, "store-lease": lease}
        super().__init__(directory, **{"nodes": 3, "lanes": 4, **options})
        self.active, self.other = first, second
        self.address = f"{first},{second}"
        self.schedulers = {address: self._scheduler(address) for address in (first, second)}
        self.scheduler = self.schedulers[first]
        self.down_seconds: list[float] = []
        """For each take-over, the time from the death until the other scheduler served."""

    def _scheduler(self, address: str) -> Process:
        settings = {**self._settings, "listen": address, "advertise": address}
        words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "kerneldyno.scheduler", "--exit-with-parent", *words]
        return Process("scheduler", command, self.directory / "scheduler.log")

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._stack.push_async_callback(self.schedulers[self.other].kill)
        assert await self.schedulers[self.other].start(), self.scheduler_log()[-2000:]
        return self

    async def take_over(self) -> None:
        """Kill the scheduler that serves, wait until the other one does, and start the dead one again as a standby."""
        died = time.monotonic()
        await self.kill_scheduler()
        self.active, self.other = self.other, self.active
        self.scheduler = self.schedulers[self.active]
        while not await self._serves():  # noqa: ASYNC110 - the state of another process
            await asyncio.sleep(0.02)
        self.down_seconds.append(time.monotonic() - died)
        self._stack.push_async_callback(self.schedulers[self.other].kill)
        assert await self.schedulers[self.other].start(), self.scheduler_log()[-2000:]

    async def _serves(self) -> bool:
        async with AsyncClient(self.active, reconnect_timeout=0.5) as client:
            try:
                await client.capabilities()
            except UnavailableError:
                return False
            return True

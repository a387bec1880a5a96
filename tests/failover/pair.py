"""Two schedulers with one journal, of which one serves, and a fleet and clients that know both addresses.

A take-over kills the scheduler that serves with SIGKILL. The other address is a standby (standby.py) until then, and
some time longer, as the other scheduler needs time to notice. Then a real scheduler starts there, with the same file.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from tests.chaos.cluster import Cluster, Process
from tests.failover.standby import Standby
from tests.waiting import free_port

#: Seconds after a death during which the other scheduler is still a standby.
NOTICE_SECONDS = 0.3


class Pair(Cluster):
    """A cluster with two schedulers. `address` is the list of both."""

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(directory, nodes=3, lanes=4, **options)
        first, second = self.address, f"127.0.0.1:{free_port()}"
        self.address = f"{first},{second}"
        self.active, self.other = first, second
        self.down_seconds: list[float] = []
        """For each take-over, the time from the death until the next scheduler was ready."""
        self.standby = Standby(serving=first, retry_seconds=0.3)
        self._command = list(self.scheduler.command)
        self._waiting = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._waiting.enter_async_context(self.standby.serve(self.other))
        self._stack.push_async_callback(self._waiting.aclose)
        return await super().__aenter__()

    async def take_over(self) -> None:
        """Kill the scheduler that serves, and let the other one take its place."""
        died = time.monotonic()
        await self.kill_scheduler()
        self.standby.serving = ""
        await asyncio.sleep(NOTICE_SECONDS)
        await self._waiting.aclose()
        self.active, self.other = self.other, self.active
        command = [self.active if word == self.other else word for word in self._command]
        self._command = command
        self.scheduler = Process("scheduler", [sys.executable, *command[1:]], self.directory / "scheduler.log")
        assert await self.start_scheduler(), self.scheduler_log()[-2000:]
        self.down_seconds.append(time.monotonic() - died)
        self.standby = Standby(serving=self.active, retry_seconds=0.3)
        await self._waiting.enter_async_context(self.standby.serve(self.other))

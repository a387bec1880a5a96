"""Run the real scheduler with scripted nodes: queueing, leases, retries and durability are real, verdicts are scripted.

The scheduler is a child process (extra `scheduler`); the nodes live in this process, on the running event loop or, in a
plain `with` block, in a thread. Neither needs torch or a GPU.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from kerneldyno.client import LocalServiceError
from kerneldyno.client.local import refuse_missing
from kerneldyno.client.service_process import ServiceProcess, indented
from kerneldyno.testing.loop_thread import InThread
from kerneldyno.testing.scripted_node import ScriptedNode

#: Longest time until the scheduler listens and every node has its Work stream, in seconds.
_START_SECONDS = 60.0
#: The scheduler may take this long to stop before it is killed, in seconds.
_STOP_SECONDS = 5.0


class Cluster(InThread):
    """A scheduler and its nodes while the block runs.

        with Cluster([ScriptedNode("n1", lanes=8)]) as cluster, Client(cluster.address) as client:
            ...

    In a `with` block, call coroutines such as `kill_scheduler` through `run`.

    Args:
        nodes: the nodes; by default one with 8 lanes and speedup 1. They must be new.
        store: where the scheduler keeps its work: "memory", or "sqlite:PATH" to survive `kill_scheduler`.
        options: further options of `python -m kerneldyno.scheduler`.

    Raises:
        LocalServiceError: the extra `scheduler` is not installed, or the scheduler or a node did not start.
    """

    def __init__(
        self, nodes: Sequence[ScriptedNode] | None = None, *, store: str = "memory", options: Sequence[str] = ()
    ) -> None:
        self.nodes = [ScriptedNode("n1", lanes=8, speedup=1.0)] if nodes is None else list(nodes)
        self._options = ["--metrics", "off", "--store", store, "--settle", "0", *options]
        self._scheduler: ServiceProcess | None = None
        self._listen = "127.0.0.1:0"
        self._running: list[asyncio.Task[None]] = []

    @property
    def address(self) -> str:
        """Return the scheduler's address, "127.0.0.1:PORT"; the same after it was started again."""
        return self._listen

    async def __aenter__(self) -> Self:
        refuse_missing("scheduler")
        try:
            await self.start_scheduler()
            for node in self.nodes:
                await node.listen()
                self._running.append(asyncio.create_task(node.run(self.address)))
            await self.wait_for_nodes()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        for node in self.nodes:
            node.die()
        for running in self._running:
            running.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._end_scheduler()

    async def start_scheduler(self) -> None:
        """Start the scheduler; after `kill_scheduler` on the same port. Nodes and clients connect again by themselves."""
        options = ["--listen", self._listen, *self._options]
        self._scheduler = ServiceProcess("scheduler", sys.executable, options)
        try:
            async with asyncio.timeout(_START_SECONDS):
                while (ready := self._scheduler.ready) is None:
                    if (how := self._scheduler.ended()) is not None:
                        raise LocalServiceError(f"the scheduler {how}{indented(self._scheduler.tail())}")
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise LocalServiceError(f"the scheduler was not ready in time{indented(self._scheduler.tail())}") from None
        self._listen = ready["grpc"]

    async def kill_scheduler(self) -> None:
        """Kill the scheduler at once (SIGKILL). With a store in memory its work is lost."""
        assert self._scheduler is not None
        self._scheduler.process.kill()
        await asyncio.to_thread(self._scheduler.process.wait)

    async def wait_for_nodes(self) -> None:
        """Wait until every node has its Work stream.

        Raises:
            LocalServiceError: one has none in time.
        """
        try:
            async with asyncio.timeout(_START_SECONDS):
                for node in self.nodes:
                    await node.at_work.wait()
        except TimeoutError:
            raise LocalServiceError("a scripted node did not reach the scheduler in time") from None

    async def _end_scheduler(self) -> None:
        if self._scheduler is None:
            return
        process = self._scheduler.process
        process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                while process.poll() is None:  # noqa: ASYNC110 - another process ends
                    await asyncio.sleep(0.02)
        process.kill()
        process.wait()
        self._scheduler.read_rest()

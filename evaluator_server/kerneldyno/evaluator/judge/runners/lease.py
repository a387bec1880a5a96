"""The timing lease: while one candidate is timed, nothing else of this device runs.

`exclusive` stops every other runner (its warden sends SIGSTOP to the whole tree) and resumes them afterwards. The
judge's own work on the device runs under `work`, one piece at a time and never during a timing. A runner counts the
time for which it was stopped, so that its limits do not run meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection

from .handle import Runner


class Lease:
    """The one lease of a device."""

    def __init__(self, runners: Collection[Runner]) -> None:
        self._runners = runners
        self._lock = asyncio.Lock()
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def quiet(self) -> None:
        """Wait until nobody is being timed."""
        await self._quiet.wait()

    def alone(self, holder: Runner) -> bool:
        """Return True if no other runner has a candidate that could have left work on the device."""
        return not any(runner.has_candidate for runner in self._runners if runner is not holder)

    @contextlib.asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """Do a piece of the judge's own work, never during a timing or beside another piece."""
        async with self._lock:
            yield

    @contextlib.asynccontextmanager
    async def exclusive(self, holder: Runner | None) -> AsyncIterator[None]:
        """Hold the device for the body. All runners except `holder` are stopped."""
        async with self._lock:
            self._quiet.clear()
            others = [runner for runner in self._runners if runner is not holder and not runner.parked]
            try:
                await asyncio.gather(*(runner.stop() for runner in others))
                yield
            finally:
                for runner in others:
                    runner.resume()
                self._quiet.set()

"""Company: many candidates share a device, and one that ran out of something tries again alone before it is blamed.

Device memory cannot be divided: while one candidate hoards it, honest neighbours fail. What fails for want of memory in
company is therefore evaluated again with nobody else on the device, and only that verdict counts. Used by the service.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Company:
    """Lets many in together, or one alone. Whoever wants to be alone is not kept waiting by newcomers."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._present = 0
        self._alone_wanted = 0
        self._alone = False

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Be here with others."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._alone and not self._alone_wanted)
            self._present += 1
        try:
            yield
        finally:
            await self._leave()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Be here with nobody else."""
        self._alone_wanted += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._present and not self._alone)
                self._alone = True
        finally:
            self._alone_wanted -= 1
            if not self._alone:  # cancelled while waiting: those who made way must not wait for ever
                async with self._changed:
                    self._changed.notify_all()
        try:
            yield
        finally:
            async with self._changed:
                self._alone = False
                self._changed.notify_all()

    async def _leave(self) -> None:
        async with self._changed:
            self._present -= 1
            self._changed.notify_all()


def lacked_memory(result: dict[str, object]) -> bool:
    """Say whether a result may be due to what others held of the device: its memory ran out, or no runner could start."""
    match result:
        case {"outcome": "INFRASTRUCTURE_ERROR", "infrastructure_error": {"cause": "DEVICE_MEMORY"}}:
            return True
        case {"outcome": "OUT_OF_MEMORY", "out_of_memory": {"memory": "device"}}:
            return True
        case {"outcome": "REFERENCE_ERROR", "reference_error": {"type": "OutOfMemoryError"}}:
            return True
        case {"outcome": "INFRASTRUCTURE_ERROR", "infrastructure_error": {"cause": "RUNNER_START_FAILED"}}:
            return True
    return False

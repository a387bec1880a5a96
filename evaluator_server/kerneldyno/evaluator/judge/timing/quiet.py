"""Whether the device is as quick as when nobody else uses it, and waiting until it is.

Two things make it slower. Work of another process, say what a stopped candidate has left in its queues: a GPU does the
work of processes in turns, of 2.4 ms on an H200, so that whatever fits into a turn takes no longer than ever, but has to
wait for its turn, and what does not fit is interrupted. What shows that is how long next to nothing takes from launch to
end: 13 to 54 us in three of four tries on a device that nobody else uses, 155 us to 2.5 ms beside kernels of any size.
And there is work that belongs to nobody: what a process gives back, an NVIDIA driver wipes in the background, at half a
terabyte a second, and everybody's memory is an eighth slower until that is done, 8 ms for 4 GB, 40 ms for 16 GB. A
candidate could time either for its reference.
"""

from __future__ import annotations

import asyncio
import math
import time

from ...devices.base import Device

#: How much slower than of late the device may be; and how much slower than at its quietest, when it has had time to finish
#: what nobody waits for, before somebody else must be using it.
_SETTLED, _QUIET = 1.05, 1.3
#: How much longer than ever before next to nothing may take, in seconds, before others must have been waited for.
_WAITED = 80e-6
#: How long the device may take to become as quick as of late, and how long others may take with their work, and the pause
#: between two looks, in seconds. Others' work is somebody's doing, and the host's births and deaths of processes are not.
_PATIENCE, _LONG_PATIENCE = 0.5, 2.0
_PAUSE = 0.002
#: Probes of which the quickest counts, at the most, and those that are made at first.
_PROBES, _FIRST_PROBES = 3, 5


class DeviceBusyError(Exception):
    """Somebody else uses the device, and does not stop: nothing can be timed now."""


class Quiet:
    """Knows how fast the device is when nobody else uses it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        #: The quickest answer.
        self._latency = math.inf
        #: What the probe took at the quietest, and what it takes of late: devices become slower when they get warm.
        self._best = self._usual = math.inf
        for _ in range(_FIRST_PROBES):
            self._probe(math.inf)
        #: What the probe took before a slower device was taken for quiet, the least since somebody set this to None.
        self.slowed_from: float | None = None

    async def wait(self) -> bool:
        """Wait until the device is quiet; False when it does not become so."""
        now = await self._settle(self._usual)
        if self._is_settled(now, self._usual):
            return True
        quiet = now <= self._best * _QUIET
        if quiet:  # wiping is over by now: this is how quick the device has become
            self.slowed_from = self._usual if self.slowed_from is None else min(self.slowed_from, self._usual)
            self._usual = now
        return quiet

    async def has_stayed_slow(self, slowed_from: float) -> bool:
        """Say whether the device is certainly still slower than it was: then that was nobody's doing who has ended since."""
        return slowed_from * _SETTLED < await self._settle(slowed_from) < math.inf

    async def _settle(self, usual: float) -> float:
        """Wait for as long as it may take until the probe takes what it did; return what it takes, in seconds."""
        began = time.monotonic()
        while True:
            now = self._probe(usual)
            patience = _LONG_PATIENCE if math.isinf(now) else _PATIENCE
            if self._is_settled(now, usual) or time.monotonic() - began > patience:
                return now
            await asyncio.sleep(_PAUSE)

    def _is_settled(self, now: float, usual: float) -> bool:
        return now <= min(usual * _SETTLED, self._best * _QUIET)

    def _probe(self, usual: float) -> float:
        """Return what the probe, made again unless that is as usual, takes in seconds; infinity beside others' work."""
        quickest = latency = math.inf
        for _ in range(_PROBES):
            probe = self._device.probe()
            quickest, latency = min(quickest, probe.seconds), min(latency, probe.latency)
            self._latency = min(self._latency, latency)
            now = quickest if latency <= self._latency + _WAITED else math.inf
            self._best, self._usual = min(self._best, now), min(self._usual, now)
            if self._is_settled(now, usual):
                break
        return now

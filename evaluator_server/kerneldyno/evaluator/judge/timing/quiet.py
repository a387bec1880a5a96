"""Check whether the device is as quick as when nobody else uses it, and wait until it is.

Two things make it slower. The first is work of another process, for example work that a stopped candidate left in its
queues. A GPU serves processes in turns (2.4 ms on an H200). Work that fits into a turn takes no longer than usual, but
waits for its turn; longer work is interrupted. This shows in how long a nearly empty kernel takes from launch to end:
13 to 54 us in three of four tries on a device that nobody else uses, 155 us to 2.5 ms beside kernels of any size. The
second is work that belongs to no process: an NVIDIA driver wipes freed memory in the background, at half a terabyte per
second. Until that is done, memory is an eighth slower for everybody: 8 ms for 4 GB, 40 ms for 16 GB. A candidate could
time either of them to slow its reference down.
"""

from __future__ import annotations

import asyncio
import math
import time

from ...devices.base import Device

#: The device is settled up to the first factor of its recent speed. Above the second factor of its best speed, after it
#: had time to finish background work, somebody else must be using it.
_SETTLED, _QUIET = 1.05, 1.3
#: If a nearly empty kernel takes this many seconds longer than the quickest ever seen, it waited for others.
_WAITED = 80e-6
#: Seconds that the device may take to become as quick as it recently was, seconds that others may take to finish their
#: work, and the pause between two checks. Somebody is to blame for others' work, but nobody for processes that start
#: and end on the host.
_PATIENCE, _LONG_PATIENCE = 0.5, 2.0
_PAUSE = 0.002
#: Most probes of which the quickest counts, and the number of probes at the start.
_PROBES, _FIRST_PROBES = 3, 5


class DeviceBusyError(Exception):
    """Somebody else keeps using the device: nothing can be timed now."""


class Quiet:
    """Knows how fast the device is when nobody else uses it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        #: The lowest latency seen, in seconds.
        self._latency = math.inf
        #: The probe's seconds at best, and recently: devices become slower when they get warm.
        self._best = self._usual = math.inf
        for _ in range(_FIRST_PROBES):
            self._probe(math.inf)
        #: The probe's lowest time before a slower device was accepted as quiet, since this was last set to None.
        self.slowed_from: float | None = None

    async def wait(self) -> bool:
        """Wait until the device is quiet. Return False if it does not become quiet."""
        now = await self._settle(self._usual)
        if self._is_settled(now, self._usual):
            return True
        quiet = now <= self._best * _QUIET
        if quiet:  # wiping is over by now, so this is the device's new speed
            self.slowed_from = self._usual if self.slowed_from is None else min(self.slowed_from, self._usual)
            self._usual = now
        return quiet

    async def has_stayed_slow(self, slowed_from: float) -> bool:
        """Return True if the device is certainly still slower than it was; then no process that has ended caused it."""
        return slowed_from * _SETTLED < await self._settle(slowed_from) < math.inf

    async def _settle(self, usual: float) -> float:
        """Wait, within the time limit, until the probe is as quick as `usual`. Return its last time in seconds."""
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
        """Return the probe's seconds, repeated unless they are as usual; infinity if others' work was seen."""
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

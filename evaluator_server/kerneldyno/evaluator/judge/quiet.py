"""Whether the device is as quick as when nobody else uses it, and waiting until it is.

A device has work that belongs to nobody. What a process gives back, an NVIDIA driver wipes in the background, at half a
terabyte a second on an H200, and everybody's memory is an eighth slower until that is done: 8 ms for 4 GB, 40 ms for
16 GB. A candidate could time that for its reference.
"""

from __future__ import annotations

import asyncio
import time

from ..devices.base import Device

#: How much slower than of late the device may be; and how much slower than at its quietest, when it has had time to finish
#: what nobody waits for, before somebody else must be using it.
_SETTLED, _QUIET = 1.05, 1.3
#: How long that takes at the most, and the pause between two looks, in seconds.
_PATIENCE = 0.5
_PAUSE = 0.002
#: Probes of which the quickest counts.
_PROBES, _FIRST_PROBES = 3, 5


class DeviceBusyError(Exception):
    """Somebody else uses the device, and does not stop: nothing can be timed now."""


class Quiet:
    """Knows how fast the device is when nobody else uses it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        #: What the probe took at the quietest, and what it takes of late: devices become slower when they get warm.
        self._best = self._usual = self._probe(_FIRST_PROBES)

    def _probe(self, count: int = _PROBES) -> float:
        return min(self._device.probe_seconds() for _ in range(count))

    async def wait(self) -> bool:
        """Wait until the device is quiet; False when it does not become so."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            now = self._probe()
            self._best, self._usual = min(self._best, now), min(self._usual, now)
            if now <= min(self._usual * _SETTLED, self._best * _QUIET):
                return True
            if time.monotonic() > deadline:
                quiet = now <= self._best * _QUIET
                if quiet:  # wiping is over by now: this is how quick the device has become
                    self._usual = now
                return quiet
            await asyncio.sleep(_PAUSE)

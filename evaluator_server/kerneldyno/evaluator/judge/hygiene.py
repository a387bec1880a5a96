"""Device hygiene: after each runner the device must still compute correctly, and its memory must be free again.

A device that fails the test is not used. The judge exits, and the server starts another judge with a context of its
own. That judge refuses to serve while the device fails the same test. The server tries again at growing intervals
(`cell`), so a defective device is in quarantine until it passes. Used by the service.
"""

from __future__ import annotations

import torch

from ..devices.base import Device
from .runners.work import settle

#: Memory that may be missing although nothing is left that could hold it, in bytes: fragments, and the driver's own.
_MISSING_BYTES = 2 << 30
#: Sizes of the test computations. They use integers, so the right answer is the same everywhere.
_COUNT = 1 << 16
_SIDE = 128


class SickDeviceError(Exception):
    """The device must not be used; the message says what is wrong with it."""


class Hygiene:
    """Tests one device. The constructor tests the device for the first time, and raises SickDeviceError if it fails."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._numbers = torch.arange(_COUNT, dtype=torch.int64)
        self._answer = _mix(self._numbers)
        self._product = _multiply(torch.device("cpu"))
        self._quietest: int | None = None
        self.check()

    def check(self) -> None:
        """Compute something whose answer is known. Raises SickDeviceError."""
        try:
            mixed = _mix(self._numbers.to(self._device.torch_device))
            product = _multiply(self._device.torch_device)
            settle(self._device)
            self._device.settle_cache()
        except Exception as error:
            if self._device.is_full():
                # Another process uses all of its memory, which is not a fault of the device. Test it after the next runner.
                return
            raise SickDeviceError(f"the device reports {type(error).__name__}: {str(error)[:300]}") from error
        if int(mixed) != int(self._answer) or not torch.equal(product.cpu(), self._product):
            raise SickDeviceError("the device computes a known answer wrongly")

    def check_idle(self) -> None:
        """Compare free memory with the most that was ever free. Raises SickDeviceError.

        Call it only when no candidate is on the device and all spares are ready.
        """
        self._device.trim()
        free = self._device.free_bytes()
        if free is None:
            return
        if self._quietest is None or free > self._quietest:
            self._quietest = free
        elif self._quietest - free > _MISSING_BYTES:
            missing = (self._quietest - free) >> 20
            raise SickDeviceError(f"{missing} MiB of device memory were not freed")


def _mix(numbers: torch.Tensor) -> torch.Tensor:
    mixed = (numbers * 2654435761 + 12345) ^ (numbers >> 3)
    return (mixed % 1000003).sum()


def _multiply(device: torch.device) -> torch.Tensor:
    """Return a product of integers so small that every float format adds them up exactly."""
    left = (torch.arange(_SIDE * _SIDE, device=device) % 7).view(_SIDE, _SIDE).float()
    return left @ left.T

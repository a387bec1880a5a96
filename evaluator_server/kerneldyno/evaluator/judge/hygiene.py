"""Device hygiene: after each runner the device must still compute what it should, and have its memory back.

A device that fails is not used: the judge leaves, the server starts another one with a context of its own, and that one
refuses to serve while the device fails the same test again. The server tries at growing intervals (`cell`): a sick device
is in quarantine until it is well. Used by the service.
"""

from __future__ import annotations

import torch

from ..devices.base import Device

#: Memory that may be missing when nothing is left that could hold it, in bytes: fragments, and the driver's own.
_MISSING_BYTES = 2 << 30
#: The canary: integers, so that the right answer is the same everywhere.
_COUNT = 1 << 16
_SIDE = 128


class SickDeviceError(Exception):
    """The device must not be used; the message says what is wrong with it."""


class Hygiene:
    """Tests one device. Constructing it tests the device for the first time; raises SickDeviceError."""

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
            self._device.synchronize()
            mixed = _mix(self._numbers.to(self._device.torch_device))
            product = _multiply(self._device.torch_device).cpu()
            self._device.settle_cache()
        except Exception as error:
            if self._device.is_full():
                return  # somebody holds all of its memory: not the device's fault, and looked at again after the next one
            raise SickDeviceError(f"the device reports {type(error).__name__}: {str(error)[:300]}") from error
        if mixed != self._answer or not torch.equal(product, self._product):
            raise SickDeviceError("the device computes a known answer wrongly")

    def check_idle(self) -> None:
        """Compare free memory with what there was when as little was going on. Raises SickDeviceError.

        Call it only when no candidate is on the device and all spares are there.
        """
        self._device.trim()
        free = self._device.free_bytes()
        if free is None:
            return
        if self._quietest is None or free > self._quietest:
            self._quietest = free
        elif self._quietest - free > _MISSING_BYTES:
            missing = (self._quietest - free) >> 20
            raise SickDeviceError(f"{missing} MiB of device memory have not come back")


def _mix(numbers: torch.Tensor) -> int:
    mixed = (numbers * 2654435761 + 12345) ^ (numbers >> 3)
    return int((mixed % 1000003).sum())


def _multiply(device: torch.device) -> torch.Tensor:
    """A product of whole numbers small enough that every float format adds them up exactly."""
    left = (torch.arange(_SIDE * _SIDE, device=device) % 7).view(_SIDE, _SIDE).float()
    return left @ left.T

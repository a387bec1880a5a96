"""Device hygiene: a device that computes wrongly, fails, or keeps memory is not used."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kerneldyno.evaluator.devices.cpu import CpuDevice
from kerneldyno.evaluator.judge.hygiene import Hygiene, SickDeviceError

pytestmark = pytest.mark.pure


class SickDevice(CpuDevice):
    """A CPU device with the defects that a test gives it."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.free = 100 << 30
        self.full = False

    def synchronize(self) -> None:
        if self.error is not None:
            raise self.error

    def free_bytes(self) -> int:
        return self.free

    def is_full(self) -> bool:
        return self.full


def test_a_well_device_passes_again_and_again() -> None:
    hygiene = Hygiene(CpuDevice())
    for _ in range(3):
        hygiene.check()
        hygiene.check_idle()


def test_a_device_that_reports_an_error_is_sick() -> None:
    device = SickDevice()
    hygiene = Hygiene(device)
    device.error = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(SickDeviceError, match="illegal memory access"):
        hygiene.check()
    device.error = None
    hygiene.check()


def test_a_device_that_somebody_has_filled_is_not_called_sick() -> None:
    device = SickDevice()
    hygiene = Hygiene(device)
    device.error, device.full = RuntimeError("CUDA error: out of memory"), True
    hygiene.check()
    device.full = False
    with pytest.raises(SickDeviceError):
        hygiene.check()


@pytest.mark.parametrize("broken", ["__matmul__", "__rshift__"])
def test_a_device_that_computes_wrongly_is_sick(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hygiene = Hygiene(CpuDevice())
    right: Any = getattr(torch.Tensor, broken)
    monkeypatch.setattr(torch.Tensor, broken, lambda self, other: right(self, other) + 1)
    with pytest.raises(SickDeviceError, match="wrongly"):
        hygiene.check()


def test_memory_that_does_not_come_back_makes_a_device_sick() -> None:
    device = SickDevice()
    hygiene = Hygiene(device)
    hygiene.check_idle()
    device.free -= 1 << 30
    hygiene.check_idle()  # so little may be missing: fragments
    device.free -= 2 << 30
    with pytest.raises(SickDeviceError, match="3072 MiB"):
        hygiene.check_idle()

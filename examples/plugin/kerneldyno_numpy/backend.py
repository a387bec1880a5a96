"""The backend "numpy": candidates for the CPU device that compute with NumPy.

They take arrays from their input tensors (`x.numpy()`) and return arrays by `torch.from_numpy`, which shares memory. The
zygote loads this module before any runner exists, so importing it must not start threads or touch a device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy
import torch

from kerneldyno.evaluator.backends import Backend, Launches
from kerneldyno.evaluator.devices.base import Device


class NumpyBackend(Backend):
    """Backend that counts the arrays that come back from NumPy: a candidate without any computed elsewhere."""

    name = "numpy"
    must_launch = True

    def warm_up(self, device: Device) -> None:
        numpy.ones((8, 8)) @ numpy.ones((8, 8))  # the first product sets the BLAS library up

    @contextlib.contextmanager
    def count_launches(self, device: Device) -> Iterator[Launches]:
        launches = Launches(0)
        original = torch.from_numpy

        def counted(ndarray: Any) -> torch.Tensor:
            assert launches.count is not None
            launches.count += 1
            return original(ndarray)

        torch.from_numpy = counted
        try:
            yield launches
        finally:
            torch.from_numpy = original


BACKEND = NumpyBackend()

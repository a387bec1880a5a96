"""Levelling: what the reference takes in the judge, as it would take it in the process that a candidate runs in.

Processes differ in how long the very same kernel takes (`devices/pace.py`): a chain of twenty took 42 to 45 us, by
process. The judge is one such process and each runner another, so whoever compares a reference here with a candidate there
compares chance with chance. A runner measures its pace before a candidate is in it, and says so in its greeting; the judge
measures its own. The difference is added to the reference's times, once for each kernel of it. The candidate's are left as
they are.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from ..devices.base import Device
from .problems import Known
from .trial import Trial

_log = logging.getLogger("kerneldyno.judge")

#: Paces that differ by more than this, in seconds, are no matter of chance: one was disturbed, and says nothing.
_MOST = 0.5e-6
#: Inputs and outputs of more bytes are for kernels that take so long that none of this matters.
_LARGEST = 256 << 20


@dataclass(frozen=True, slots=True)
class Level:
    """Paces of the judge and of a runner, in seconds a kernel, and how many kernels the reference has."""

    judge: float = 0.0
    runner: float = 0.0
    kernels: int = 0

    @property
    def seconds(self) -> float:
        """What is added to each of the reference's times; 0 where that is not known."""
        difference = self.runner - self.judge
        if not self.judge or not self.runner or not abs(difference) <= _MOST:
            return 0.0
        return self.kernels * difference


def count_kernels(known: Known, device: Device, example: Trial) -> int:
    """Return how many kernels and copies a call of the reference on the inputs of `example` is; 1 where that cannot be told.

    A reference that fails here fails in its timing too, and is reported there.
    """
    call = known.problem.timed
    if call is None or example.inputs.set_bytes + example.slot_bytes > _LARGEST:
        return 1
    try:
        arguments = example.inputs.arguments(example.inputs.master.clone(), device)
        with torch.no_grad():
            return max(1, device.count_work(lambda: call(*arguments)) or 1)
    except Exception as error:  # no memory for it, for example: an estimate spoils no verdict
        _log.info("the kernels of a reference could not be counted: %s: %s", type(error).__name__, error)
        return 1

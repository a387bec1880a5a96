"""A reference in its own runner, built in the same way as in its problem's process (`problem.py`), to be timed.

No candidate ever runs in this process. It is a runner like a candidate's (same zygote,
sandbox, allocator and loop), so that the times of reference and candidate are comparable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..devices.base import Device
from ..shared.spec import ProblemSpec, TimedForm
from ..toolkits import toolkits, torch_settings
from ..toolkits.base import REFERENCE_FILE as FILE

__all__ = ["FILE", "build", "preload"]


def preload() -> None:
    """Import all toolkits, because a runner may not be able to read the files of plug-ins.

    The zygote calls this once.
    """
    toolkits()


def build(
    spec: ProblemSpec, form: TimedForm, seed: int, buffers: Sequence[str], device: Device
) -> tuple[Callable[..., Any] | None, Callable[[], contextlib.AbstractContextManager[Any]]]:
    """Build the problem of `spec` under the judge's own seed, and call it once.

    Args:
        spec: The problem.
        form: What is timed.
        seed: The judge's seed.
        buffers: What the judge has learnt from its own calls (`Problem.buffers`).
        device: The device.

    Returns:
        The callable to time, or None, and a function that returns the context manager of its settings.

    Raises:
        Exception: Whatever the reference raises.
    """
    problem = torch_settings.build(toolkits()[spec.toolkit], spec, device.torch_device, seed)
    with problem.settings.in_force(), torch.no_grad():
        problem.know(buffers)
        problem.make_ready(form)
        if problem.timed is not None:
            problem.timed(*problem.inputs(0, seed))
            device.synchronize()
    return problem.timed, problem.settings.in_force

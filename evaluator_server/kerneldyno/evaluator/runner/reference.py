"""A reference in a runner of its own, built there as the judge builds it: only this file of `runner` knows toolkits.

References are trusted, and candidates never come near this process. It is a runner like theirs (same zygote, same
walls, same allocator, same loop) so that a time of one can be held against a time of the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from ..devices.base import Device
from ..shared.spec import EvalSpec
from ..toolkits import toolkits
from ..toolkits.base import REFERENCE_FILE as FILE
from ..toolkits.torch_settings import seclude

__all__ = ["FILE", "build", "preload"]


def preload() -> None:
    """Import all toolkits; called once, in the zygote: plug-ins may lie where a runner cannot read."""
    toolkits()


def build(
    spec: dict[str, Any], seed: int, device: Device
) -> tuple[Callable[..., Any] | None, Callable[[], contextlib.AbstractContextManager[Any]]]:
    """Build the problem of `spec` (`EvalSpec.to_plain`) under the judge's own seed, and call it once.

    Returns what is timed, if anything is, and what is in force meanwhile. Raises what the reference raises.
    """
    read = EvalSpec.from_plain(spec)
    problem = seclude(lambda: toolkits()[read.toolkit].build(read, device.torch_device, seed))
    with problem.settings.in_force(), torch.no_grad():
        problem.make_ready(seed)
        if problem.timed is not None:
            problem.timed(*problem.inputs(0, seed))
            device.synchronize()
    return problem.timed, problem.settings.in_force

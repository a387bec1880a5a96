"""The pace of a process: how long almost empty kernels take in it, one after the other, on an NVIDIA GPU.

The same kernel takes up to 0.2 us longer in one process than in another, cold or warm, as long as both live. The
difference is random, has a few steps, and disappears when a CUDA graph replays the kernel (seen on H200s). It depends
on the launch queue, and less on the kernel, so the likely cause is where the driver has put what each launch needs. The
pace can be measured within 0.02 us, and references are timed in processes with the pace of their candidates'
(`judge/runners/pool.py`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import torch

from .base import Pace

#: Number of elements that the kernels process: as many threads as fit on the device at once, with almost no work.
_NUMBERS = 1 << 16
#: How often the chain is timed. Disturbances only make it longer, so the shortest counts.
_CHAINS = 8
_LINKS = 5
#: How long the device is kept busy while the chain is queued, in cycles of its clock: 0.2 ms at first, more if that was
#: too short. Before that it is kept busy for a fourth of that time: the difference of the two tells how long a cycle
#: takes.
_HELD_CYCLES = 400_000
_MOST_HELD_CYCLES = 8_000_000
_SHORTER = 4


def measure(device: torch.device) -> Pace | None:
    """Return the pace, the mean of several kernels; None if the host is too slow to queue the chain in time."""
    event: Callable[..., Any] = torch.cuda.Event
    sleep: Callable[[int], None] = torch.cuda._sleep
    target = torch.zeros(_NUMBERS, device=device)
    # Kernels may lie at better or worse addresses: these come from different modules, each loaded separately.
    steps: list[Callable[[], torch.Tensor]] = [target.tanh_, target.abs_, target.sigmoid_, lambda: target.add_(1.0)]
    for step in steps:
        step()
    shortest, held = math.inf, _HELD_CYCLES
    clocks: list[float] = []
    while len(clocks) < _CHAINS and held <= _MOST_HELD_CYCLES:
        first, second, third, begin, end = (event(enable_timing=True) for _ in range(5))
        first.record()
        sleep(held // _SHORTER)
        second.record()
        sleep(held)
        third.record()
        steps[0]()
        begin.record()
        for _ in range(_LINKS):
            for step in steps:
                step()
        end.record()
        late = begin.query()  # the device waited for the host, so this does not count
        end.synchronize()
        longer = second.elapsed_time(third) - first.elapsed_time(second)
        if late or longer <= 0:  # the host was interrupted before the longer wait
            held *= 2
        else:
            shortest = min(shortest, begin.elapsed_time(end) * 1e-3)
            clocks.append((held - held // _SHORTER) / (longer * 1e-3))
    if not clocks:
        return None
    hertz = statistics.median(clocks)
    return Pace(shortest / (_LINKS * len(steps)) * hertz, hertz)

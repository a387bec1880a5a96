"""The pace of a process: how long kernels that do next to nothing take there, one after the other on an NVIDIA GPU.

The very same kernel takes up to 0.2 us longer in one process than in another, cold or warm, for as long as both live: by
chance, in a few steps, and not when it is replayed as part of a CUDA graph (seen on H200s). It goes by the queue that work
is given to, and less by the kernel, so it is likely to be where the driver has put what each launch needs. It can be
measured within 0.02 us, and references are timed in processes of the pace that their candidates have
(`judge/runners/pool.py`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import torch

from .base import Pace

#: Numbers that the kernels work on: as many threads as fit the device at once, and next to no work.
_NUMBERS = 1 << 16
#: How often the chain is timed. What disturbs one makes it longer: the shortest counts.
_CHAINS = 8
_LINKS = 5
#: How long the device is kept busy while the chain is queued behind, in cycles of its clock: 0.2 ms to begin with. Before
#: that, for a fourth of it: what a longer wait takes beyond a shorter one says how long a cycle takes.
_HELD_CYCLES = 400_000
_MOST_HELD_CYCLES = 8_000_000
_SHORTER = 4


def measure(device: torch.device) -> Pace | None:
    """Return the pace, the mean of several kernels; None where the host is too slow to queue so many."""
    event: Callable[..., Any] = torch.cuda.Event
    sleep: Callable[[int], None] = torch.cuda._sleep
    target = torch.zeros(_NUMBERS, device=device)
    # One kernel may lie better than another: they are of different modules, of which each is loaded for itself.
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
        late = begin.query()  # the device has waited for the host: that is no pace of the device's
        end.synchronize()
        longer = second.elapsed_time(third) - first.elapsed_time(second)
        if late or longer <= 0:  # the host stood still before the longer one
            held *= 2
        else:
            shortest = min(shortest, begin.elapsed_time(end) * 1e-3)
            clocks.append((held - held // _SHORTER) / (longer * 1e-3))
    if not clocks:
        return None
    hertz = statistics.median(clocks)
    return Pace(shortest / (_LINKS * len(steps)) * hertz, hertz)

"""Energy of a call: the driver's own counter, while calls of one side follow each other without a pause.

The counter moves in steps of tens of milliseconds, so only the time between two of its steps counts, and it is read while
the side works. How many calls there were is the side's own word; what contradicts its times is not reported. Only done on
request, since it holds the device for two seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

from kerneldyno.v1 import evaluation_pb2 as pb

from ...devices.base import Device
from ..runners.side import Side
from .bursts import Bursts
from .measured import Measured, device_seconds
from .reference_runners import ReferenceRunner

#: Seconds for which one side works, and how much of the beginning is left out, while clocks and caches settle.
_SECONDS, _LEFT_OUT = 1.0, 0.2
#: Seconds between two readings, and least number of steps of the counter that are needed.
_INTERVAL, _STEPS = 0.004, 4
#: A call cannot take less than this share of its device time.
_PLAUSIBLE = 0.8


async def of_both(
    bursts: Bursts, candidate: Side, reference: ReferenceRunner, measured: Measured
) -> tuple[pb.Energy | None, pb.Energy | None]:
    """Return the energy of a call of either side; None where it is unknown, or where there are no calls."""
    if candidate.device.energy() is None:
        return None, None
    ours = await _of_side(bursts, reference, device_seconds(measured.reference)) if reference.timed else None
    return await _of_side(bursts, candidate, device_seconds(measured.candidate)), ours


async def _of_side(bursts: Bursts, side: Side, least: float) -> pb.Energy | None:
    """Return the energy of a side's calls, each of which takes `least` seconds of the device."""
    async with bursts.awake(side):
        calls, seconds, watts = await _work(side.device, side.work(_SECONDS))
    if calls <= 0 or watts is None or seconds / calls < _PLAUSIBLE * least:
        return None
    return pb.Energy(joules_per_call=watts * seconds / calls, watts=watts, calls=calls)


async def _work(device: Device, working: Awaitable[int]) -> tuple[int, float, float | None]:
    """Return the number of calls, their seconds, and the device's mean power meanwhile in watts, or None."""
    begin = time.monotonic()
    work = asyncio.ensure_future(working)
    steps: list[tuple[float, float]] = []
    while not work.done():
        now, joules = time.monotonic() - begin, device.energy()
        if joules is not None and now > _LEFT_OUT and (not steps or joules != steps[-1][1]):
            steps.append((now, joules))
        await asyncio.wait({work}, timeout=_INTERVAL)
    calls, seconds = await work, time.monotonic() - begin
    # The first reading is not at a step of the counter.
    steps = steps[1:]
    if len(steps) <= _STEPS:
        return calls, seconds, None
    (first, before), (last, after) = steps[0], steps[-1]
    return calls, seconds, (after - before) / (last - first)

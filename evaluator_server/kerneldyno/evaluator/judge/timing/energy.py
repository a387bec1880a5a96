"""Energy of a call: what the device's own counter says while calls of one side follow each other without a gate.

The counter is read between bursts. It moves in steps of tens of milliseconds, so only the time between two of its steps
counts. Each burst also copies outputs, which bursts without a call do as well; what those use is subtracted. Only done on
request, since it holds the device for two seconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from kerneldyno.v1 import evaluation_pb2 as pb

from ..runners.side import Side
from .bursts import Bursts
from .reference_runners import ReferenceRunner

#: Seconds for which one kind of calls runs, and after which it is given up if the counter has not moved often enough.
_SECONDS, _MOST_SECONDS = 0.7, 2.0
#: Least number of steps of the counter between the first and the last one that are used.
_STEPS = 5


@dataclass(frozen=True, slots=True)
class Spent:
    """Joules and seconds up to a number of calls."""

    joules: float
    seconds: float
    calls: int


async def of_both(
    bursts: Bursts, candidate: Side, reference: ReferenceRunner
) -> tuple[pb.Energy | None, pb.Energy | None]:
    """Return the energy of a call of either side; None where it is unknown, or where there are no calls."""
    nothing = await _measure(bursts, reference, nothing=True)
    if nothing is None:
        return None, None
    ours = await _measure(bursts, reference) if reference.timed else None
    return _beyond(nothing, await _measure(bursts, candidate)), _beyond(nothing, ours)


def _beyond(nothing: Spent, spent: Spent | None) -> pb.Energy | None:
    """Return what calls used beyond what bursts without calls do."""
    if spent is None:
        return None
    joules = spent.joules / spent.calls - nothing.joules / nothing.calls
    return pb.Energy(joules_per_call=max(0.0, joules), watts=spent.joules / spent.seconds, calls=spent.calls)


async def _measure(bursts: Bursts, side: Side, *, nothing: bool = False) -> Spent | None:
    """Make calls of a side, or bursts without calls, and return what the device used meanwhile; None if it is unknown."""
    device = side.device
    if device.energy() is None:
        return None
    steps: list[Spent] = []
    begin, calls, last = time.monotonic(), 0, device.energy()
    async with bursts.awake(side):
        while (now := time.monotonic() - begin) < _SECONDS or (len(steps) <= _STEPS and now < _MOST_SECONDS):
            await bursts.warm_up(side, bursts.longest, cold=False, nothing=nothing)
            calls += bursts.longest
            joules = device.energy()
            if joules is not None and joules != last:
                steps.append(Spent(joules, time.monotonic() - begin, calls))
                last = joules
    if len(steps) <= _STEPS:
        return None
    first, final = steps[0], steps[-1]
    return Spent(final.joules - first.joules, final.seconds - first.seconds, final.calls - first.calls)

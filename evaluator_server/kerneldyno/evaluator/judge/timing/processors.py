"""Choose the processor that timing has to itself. Both sides are timed on it; the judge, which polls, uses others.

While the judge polls for a signal it does not sleep, and it has a higher priority than any runner. On the same
processor it would stop the runner for which it waits. For devices other than the CPU any processor will do. But the
processors of a virtual machine are threads of a host that others use as well: a fixed loop takes 48 us on most of
sixteen processors and 90 us on others, and after some milliseconds it is different ones (seen beside an H200). So each
side that is woken gets a processor that is quick at that moment.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection

from ...shared.cores import siblings

#: Steps of the loop that measures how quick a processor is (18 us), and the number of runs; the quickest run counts.
_STEPS, _RUNS = 1500, 3
#: A processor is quick up to this factor of the quickest run ever seen. If its core is shared it is slower by half or
#: more.
_QUICK = 1.2
#: Least number of processors that leaves a choice.
_ENOUGH = 4


class Processors:
    """The processors of this host, one of which launches a device's calls."""

    def __init__(self, share: tuple[int, int], *, roams: bool, near: Collection[int] = ()) -> None:
        """Choose one, permanently unless it `roams`, and keep this process off it.

        Args:
            share: This device's number among those of its server, and their count. Each device has a share of the
                processors, from which no candidate can take one.
            roams: Whether another processor may be chosen later.
            near: The processors that are near the device. One of them is chosen, if any are known and there is a
                choice.
        """
        number, devices = share
        self._all = os.sched_getaffinity(0)
        available = sorted(self._all & set(near) if len(self._all & set(near)) >= _ENOUGH else self._all, reverse=True)
        self._mine = available[number::devices]
        self._roams = roams and len(self._mine) >= _ENOUGH
        self._best = min(map(self._probe, self._mine)) if self._roams else 0.0
        #: The processor that is chosen now; None if there is only one.
        self.chosen: int | None = None
        if len(available) >= 2:
            self.chosen = available[number % (len(available) // 2)]
            self._keep_off(self.chosen)

    def choose(self, most: int | None = None) -> int | None:
        """Return a processor that is quick now, and keep this process off it. Prefer the one chosen before.

        At most `most` are tried; if none is quick, the quickest of them is taken.
        """
        if not self._roams or self.chosen is None:
            return self.chosen
        found: list[tuple[float, int]] = []
        for processor in self._in_turn()[:most]:
            seconds = self._probe(processor)
            self._best = min(self._best, seconds)
            found.append((seconds, processor))
            if seconds <= _QUICK * self._best:
                break
        self.chosen = min(found)[1]
        self._keep_off(self.chosen)
        return self.chosen

    def _in_turn(self) -> list[int]:
        """Return the chosen processor and then the others in rotation, so that few tries do not always find the same."""
        assert self.chosen is not None
        at = self._mine.index(self.chosen) if self.chosen in self._mine else 0
        return [self.chosen, *(each for each in self._mine[at:] + self._mine[:at] if each != self.chosen)]

    def is_quick(self) -> bool:
        """Return True if the chosen processor is still quick, or if that is unknown."""
        if not self._roams or self.chosen is None:
            return True
        seconds = self._probe(self.chosen)
        self._keep_off(self.chosen)
        return seconds <= _QUICK * self._best

    def _probe(self, processor: int) -> float:
        """Return how many seconds the loop takes on a processor."""
        try:
            os.sched_setaffinity(0, {processor})
        except OSError:  # the processor was taken from this process
            return float("inf")
        return min(_loop() for _ in range(_RUNS))

    def _keep_off(self, processor: int) -> None:
        """Move this process to other processors, and off the same core, if there is another."""
        others = self._all - {processor}
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, others - siblings(processor) or others)


def _loop() -> float:
    began = time.perf_counter()
    for _ in range(_STEPS):
        pass
    return time.perf_counter() - began

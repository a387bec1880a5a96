"""Which processor timing has to itself: both sides are timed on it, and the judge, who watches, is on others.

A judge that watches for a signal does not sleep, and has a higher priority than any runner: on one processor with the
runner that it waits for, it would keep that from going on. For devices beside the host any processor will do, and those
of a virtual machine are threads of a host that others use as well: a fixed loop takes 48 us on most of sixteen and 90 on
others, and after some milliseconds it is different ones (seen beside an H200). So whoever is woken gets one that is quick
just then.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Collection
from pathlib import Path

#: Steps of the loop that tells how quick a processor is: 18 us. It is run so often, and the quickest run counts.
_STEPS, _RUNS = 1500, 3
#: How much slower than the quickest that was ever seen a processor may be. Who shares its core is by half and more.
_QUICK = 1.2
#: Processors from which on there is a choice.
_ENOUGH = 4
#: The file that says with which others a processor shares a core.
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


class Processors:
    """The processors of this host, one of which is the one that a device's calls are launched from."""

    def __init__(self, share: tuple[int, int], *, roams: bool, near: Collection[int] = ()) -> None:
        """Choose one, for good unless it `roams`, and keep this process off it.

        `share`: this device's number among those of its server, and how many these are; each has a share of the processors
        for itself, which no candidate can take from it. One of those that are `near` the device, if that is known and there
        is a choice.
        """
        number, devices = share
        self._all = os.sched_getaffinity(0)
        available = sorted(self._all & set(near) if len(self._all & set(near)) >= _ENOUGH else self._all, reverse=True)
        self._mine = available[number::devices]
        self._roams = roams and len(self._mine) >= _ENOUGH
        self._best = min(map(self._probe, self._mine)) if self._roams else 0.0
        #: The one that is chosen now; None where there is only one.
        self.chosen: int | None = None
        if len(available) >= 2:
            self.chosen = available[number % (len(available) // 2)]
            self._keep_off(self.chosen)

    def choose(self, most: int | None = None) -> int | None:
        """Return a processor that is quick now, the one chosen before if it is, and keep this process off it.

        No more than `most` are tried, of which the quickest will do.
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
        """Return the one that is chosen, and then the others, so that few tries do not always find the same ones."""
        assert self.chosen is not None
        at = self._mine.index(self.chosen) if self.chosen in self._mine else 0
        return [self.chosen, *(each for each in self._mine[at:] + self._mine[:at] if each != self.chosen)]

    def is_quick(self) -> bool:
        """Say whether the one that was chosen is quick still, or nobody knows."""
        if not self._roams or self.chosen is None:
            return True
        seconds = self._probe(self.chosen)
        self._keep_off(self.chosen)
        return seconds <= _QUICK * self._best

    def _probe(self, processor: int) -> float:
        """Return how many seconds the loop takes on a processor."""
        try:
            os.sched_setaffinity(0, {processor})
        except OSError:  # taken from us since
            return float("inf")
        return min(_loop() for _ in range(_RUNS))

    def _keep_off(self, processor: int) -> None:
        """Have this process run on other processors, and not on the same core, if there is another."""
        others = self._all - {processor}
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, others - _siblings(processor) or others)


def _loop() -> float:
    began = time.perf_counter()
    for _ in range(_STEPS):
        pass
    return time.perf_counter() - began


@functools.cache  # it is asked for in each visit of a timing
def _siblings(processor: int) -> set[int]:
    """Return the processors that share a core with this one, as Linux tells it ("3,11", "2-3")."""
    with contextlib.suppress(OSError, ValueError):
        listed = Path(_SIBLINGS.format(processor)).read_text(encoding="ascii").strip()
        bounds = [part.split("-") for part in listed.split(",")]
        return {each for first, *last in bounds for each in range(int(first), int((last or [first])[0]) + 1)}
    return set()

"""Which processor timing has to itself: both sides are timed on the same one, and the judge, who watches, is on others.

A judge that watches for a signal does not sleep, and has a higher priority than any runner: on one processor with the
runner that it waits for, it would keep that from going on.
"""

from __future__ import annotations

import os


def reserve_processor(device_name: str) -> int | None:
    """Return the processor for the device called so ("cuda:N", "cpu:0"), and keep this process off it.

    None where there is only one.
    """
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        return None
    number = int(device_name.partition(":")[2] or 0)
    chosen = available[-1 - number % (len(available) // 2)]
    os.sched_setaffinity(0, set(available) - {chosen})
    return chosen

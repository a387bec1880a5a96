"""A scheduler whose wall clock jumps: an hour ahead at SIGUSR1, an hour back at SIGUSR2. Its monotonic clock does not.

Otherwise, `python -m tests.chaos.skewed OPTIONS` does the same as `python -m kerneldyno.scheduler OPTIONS`.
"""

from __future__ import annotations

import signal
import sys
import time

from kerneldyno.scheduler.__main__ import main

HOUR = 3_600.0
_offset = 0.0
_true_time = time.time


def _jump(number: int, frame: object) -> None:
    global _offset
    _offset += HOUR if number == signal.SIGUSR1 else -HOUR


if __name__ == "__main__":
    time.time = lambda: _true_time() + _offset
    signal.signal(signal.SIGUSR1, _jump)
    signal.signal(signal.SIGUSR2, _jump)
    sys.exit(main())

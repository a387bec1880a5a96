"""What the lanes of one device share: its processes, its problems, its memory and its clock. `service` makes it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from ..devices.base import Device
from .memory.host import HostMemory
from .memory.ledger import Ledger
from .problems.cache import Problems
from .runners.pool import Pool
from .timing import roofline
from .timing.processors import Processors
from .timing.quiet import Quiet
from .timing.reference_runners import References


@dataclass(slots=True)
class JudgeContext:
    """What the lanes of one device share."""

    device: Device
    pool: Pool
    problems: Problems
    references: References
    quiet: Quiet
    ledger: Ledger
    host: HostMemory
    processors: Processors
    busy_seconds: float = 0.0
    #: Held while Nsight Compute runs: two of them on one device disturb each other.
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: Held by the lane that ends processes which are only kept for later, until their memory is free.
    making_room: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: Cycles of the device's clock per second, measured when the judge started; 1 on a device without such a clock.
    hertz: float = 1.0
    roof: roofline.Roof = field(init=False)

    def __post_init__(self) -> None:
        if (pace := self.device.pace()) is not None:
            self.hertz = pace.hertz
        self.roof = roofline.Roof(self.device, self.pool.lease, self.quiet)

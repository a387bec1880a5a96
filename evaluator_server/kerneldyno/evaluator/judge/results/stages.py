"""The stages of one evaluation, by the contract's names (Stage): when each began, how long it took, and who is told when
the next one begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: What StageTimeouts and the evidence of a result call each stage in which a candidate runs.
LIMITED_AS = {
    "STAGE_LOADING": "load",
    "STAGE_COMPILING": "compile",
    "STAGE_CHECKING": "correctness",
    "STAGE_PROFILING": "correctness",
    "STAGE_AWAITING_LEASE": "timing",
}


@dataclass(slots=True)
class Stages:
    """When each stage began and how long it took."""

    tell: Callable[[str], None]
    spans: list[dict[str, Any]] = field(default_factory=list)
    _open: tuple[str, float, float] | None = None

    def enter(self, stage: str) -> None:
        """End the open stage, begin `stage` and tell; one that is open already goes on."""
        if self._open is not None and self._open[0] == stage:
            return
        self.close()
        self._open = (stage, time.time(), time.monotonic())
        self.tell(stage)

    def close(self) -> None:
        """End the open stage."""
        if self._open is not None:
            stage, wall, begin = self._open
            start = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(wall))}.{int(wall % 1 * 1e6):06d}Z"
            self.spans.append({"stage": stage, "start_time": start, "duration": f"{time.monotonic() - begin:.6f}s"})
            self._open = None

"""The stages of one evaluation, by the contract's names (Stage): when each began, how long it took, and who is told when
the next one begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from kerneldyno.v1 import evaluation_pb2 as pb

#: What StageTimeouts and the evidence of a result call each stage in which a candidate runs.
LIMITED_AS: Mapping[pb.Stage.ValueType, str] = {
    pb.STAGE_LOADING: "load",
    pb.STAGE_COMPILING: "compile",
    pb.STAGE_CHECKING: "correctness",
    pb.STAGE_PROFILING: "correctness",
    pb.STAGE_AWAITING_LEASE: "timing",
}


@dataclass(slots=True)
class Stages:
    """When each stage began and how long it took."""

    tell: Callable[[pb.Stage.ValueType], None]
    spans: list[pb.StageSpan] = field(default_factory=list)
    _open: tuple[pb.Stage.ValueType, float, float] | None = None

    def enter(self, stage: pb.Stage.ValueType) -> None:
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
            start, duration = Timestamp(), Duration()
            start.FromMicroseconds(int(wall * 1e6))
            duration.FromMicroseconds(round((time.monotonic() - begin) * 1e6))
            self.spans.append(pb.StageSpan(stage=stage, start_time=start, duration=duration))
            self._open = None

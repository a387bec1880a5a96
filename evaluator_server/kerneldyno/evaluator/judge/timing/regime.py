"""How calls reach the device while they are timed. It is decided for both sides together, in `bursts.py`."""

from __future__ import annotations

from dataclasses import dataclass

from kerneldyno.v1 import evaluation_pb2 as pb

from ..runners.side import Side


@dataclass(slots=True)
class Regime:
    """How calls reach the device. It is decided for both sides together: times of two regimes cannot be compared.

    If one side's calls cannot be queued ahead, because they wait for the device or launch more than its queue holds,
    both sides are timed as callers who do not queue.
    """

    #: Number of calls of either side that can be queued ahead of the device; 0 if not even one.
    queueable: int
    #: True if calls are replayed as CUDA graphs.
    replayed: bool = False

    @property
    def queued(self) -> bool:
        """True if calls are queued ahead."""
        return self.queueable > 0

    @property
    def kind(self) -> pb.TimingStats.Regime.ValueType:
        """The regime's value in TimingStats."""
        return pb.TimingStats.REGIME_QUEUED_AHEAD if self.queued else pb.TimingStats.REGIME_AS_CALLED

    def shorten(self, count: int) -> None:
        """Reduce the queue length after a burst of `count` calls could not be queued."""
        self.queueable = max(1, count // 8) if count > 1 else 0


class NotQueuedError(Exception):
    """`side` cannot queue so many calls ahead: the regime has changed, and both sides start again."""

    def __init__(self, side: Side) -> None:
        super().__init__()
        self.side = side

"""What a problem's timings have in common, kept from one candidate to the next: the reference's time, and that of nothing.

Neither depends on the candidate. Each timing makes a few bursts of both all the same: what is kept must still be true, and
is forgotten when the reference now takes clearly longer or shorter than it did.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from .timing import Burst

#: Bursts that are kept of each kind.
_KEPT = 24
#: Kinds of bursts of nothing that are kept; candidates decide how many there are.
_KINDS = 200
#: Relative difference, and seconds, by which two medians of the same reference may differ.
_SAME = 0.005
_SAME_SECONDS = 0.2e-6


@dataclass(slots=True)
class Baseline:
    """Bursts of earlier timings."""

    #: Cold ones of the reference.
    reference: deque[Burst] = field(default_factory=lambda: deque(maxlen=_KEPT))
    #: Warm ones of it.
    warm_reference: list[Burst] = field(default_factory=list)
    #: Whether those were replayed as CUDA graphs.
    replayed: bool = False
    _nothing: dict[Hashable, deque[Burst]] = field(default_factory=dict)

    def nothing(self, kind: Hashable) -> deque[Burst]:
        """Return bursts of nothing of one kind (cold or warm, how long, with what outputs); what is added is kept."""
        bursts = self._nothing.pop(kind, deque(maxlen=_KEPT))
        self._nothing[kind] = bursts
        while len(self._nothing) > _KINDS:
            del self._nothing[next(iter(self._nothing))]
        return bursts

    def expect(self, *, replayed: bool) -> None:
        """From now on the reference is replayed, or is not: what is known of it otherwise is of no use."""
        if self.replayed != replayed:
            self.forget_reference()
        self.replayed = replayed

    def forget_reference(self) -> None:
        """Begin anew: what was kept of the reference is true no more."""
        self.reference.clear()
        self.warm_reference.clear()

    def still_true(self, fresh: list[Burst]) -> bool:
        """Say whether `fresh` bursts of the reference agree with those that are kept."""
        if not fresh or not self.reference:
            return False
        now, then = _median(fresh), _median(self.reference)
        return abs(now - then) <= _SAME * then + _SAME_SECONDS


def _median(bursts: list[Burst] | deque[Burst]) -> float:
    return statistics.median(sample for burst in bursts for sample in burst.device_seconds)

"""What a timing has measured: visits of both sides, their ratios, and evidence to check device times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from kerneldyno.v1 import evaluation_pb2 as pb

from ..runners.answers import SHORTEST
from . import device_time, ratio
from .device_time import Burst
from .effort import Effort
from .end_to_end_time import PacedBurst, overhead

#: If the device needs less than this share of a call's time, the call also waits for its host.
_DEVICE_BOUND = 0.8


@dataclass(frozen=True, slots=True)
class Visit:
    """What one side did in one round, and how its calls reached the device."""

    regime: pb.TimingStats.Regime.ValueType
    paced: PacedBurst
    #: None if calls are not queued ahead, and in rounds that were made after device times were known.
    queued: Burst | None
    #: True if the processor that launched the calls was as quick at the end as when it was chosen.
    calm: bool = True

    @property
    def device_seconds(self) -> float:
        """Device time of a call, in seconds: the trimmed mean of its burst.

        The calls of a burst start evenly at all positions of the queue. The extremes are left out, because what
        disturbs one call says nothing about the others.
        """
        assert self.queued is not None
        return ratio.trimmed_mean(self.queued.device_seconds)

    @property
    def paced_seconds(self) -> float:
        """End-to-end time of a call, in seconds: the median, which includes the cost of the loop."""
        return statistics.median(self.paced.seconds)


@dataclass(slots=True)
class Measured:
    """What a timing has measured."""

    effort: Effort
    regime: pb.TimingStats.Regime.ValueType = pb.TimingStats.REGIME_UNSPECIFIED
    replayed: bool = False
    #: One visit of each side per round; none of the reference if there is no reference to time.
    candidate: list[Visit] = field(default_factory=list)
    reference: list[Visit] = field(default_factory=list)
    paced_nothing: Sequence[PacedBurst] = ()
    #: For queued calls: the bursts that check the candidate's device times.
    cold_nothing: Sequence[Burst] = ()
    warm: list[Burst] = field(default_factory=list)
    warm_nothing: Sequence[Burst] = ()
    warm_reference: Sequence[Burst] = ()
    #: Seconds per queued call of the reference, if only the candidate cannot be queued.
    queued_reference: float = 0.0
    #: Number of the reference's kernels, and whether both processes have the same pace.
    kernels: int = 1
    same_pace: bool = True
    #: None if the device does not report it.
    state: pb.DeviceState | None = None
    #: Energy of a call of the candidate and of the reference, if it was asked for and is known.
    energies: Sequence[pb.Energy | None] = (None, None)
    #: Seconds for which the device was held, per phase.
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds for which the device was held."""
        return sum(self.phases.values())

    @property
    def queued(self) -> bool:
        """True if there are device times."""
        return self.candidate[0].queued is not None

    def device_ratio(self) -> ratio.Ratio:
        """Return the ratio of device times, from the rounds that have them. Its round numbers count all rounds."""
        rounds = [at for at, visit in enumerate(self.candidate) if visit.queued]
        reference, candidate = ([visits[at] for at in rounds] for visits in (self.reference, self.candidate))
        found = ratio.of_rounds(
            [visit.device_seconds for visit in reference],
            [visit.device_seconds for visit in candidate],
            displaced=self.effort.displaced,
            expected=ratio.expected_spread(*map(_calls, (reference, candidate))),
        )
        kept = ([rounds[at] for at in side] for side in (found.reference_rounds, found.rounds))
        return ratio.Ratio(found.value, found.low, found.high, *kept)

    def unseen(self) -> float:
        """Return the share by which two processes may differ in device time although no round shows it."""
        reference, candidate = (
            statistics.median(visit.device_seconds for visit in visits if visit.queued)
            for visits in (self.reference, self.candidate)
        )
        return ratio.unseen(reference, candidate, kernels=self.kernels, same_pace=self.same_pace)

    @property
    def memory_matters(self) -> bool | None:
        """Whether device times show that times depend on the place of memory; None if there are no device times."""
        if not (self.reference and self.queued):
            return None
        return not self.launch_bound and not self.device_ratio().is_paired

    @property
    def launch_bound(self) -> bool:
        """True if a call's end-to-end time is much longer than the device needs for it."""
        return self._host_share > 1 - _DEVICE_BOUND

    @property
    def _host_share(self) -> float:
        """The share of a candidate's call in which the device waits for the host; 1 if that is unknown."""
        called = statistics.median(visit.paced_seconds for visit in self.candidate) - overhead(self.paced_nothing)
        return max(0.0, 1 - device_seconds(self.candidate) / max(SHORTEST, called))

    def least(self, visits: Sequence[Visit]) -> float:
        """Return the least time that a paced call of one side counts as, in seconds.

        For short calls, of which few are compared, this is the device time: a candidate that skips work in some calls
        gains nothing.
        """
        return SHORTEST if self.effort.chased else device_seconds(visits)

    def paced_ratio(self, fixed: float) -> ratio.Ratio:
        """Return the ratio of end-to-end times, after subtracting the loop's cost of `fixed` seconds.

        Apart from the place of memory, all variation comes from the host, which can only delay. End-to-end times of
        short calls are not pursued; their ratio is what a few visits can tell.
        """
        sides = self.reference, self.candidate
        reference, candidate = (
            [[max(self.least(visits), second - fixed) for second in visit.paced.seconds] for visit in visits]
            for visits in sides
        )
        if not self.effort.chased:
            return ratio.of_short_calls(reference, candidate, host=self._host_share)
        calm = [[visit.calm for visit in visits] for visits in sides]
        return ratio.of_delayed_rounds(
            reference,
            candidate,
            displaced=self.effort.displaced,
            memory_matters=self.memory_matters,
            calm=calm,
            host=self._host_share if self.queued and self.launch_bound else 0.0,
        )


def device_seconds(visits: Sequence[Visit]) -> float:
    """Return the device time of a call, in seconds; next to zero if it is unknown."""
    known = [visit.device_seconds for visit in visits if visit.queued]
    return max(SHORTEST, statistics.median(known)) if known else SHORTEST


def _calls(visits: Sequence[Visit]) -> list[list[float]]:
    """Return the device time of each call, in seconds; a claim of zero is raised to next to zero."""
    return [[max(SHORTEST, second) for second in visit.queued.device_seconds] for visit in visits if visit.queued]


def evidence(measured: Measured, rounds: Sequence[int] | None = None) -> device_time.Evidence:
    """Return the evidence that checks the candidate's device times, from some of the rounds or from all."""
    visits = measured.candidate if rounds is None else [measured.candidate[at] for at in rounds]
    cold = [visit.queued for visit in visits if visit.queued]
    return device_time.Evidence(
        cold,
        measured.cold_nothing,
        measured.warm or cold,
        list(measured.warm_nothing),
        list(measured.warm_reference),
        [visit.queued for visit in measured.reference if visit.queued],
    )

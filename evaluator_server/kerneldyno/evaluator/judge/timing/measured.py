"""What a timing has found: visits of both sides, the ratios that they make, and what device times are judged by."""

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

#: A call that the device needs less of than this share has to wait for its host as well.
_DEVICE_BOUND = 0.8


@dataclass(frozen=True, slots=True)
class Visit:
    """What one side did in one round, and how its calls reached the device."""

    regime: pb.TimingStats.Regime.ValueType
    paced: PacedBurst
    #: None where calls are not queued ahead, and in rounds that were made when device times were known already.
    queued: Burst | None
    #: Whether the processor that calls were launched from was as quick at the end as when it was chosen.
    calm: bool = True

    @property
    def device_seconds(self) -> float:
        """Device time of a call: the mean of its burst, whose calls begin at all places of the queue alike.

        Without those at either end: what disturbs one says nothing of the others.
        """
        assert self.queued is not None
        return ratio.trimmed_mean(self.queued.device_seconds)

    @property
    def paced_seconds(self) -> float:
        """End-to-end time of a call, its median, with what the loop costs in it."""
        return statistics.median(self.paced.seconds)


@dataclass(slots=True)
class Measured:
    """What a timing has found."""

    effort: Effort
    regime: pb.TimingStats.Regime.ValueType = pb.TimingStats.REGIME_UNSPECIFIED
    replayed: bool = False
    #: One visit of each side for each round; none of the reference where there is none to be timed.
    candidate: list[Visit] = field(default_factory=list)
    reference: list[Visit] = field(default_factory=list)
    paced_nothing: Sequence[PacedBurst] = ()
    #: For what is queued ahead: what checks the candidate's device times.
    cold_nothing: Sequence[Burst] = ()
    warm: list[Burst] = field(default_factory=list)
    warm_nothing: Sequence[Burst] = ()
    warm_reference: Sequence[Burst] = ()
    #: What a call of the reference takes queued ahead, where only the candidate cannot be, in seconds.
    queued_reference: float = 0.0
    #: Kernels of the reference, and whether both processes have the same pace.
    kernels: int = 1
    same_pace: bool = True
    #: None if the device does not report it.
    state: pb.DeviceState | None = None
    #: Seconds that the device was held, by what for.
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds that the device was held."""
        return sum(self.phases.values())

    @property
    def queued(self) -> bool:
        """Whether there are device times."""
        return self.candidate[0].queued is not None

    def device_ratio(self) -> ratio.Ratio:
        """Return the ratio of device times, from the rounds that have them; its rounds are numbered among all."""
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
        """Return by how much two processes may differ in the ratio of device times though no round shows it, as a share."""
        reference, candidate = (
            statistics.median(visit.device_seconds for visit in visits if visit.queued)
            for visits in (self.reference, self.candidate)
        )
        return ratio.unseen(reference, candidate, kernels=self.kernels, same_pace=self.same_pace)

    @property
    def memory_matters(self) -> bool | None:
        """Whether times depend on where memory lies, as device times tell; None where there are none."""
        if not (self.reference and self.queued):
            return None
        return not self.launch_bound and not self.device_ratio().is_paired

    @property
    def launch_bound(self) -> bool:
        """Whether a call takes much longer from end to end than the device needs for it."""
        return self._host_share > 1 - _DEVICE_BOUND

    @property
    def _host_share(self) -> float:
        """The share of a call of the candidate in which the device waits for the host; all of it where that is not known."""
        called = statistics.median(visit.paced_seconds for visit in self.candidate) - overhead(self.paced_nothing)
        return max(0.0, 1 - _device_seconds(self.candidate) / max(SHORTEST, called))

    def least(self, visits: Sequence[Visit]) -> float:
        """Return what a paced call of one side counts as at the least, in seconds.

        Of short ones, of which few are compared, what the device needs: who leaves work out of some is no quicker by it.
        """
        return SHORTEST if self.effort.chased else _device_seconds(visits)

    def paced_ratio(self, fixed: float) -> ratio.Ratio:
        """Return the ratio of end-to-end times, without the seconds that the loop costs.

        All that they vary by, but for where memory lies, is the host, which can only delay. Those of short calls are
        not chased, and say what a few visits can.
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


def _device_seconds(visits: Sequence[Visit]) -> float:
    """Return the device time of a call, in seconds; next to none where it is not known."""
    known = [visit.device_seconds for visit in visits if visit.queued]
    return max(SHORTEST, statistics.median(known)) if known else SHORTEST


def _calls(visits: Sequence[Visit]) -> list[list[float]]:
    """Return the device time of each call, in seconds; one that took none, as far as anybody says, as next to none."""
    return [[max(SHORTEST, second) for second in visit.queued.device_seconds] for visit in visits if visit.queued]


def evidence(measured: Measured, rounds: Sequence[int] | None = None) -> device_time.Evidence:
    """Return what there is to judge the candidate's device times by, from some of the rounds or from all."""
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

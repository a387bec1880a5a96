"""Time one candidate beside its reference: which bursts are made, in which order, and until when. Called by the lane.

Inputs are drawn before, and outputs are compared and conclusions drawn after; everything between happens under the
exclusive lease. In each round both sides are woken in turn and do the same: a burst that is queued ahead of the device
(device time), and a burst call by call (end-to-end time). Rounds end when the speedup is known as precisely as
requested. Warm bursts of the candidate, with nothing between the calls, show by the judge's clock alone whether its
device times can be true. More of them are made until that clock is precise enough, and while it contradicts the claim.
"""

from __future__ import annotations

import contextlib
import math
import random
import secrets
import statistics
import time
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import torch

from kerneldyno.v1 import evaluation_pb2 as pb

from ...devices.base import AFRESH
from ...shared.nvml import GpuState
from ..checks.candidate import Candidate
from ..problems.cache import Announce, BuiltProblem, Problems
from ..problems.trial import Trial
from ..runners.side import Side
from . import device_time, effort, energy
from .bursts import CAPTURED_SETS, LONGEST, Bursts
from .device_time import Burst
from .effort import Effort
from .end_to_end_time import PacedBurst
from .measured import Measured, Visit, evidence
from .processors import Processors
from .quiet import DeviceBusyError, Quiet
from .reference_runners import ReferenceRunner
from .regime import NotQueuedError
from .supply import Batch

#: Pairs of a short and a long warm burst until the clock is settled: the least, and the most.
_WARM_PAIRS = 2
_MOST_WARM_PAIRS = 16
#: Time limit in seconds for extra warm bursts when the judge's clock contradicts the claim or is not precise enough. It
#: includes the drawing of their inputs.
_SETTLING_SECONDS = 0.4
#: Length of a long warm burst: about this many seconds from end to end, and at least this many calls.
_QUEUING_SECONDS = 0.04
_SHORTEST_LONG = 2
#: Number of empty bursts of one kind that is enough; cold ones have many lengths, so more are needed.
_NOTHING = 3
_COLD_NOTHING = 6
#: If end-to-end times are pursued: seconds for which paced empty bursts are repeated while their processor is slow.
_CALM_SECONDS = 0.06
#: Calls of the first paced burst, which shows how long calls take.
_FIRST_CALLS = 2
#: Approximate duration of the untimed calls of one side and kind, in seconds.
_WARM_UP_SECONDS = 0.03
#: A candidate whose calls took this long during the checks needs no more warm-up, in seconds.
_WARM_BY_NOW = 0.02
#: Queued bursts of a reference whose candidate cannot be queued. They show what timing as called costs the reference.
_QUEUED_ALONE = 3
#: Factor for the number of paced calls in a round that has nothing else, and the number if the host decides the time.
#: There one visit differs from the next by a tenth, and calls of one visit by 7 % (H200, networks of 85 to 110
#: kernels).
_PACED_ALONE, _PACED_BY_HOST = 3, 2
#: One in this many pairs of rounds has its memory placed as in a new process, where it is again as quick or as slow.
_AFRESH_EVERY = 4
#: Number of rounds for which inputs are drawn ahead.
_ROUNDS_AHEAD = 4


class TimingSession:
    """The timing of one candidate: `prepare` before it has the device to itself, `measure` while it has, then `judge`."""

    def __init__(
        self,
        candidate: Candidate,
        reference: ReferenceRunner,
        built: BuiltProblem,
        example: Trial,
        quiet: Quiet,
        processors: Processors,
        *,
        same_pace: bool,
        other_kernels: bool,
    ) -> None:
        self._candidate = candidate
        self._reference = reference
        self._built = built
        self._quiet = quiet
        self._processors = processors
        self._same_pace, self._other_kernels = same_pace, other_kernels
        self._kernels = 1
        self._rng = random.Random(secrets.randbits(64))
        self._bursts = Bursts(candidate, reference, built, example, self._rng)
        #: The sides, in the order in which the first round wakes them.
        self._sides: tuple[Side, ...] = (reference, candidate) if reference.timed else (candidate,)
        self._lengths: list[int] = []
        self._warm: list[int] = []
        #: The effort that was planned before anything was timed; inputs were drawn for it.
        self._likely: Effort | None = None

    async def prepare(self, problems: Problems, announce: Announce) -> None:
        """Count kernels and draw inputs ahead. Raises ReferenceFailure."""
        candidate, bursts = self._candidate, self._bursts
        with contextlib.suppress(torch.OutOfMemoryError):  # counting is tried again at another time
            counted = await problems.count(self._built, bursts.example, announce)
            # torch.compile may merge several kernels into one, so the number of kernels is unknown. So is a library's.
            self._kernels = 1 if self._other_kernels else counted.kernels
        likely = self._plan(candidate.quickest_call)
        captured = [CAPTURED_SETS] * len(self._sides) if candidate.spec.timing.form.cuda_graph else []
        self._lengths = [
            device_time.length(likely.queued, self._most_queued(), self._rng) for _ in range(_ROUNDS_AHEAD)
        ]
        queued = self._lengths if bursts.regime.queued else []
        warm = [*self._warm_lengths(candidate.quickest_call)] * _WARM_PAIRS if bursts.regime.queued else []
        counts = [*captured, *queued, *[likely.paced] * _ROUNDS_AHEAD, *warm]
        self._likely = likely
        await bursts.supply.draw_ahead(counts, problems.asking(announce))
        await candidate.settle(self._processors.chosen)

    def judge(self) -> None:
        """Compare the outputs that the bursts have kept. Raises Finished."""
        self._bursts.outputs.judge()

    async def measure(self) -> Measured:
        """Make all bursts. Raises Finished, ReferenceFailure, DeviceBusyError."""
        begun = time.monotonic()
        await self._candidate.runner.stop()
        self._bursts.begin()
        if not await self._quiet.wait():
            raise DeviceBusyError
        # The reference's process may stay awake: without an order it only waits, and no candidate can make it do more.
        async with self._bursts.awake(self._reference):
            return await self._measure(begun)

    async def _measure(self, begun: float) -> Measured:
        candidate, reference, bursts = self._candidate, self._reference, self._bursts
        reference.limit = candidate.spec.candidate.limits.timing
        before = candidate.device.state()
        per_call = await self._begin()
        measured = Measured(self._plan(per_call), kernels=self._kernels, same_pace=self._same_pace)

        def lap(phase: str) -> None:
            measured.phases[phase] = measured.phases.get(phase, 0.0) + time.monotonic() - begun - measured.seconds

        lap("begin")
        unqueued: Side | None = None
        while not measured.candidate:
            try:
                if bursts.regime.queued:
                    await self._check_device_times(measured, per_call)
                lap("check")
                measured.paced_nothing = await self._paced_nothing(measured.effort)
                lap("nothing")
                await self._make_rounds(measured, per_call, begun)
            except NotQueuedError as late:
                measured.candidate, measured.reference, measured.warm = [], [], []
                measured.effort = self._plan(per_call)
                unqueued = late.side
                if unqueued is reference:
                    self._built.queueable = bursts.regime.queueable
        measured.regime, measured.replayed = bursts.regime.kind, bursts.regime.replayed
        if not bursts.regime.queued and unqueued is candidate and reference.timed:
            measured.queued_reference = await self._queue_reference_alone(measured.effort, per_call)
        measured.state = _state(before, candidate.device.state())
        lap("rounds")
        if candidate.spec.inspection.counters:
            measured.energies = await energy.of_both(bursts, candidate, reference, measured)
            lap("energy")
        return measured

    async def _begin(self) -> float:
        """Warm both sides up. Return the end-to-end seconds of a call of the slower side."""
        candidate, reference, bursts = self._candidate, self._reference, self._bursts
        assert self._likely is not None
        await self._place(reference, self._likely)
        await reference.prepare_nothing(bursts.example.expected.structure, bursts.nothing_like())
        if candidate.spec.timing.form.cuda_graph:
            await bursts.capture()
        if not reference.warmed_up:
            for cold in (False, True):
                await bursts.warm_up(reference, self._warm_up_calls(), cold=cold, nothing=True)
            reference.per_call = await self._warm_up(reference) if reference.timed else 0.0
            reference.warmed_up = True
        async with bursts.awake(candidate):
            await self._place(candidate, self._likely)
            return max(reference.per_call, await self._warm_up(candidate))

    async def _warm_up(self, side: Side) -> float:
        """Make untimed calls of each kind. Return the end-to-end seconds of a call."""
        bursts, count = self._bursts, 1
        if self._candidate.quickest_call < _WARM_BY_NOW:
            for cold in (False, True):
                await bursts.warm_up(side, self._warm_up_calls(), cold=cold)
            count = min(_FIRST_CALLS, bursts.longest)
        first = await bursts.paced_burst(side, await bursts.supply.familiar(count), cold=False)
        return min(first.seconds)

    def _warm_up_calls(self) -> int:
        """Return the number of untimed calls of each kind: as many as requested, and fewer if calls are long."""
        per_call = max(self._reference.per_call, self._candidate.quickest_call)
        return max(
            1,
            min(self._candidate.spec.timing.warmup, self._bursts.longest, int(_WARM_UP_SECONDS / max(per_call, 1e-6))),
        )

    def _plan(self, per_call: float) -> Effort:
        """Plan for calls that take `per_call` seconds from end to end.

        Keep the burst lengths for which inputs were drawn ahead if they are near the planned ones.
        """
        spec, likely = self._candidate.spec, self._likely
        planned = effort.plan(
            per_call,
            per_set=self._built.seconds_a_set,
            calls=spec.timing.perf_trials,
            longest=self._bursts.longest,
            limit=spec.candidate.limits.timing,
            ahead=self._bursts.supply.room,
            queued=self._bursts.regime.queued,
            displaces=self._candidate.device.displaces,
        )
        if likely is not None and likely.cold == planned.cold and _near(likely.paced, planned.paced):
            return replace(planned, queued=likely.queued, paced=likely.paced)
        return planned

    def _most_queued(self) -> int:
        return max(1, min(self._bursts.longest, self._bursts.regime.queueable, LONGEST))

    async def _make_rounds(self, measured: Measured, per_call: float, begun: float) -> None:
        """Make rounds until both ratios are known. Raises NotQueuedError."""
        planned, seconds, quickest = measured.effort, measured.effort.seconds, math.inf
        left = {"queued": planned.calls, "paced": planned.calls}
        wants_device = self._bursts.regime.queued
        while True:
            began = time.monotonic()
            visits = await self._round(measured, per_call, left if wants_device else left | {"queued": 0})
            measured.candidate.append(made := visits[self._candidate])
            if self._reference.timed:
                measured.reference.append(visits[self._reference])
            left["paced"] -= made.paced.calls
            left["queued"] -= made.queued.calls if made.queued else 0
            now = time.monotonic()
            if left["paced"] <= 0:
                return
            quickest = min(quickest, *(second for visit in visits.values() for second in visit.paced.seconds))
            seconds = max(seconds, effort.lease_seconds(quickest, self._candidate.spec.candidate.limits.timing))
            rounds = len(measured.candidate)
            if rounds >= effort.FEWEST_ROUNDS and now - begun + (now - began) > seconds:
                return
            if rounds < planned.least_rounds:
                continue
            wants_device, wants_end_to_end = self._wanted(measured, left)
            if not wants_device and not wants_end_to_end:
                return

    def _wanted(self, measured: Measured, left: dict[str, int]) -> tuple[bool, bool]:
        """Return what the next round is needed for: for device times, and for end-to-end times alone."""
        planned, precision = measured.effort, self._candidate.spec.timing.precision
        device = self._bursts.regime.queued and 2 * left["queued"] >= planned.queued
        end_to_end = planned.chased and 2 * left["paced"] >= planned.paced
        device = device and not self._knows_device_time(measured, precision)
        end_to_end = end_to_end and not self._knows_end_to_end_time(measured, precision)
        # The less precise ratio comes first, unless only the same rounds can improve both.
        if device and end_to_end and measured.reference and not measured.memory_matters:
            device = measured.device_ratio().width >= measured.paced_ratio(0.0).width
        return device, end_to_end

    @staticmethod
    def _knows_device_time(measured: Measured, precision: float) -> bool:
        """Return True if device times are known well enough, and do not depend on the place of memory.

        More rounds do not help once rounds differ by less than processes do. For short calls they also do not help if
        the requested precision is small compared with that difference, which may be to either side.
        """
        if not measured.reference:
            return False
        found, unseen = measured.device_ratio(), measured.unseen()
        enough = unseen if measured.effort.chased else max(unseen, 2 * unseen - precision)
        return found.is_paired and found.width <= max(precision, enough)

    @staticmethod
    def _knows_end_to_end_time(measured: Measured, precision: float) -> bool:
        if not measured.reference:
            return False
        return measured.paced_ratio(0.0).width <= precision

    async def _round(self, measured: Measured, per_call: float, left: dict[str, int]) -> dict[Side, Visit]:
        """Wake both sides in turn, on the same inputs. The order changes from round to round."""
        bursts, planned, device = self._bursts, measured.effort, bool(left["queued"])
        at = sum((visit.queued is not None) == device for visit in measured.candidate)
        sides = self._sides if at % 2 == 0 else self._sides[::-1]
        moved = 0
        if planned.displaced and (device or not bursts.regime.queued or measured.memory_matters):
            # Both sides get the same place, and now and then the place that a new process has.
            moved = AFRESH if at // 2 % _AFRESH_EVERY == 0 else self._rng.randrange(AFRESH + 1, 1 << 31)
        queued: dict[Side, Burst] = {}
        paced: dict[Side, PacedBurst] = {}
        calm: dict[Side, bool] = {}

        async def queue(side: Side, batch: Batch) -> None:
            queued[side] = await bursts.queued_burst(side, batch, per_call, cold=planned.cold, lead_in=planned.lead_in)

        async def pace(side: Side, batch: Batch) -> None:
            lead_in = 0 if side in queued else planned.lead_in  # the first burst has warmed the caches
            paced[side] = await bursts.paced_burst(side, batch, cold=planned.cold, lead_in=lead_in)

        steps = []
        if device:
            count = planned.queued if planned.long else self._length(at, planned)
            steps.append((queue, max(1, min(count, self._most_queued(), left["queued"]))))
        count = planned.paced if device else self._paced_alone(measured)
        steps.append((pace, max(1, min(count, left["paced"]))))

        async def visit(part: Sequence[Any], memory: int) -> None:
            batches = [(step, await bursts.supply.take(count)) for step, count in part]
            for side in sides:
                if side is self._reference:
                    await self._expect_quiet()
                async with bursts.awake(side):
                    await self._place(side, planned, memory)
                    for step, batch in batches:
                        await step(side, batch)
                calm[side] = self._processors.is_quick()

        # If there is memory for the inputs of both steps, each side is woken once.
        for number, part in enumerate(bursts.apart(steps)):
            await visit(part, moved if number == 0 else 0)
        return {side: Visit(bursts.regime.kind, paced[side], queued.get(side), calm[side]) for side in sides}

    async def _expect_quiet(self) -> None:
        """Wait until the stopped candidate has no work left on the device. Raises Finished.

        Such work would slow down its reference, or an empty burst, whose time is subtracted from the candidate's own.
        """
        if not await self._quiet.wait():
            evidence = "the candidate keeps the device busy after it has answered"
            raise self._candidate.record.reject("T26", evidence)

    async def _place(self, side: Side, planned: Effort, memory: int = 0) -> None:
        """Move an awake side to a quick processor, and its memory to place `memory` unless that is 0."""
        await side.place(self._processors.choose(planned.processors), memory)
        if memory:
            await self._quiet.wait()  # the driver wipes the memory that was freed, and all memory is slower meanwhile

    def _paced_alone(self, measured: Measured) -> int:
        """Return the number of paced calls if a side is woken for nothing else.

        It is larger than otherwise. But if the host decides the time, visits matter and not calls, since a processor
        stays quick for some milliseconds only.
        """
        planned = measured.effort
        if not self._bursts.regime.queued or planned.long:
            return planned.paced
        if measured.launch_bound:
            return min(_PACED_BY_HOST, planned.paced)
        return min(_PACED_ALONE * planned.paced, self._bursts.longest)

    def _length(self, at: int, planned: Effort) -> int:
        if at < len(self._lengths):
            return self._lengths[at]
        return device_time.length(planned.queued, self._most_queued(), self._rng)

    async def _check_device_times(self, measured: Measured, per_call: float) -> None:
        """Make the bursts that check the candidate's device times. Raises NotQueuedError."""
        planned, reference, kind = measured.effort, self._reference, self._kind
        if planned.long:  # the bursts of the rounds serve as warm ones, and all have one length
            count = max(1, min(planned.queued, self._most_queued(), planned.calls))
            measured.warm_nothing = await self._nothing(reference.warm_nothing((kind, count)), [count])
            measured.cold_nothing = measured.warm_nothing
            return
        lengths = [device_time.length(planned.queued, self._most_queued(), self._rng) for _ in range(_COLD_NOTHING)]
        measured.cold_nothing = await self._nothing(reference.cold_nothing(kind), lengths, cold=True)
        await self._add_warm_bursts(measured, per_call)

    @property
    def _kind(self) -> Hashable:
        """What empty bursts must have in common with the candidate's."""
        return self._bursts.regime.replayed, self._bursts.nothing_like()

    async def _nothing(self, kept: Any, lengths: Sequence[int], *, cold: bool = False) -> list[Burst]:
        """Return the kept queued bursts of empty calls, after adding some if there are too few."""
        missing = (_COLD_NOTHING if cold and self._bursts.longest > 1 else _NOTHING) - len(kept)
        if missing > 0:
            for at in range(missing):
                kept.append(await self._one_of_nothing(lengths[at % len(lengths)], cold=cold))
        return list(kept)

    async def _one_of_nothing(self, count: int, *, cold: bool) -> Burst:
        bursts = self._bursts
        await self._expect_quiet()
        return await bursts.queued_burst(
            self._reference, await bursts.supply.familiar(count), 0.0, cold=cold, nothing=True, lead_in=1
        )

    async def _paced_nothing(self, planned: Effort) -> list[PacedBurst]:
        bursts = self._bursts
        count = max(1, min(planned.paced, planned.calls))
        kept = self._reference.paced_nothing((self._kind, count, planned.cold))
        began, patience = time.monotonic(), _CALM_SECONDS if planned.chased else 0.0
        while len(kept) < _NOTHING:
            await self._place(self._reference, planned)
            await self._expect_quiet()
            made = await bursts.paced_burst(
                self._reference, await bursts.supply.familiar(count), cold=planned.cold, nothing=True, lead_in=1
            )
            # The burst is subtracted from every call of both sides, and kept for other candidates.
            if self._processors.is_quick() or time.monotonic() - began > patience:
                kept.append(made)
        return list(kept)

    async def _add_warm_bursts(self, measured: Measured, per_call: float) -> None:
        """Make pairs of a short and a long warm burst until the judge's clock is settled. Raises NotQueuedError."""
        bursts, reference, began = self._bursts, self._reference, time.monotonic()
        lengths = self._warm_lengths(per_call)
        while len(measured.warm) < 2 * _MOST_WARM_PAIRS:
            noisy = len(measured.warm) >= 2 * _WARM_PAIRS and device_time.nothing_is_noisier(evidence(measured))
            nothing: list[Burst] = []
            for count in lengths:
                kept = reference.warm_nothing((self._kind, count))
                await self._nothing(kept, [count])
                if noisy:
                    kept.append(await self._one_of_nothing(count, cold=False))
                nothing += kept
            measured.warm_nothing = nothing
            first = reference.timed and not reference.warm
            for part in bursts.apart(lengths):
                await self._make_warm(measured, part, per_call, also_reference=first)
            measured.warm_reference = reference.warm
            enough = len(measured.warm) >= _WARM_PAIRS * len(lengths)
            if enough and (time.monotonic() - began > _SETTLING_SECONDS or device_time.settled(evidence(measured))):
                return

    async def _make_warm(
        self, measured: Measured, lengths: Sequence[int], per_call: float, *, also_reference: bool
    ) -> None:
        """Make a warm burst of each length. The memory of their inputs is free again when this returns."""
        bursts, reference = self._bursts, self._reference
        batches = [await bursts.supply.take(count) for count in lengths]
        if also_reference:
            await self._expect_quiet()
            reference.warm += [
                await bursts.queued_burst(reference, batch, per_call, cold=False, lead_in=1) for batch in batches
            ]
        async with bursts.awake(self._candidate):
            measured.warm += [
                await bursts.queued_burst(self._candidate, batch, per_call, cold=False, lead_in=1) for batch in batches
            ]

    def _warm_lengths(self, per_call: float) -> list[int]:
        """Return the lengths of a short and a long warm burst; `per_call` is the end-to-end time of a call, in seconds.

        Return one length if only one call can be queued.
        """
        long = max(_SHORTEST_LONG, int(_QUEUING_SECONDS / max(per_call, 1e-6)))
        long = min(self._most_queued(), long)
        if self._warm and _near(self._warm[-1], long):
            long = self._warm[-1]
        self._warm = sorted({max(1, long // 4), long})
        return self._warm

    async def _queue_reference_alone(self, planned: Effort, per_call: float) -> float:
        """Return the seconds of a queued call of the reference; 0 if the reference cannot be queued either."""
        bursts = self._bursts
        await self._expect_quiet()
        found: list[float] = []
        count = max(1, min(planned.queued, bursts.longest, self._built.queueable, LONGEST // 10))
        try:
            for _ in range(_QUEUED_ALONE):
                batch = await bursts.supply.familiar(count)
                made = await bursts.queued_burst(
                    self._reference, batch, per_call, cold=planned.cold, lead_in=planned.lead_in
                )
                found += made.device_seconds
        except NotQueuedError:
            self._built.queueable = 0
            return 0.0
        return statistics.median(found)


def _near(one: int, other: int) -> bool:
    """Return True if two numbers of calls are so similar that either will do."""
    return max(one, other) <= 2 * min(one, other)


def _state(before: GpuState | None, after: GpuState | None) -> pb.DeviceState | None:
    if before is None or after is None:
        return None
    return pb.DeviceState(
        sm_clock_mhz_before=before.sm_clock_mhz,
        sm_clock_mhz_after=after.sm_clock_mhz,
        memory_clock_mhz=after.memory_clock_mhz,
        temperature_celsius=after.temperature_celsius,
        power_watts=statistics.fmean((before.power_watts, after.power_watts)),
        throttle_reasons=sorted({*before.throttle_reasons, *after.throttle_reasons}),
    )

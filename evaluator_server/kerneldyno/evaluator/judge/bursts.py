"""Bursts as the judge makes them: fresh secret inputs, the reference, nothing at all, and the candidate, each by its clock.

While inputs are drawn and the reference runs, the candidate's whole process tree stands still, and its inputs are not yet
in its reach. Its clock starts when they begin to be put there, and stops when the outputs that the judge wants to see, of
calls that nobody else knows, have been copied away. They are compared when the device is others' again, as far as memory
allows.
"""

from __future__ import annotations

import asyncio
import functools
import random
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import tree
from ..burst import Plan, Station, capture, run_burst
from ..devices.base import Device, Gate
from ..toolkits import Problem, ReferenceFailure
from . import timing, trial, verdict
from .answers import read_burst
from .candidate import POISON, Candidate
from .problems import Known
from .record import Finished
from .supply import Supply

#: How long a burst may take to be queued before the judge lets it go as it is, in seconds.
_PATIENCE = 0.25
#: A burst of so many calls fits any queue; one that is not queued in time waits for the device in mid-call.
_SHORTEST = 3
#: Calls in the longest burst: with copies, events and a few kernels each they fit the queue of a CUDA stream.
_LONGEST = 40
#: Memory for outputs that were copied away and not yet compared, in bytes, and no more of a small device's than this share.
_UNJUDGED_BYTES = {"cuda": 2 << 30, "cpu": 64 << 20}
_UNJUDGED_SHARE = 2 / 64
#: A reference that waits for the device in mid-call would wait for ever behind a closed gate.
_REFERENCE_PATIENCE = 0.3
#: Input sets that calls are captured on, again and again, and the most that one may take with its output, in bytes: calls on
#: more take so long that a graph saves next to nothing.
CAPTURED_SETS = 2
_CAPTURED_BYTES = 256 << 20
#: How often that is tried: results of few values may agree by chance, and then nobody can tell whether a replay works.
_CAPTURE_DRAWS = 3
#: How long the judge does nothing but watch for a burst to end, and then nothing but that and what cannot wait, in seconds.
_WATCHED = 0.005
_WATCHED_CLOSELY = 0.1
#: A burst of nothing that is not over after this long is not watched any more, in seconds: the device is broken, and to wait
#: for it raises.
_BROKEN = 10.0
#: How often a burst of nothing is made again for which the host was too late.
_TOO_LATE = 3


@dataclass(slots=True)
class Bursts:
    """Makes bursts for one candidate. All of it happens under the exclusive lease."""

    candidate: Candidate
    known: Known
    announce: Callable[[str], Any]
    #: A nominal trial: what outputs look like, and how noisy they are.
    _example: trial.Trial
    rng: random.Random
    #: Whether the candidate's calls can be queued ahead, or wait for the device themselves.
    gated: bool = True
    #: Whether the candidate's calls are replayed as CUDA graphs.
    replays: bool = False
    #: The longest burst that makes sense: bounded by memory, and by how much can be queued ahead.
    longest: int = field(init=False)
    #: What is revealed next, and what is copied beside it so that all reveals take equally long.
    _staged: torch.Tensor = field(init=False)
    _filler: torch.Tensor = field(init=False)
    _shadow: torch.Tensor = field(init=False)
    _own: Station = field(init=False)
    #: For bursts of nothing: the judge's inputs, and the candidate's slots.
    _idle: Station = field(init=False)
    _own_gate: Gate | None = field(init=False)
    #: What replays the reference on each of the judge's input sets.
    _replays: list[Callable[[], Any]] = field(default_factory=list)
    supply: Supply = field(init=False)
    _values: int = 0
    #: Outputs of timed calls, as they were at the end of their bursts, and what they must be.
    _unjudged: list[tuple[trial.Trial, torch.Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        station = self.candidate.station
        self.longest = min(len(station.inputs), len(station.outputs), _LONGEST)
        self.supply = Supply(
            self.known,
            self.candidate.spec,
            self._device,
            self._example,
            station.structure,
            [tree.describe(tensor) for tensor in station.inputs[0]],
            self.longest,
            self.rng,
        )

    def begin(self) -> None:
        """Take the memory that bursts need, once the device is the candidate's alone."""
        station, device = self.candidate.station, self._device
        size = len(station.inputs) * self.set_bytes
        self._filler, self._shadow = (
            torch.empty(size, dtype=torch.uint8, device=device.torch_device) for _ in range(2)
        )
        self._filler.fill_(POISON)  # the candidate gets to see it, and what was here before may have been answers
        self._staged = self._filler
        specs = self.supply.specs
        self._own = Station(
            device,
            self._shadow,
            station.structure,
            [
                tree.views(self._shadow[at * self.set_bytes :][: self.set_bytes], specs)
                for at in range(len(station.inputs))
            ],
            torch.empty_like(station.outputs[:1]),
        )
        self._idle = Station(device, self._shadow, station.structure, self._own.inputs, station.outputs)
        self._idle.store(self._nothing(), 0)  # it knows its slots beforehand, as the candidate's loop does
        self._own_gate = device.own_gate()

    async def capture(self) -> None:
        """Have the calls of both sides captured as CUDA graphs; the candidate's only where the reference's can be.

        A candidate that cannot be captured is timed eagerly beside a replayed reference, so that none is better off for it.
        """
        # Fixed cases come again in the same place, where a candidate could have recorded their answers.
        if self._problem.cases is not None or self.set_bytes + self._example.slot_bytes > _CAPTURED_BYTES:
            return
        for _ in range(_CAPTURE_DRAWS):
            self._stage_for_capture()
            if await self._capture_reference():
                break
        else:
            return
        self.candidate.runner.resume()
        self.replays = await self.candidate.capture(self.longest)
        await self.candidate.runner.stop()

    def _stage_for_capture(self) -> None:
        """Put the same few sets into all places of both arenas."""
        self.draw(CAPTURED_SETS)
        size = self.set_bytes
        staged = self._staged.view(CAPTURED_SETS, size)
        for arena in (self._arena, self._shadow):
            for at in range(self.longest):
                arena[at * size :][:size].copy_(staged[at % CAPTURED_SETS])
        self._device.synchronize()

    async def _capture_reference(self) -> bool:
        """Say whether the reference can be replayed, or there is none."""
        if self._problem.timed is None:
            return True
        await self.announce("begin")
        try:
            with self.known.settings.in_force(), torch.no_grad():
                self._replays = capture(self._problem.timed, self._own, self.longest)
        except BaseException as error:
            raise ReferenceFailure("timing", error) from error
        finally:
            await self.announce("end")
        return bool(self._replays)

    def release(self) -> None:
        """Give back what the graphs of the reference hold."""
        self._replays = []

    @property
    def reference_replays(self) -> bool:
        """Whether the reference's calls are replayed as CUDA graphs."""
        return bool(self._replays)

    @property
    def queued_ahead(self) -> tuple[bool, int]:
        """Whether calls can be queued ahead, and how many, as far as has been seen."""
        return self.gated, self.longest

    @property
    def set_bytes(self) -> int:
        """Size of one input set."""
        return self.supply.set_bytes

    @property
    def strides(self) -> tuple[tuple[int, ...], ...]:
        """How the candidate's outputs are laid out, where that is possible: what copying them costs depends on it."""
        said = self.candidate.record.layouts
        strides = []
        for number, leaf in enumerate(self._example.expected.leaves):
            wanted = leaf.spec
            fits = len(said) > number and said[number].shape == wanted.shape and tree.is_dense(*said[number].layout)
            strides.append(tuple(said[number].stride if fits else wanted.stride))
        return tuple(strides)

    @property
    def _device(self) -> Device:
        return self.candidate.device

    @property
    def _problem(self) -> Problem:
        return self.known.problem

    def draw(self, count: int) -> dict[int, trial.Trial]:
        """Stage `count` fresh input sets; return what is right for those, by number, whose outputs will be looked at."""
        batch = self.supply.take(count)
        self._staged = batch.data
        return batch.right

    def plan(self, count: int, *, cold: bool, right: dict[int, trial.Trial] | None = None) -> Plan:
        """Return a plan whose sets and slots are in random order. Seeds say nothing of which calls will be looked at."""
        sets, slots = list(range(count)), list(range(len(self.candidate.station.outputs)))
        self.rng.shuffle(sets)
        self.rng.shuffle(slots)
        seeds = [secrets.randbits(31) for _ in sets]
        for index, expected in (right or {}).items():
            seeds[sets.index(index)] = expected.seed
        return Plan(sets, slots[:count], seeds, cold)

    async def reference(self, count: int, *, cold: bool = True, gated: bool = True) -> timing.Burst:
        """Time the reference on the sets that the candidate will get; device events, which are the judge's own."""
        call = self._problem.timed
        assert call is not None
        plan = Plan(list(range(count)), [0] * count, [0] * count, cold)
        gate = None if self.known.waits or not gated else self._own_gate
        await self.announce("begin")
        try:
            self._shadow[: self._staged.numel()].copy_(self._staged)
            with self.known.settings.in_force(), torch.no_grad():
                launching = 0.0
                run = functools.partial(run_burst, call, self._own, plan, replays=self._replays)
                if gate is None:
                    seconds = run()
                else:
                    seconds, launching, late = self._behind(gate, run, gate.open)
                    self.known.waits |= late
        except BaseException as error:
            raise ReferenceFailure("timing", error) from error
        finally:
            await self.announce("end")
        return timing.Burst(count, sum(seconds), seconds, launch_seconds=launching)

    def _behind(
        self, gate: Gate, run: Callable[..., list[float]], let_go: Callable[[int], None]
    ) -> tuple[list[float], float, bool]:
        """Run a burst of the judge's own (`run` is `run_burst` of it) behind a gate that `let_go` opens.

        Returns the device seconds of each call, the host seconds of one, and whether the gate had to be opened before.
        """
        self._values += 2  # one that is opened too late by a hair is opened for the value between
        value = self._values
        median, late = 0.0, False

        def queued(launching: float) -> None:
            nonlocal median, late
            median, late = launching, gate.hold(value)
            let_go(value)

        gate.open_after(value, _REFERENCE_PATIENCE)
        try:
            seconds = run(gate=gate, value=value, queued=queued)
            return seconds, 0.0 if late else median, late
        finally:
            gate.hold(value)
            gate.force(value)

    def nothing(self, count: int, *, cold: bool, gated: bool = True) -> timing.Burst:
        """Time the loop itself on the judge's side: the same copies in and out, and no work. No secret is stored."""
        for _ in range(_TOO_LATE):
            burst, late = self._time_nothing(count, cold, gated)
            if not late:
                break
        return burst

    def _time_nothing(self, count: int, cold: bool, gated: bool) -> tuple[timing.Burst, bool]:
        """Do so once; say whether the gate had to be opened before all was queued."""
        answer = self._nothing()
        plan = self.plan(count, cold=cold)
        began = ended = revealing = 0.0
        late = False
        gate, copies = self._own_gate, self._room(plan.slots)
        replays = [lambda: answer] * count if self.replays else []
        run = functools.partial(run_burst, lambda *_: answer, self._idle, plan, replays=replays)

        def reveal(value: int) -> None:
            nonlocal began, revealing
            began = time.perf_counter()
            revealing = self._reveal(self._shadow, gate, value)

        def end(value: int) -> None:
            nonlocal ended
            while gate is not None and not gate.is_finished(value) and time.perf_counter() - began < _BROKEN:
                pass
            self._snapshot(copies)
            ended = time.perf_counter()

        def let_go(value: int) -> None:
            reveal(value)
            end(value)

        with torch.no_grad():
            if gate is None:
                seconds = run(queued=lambda _: reveal(0))
                end(0)
            elif self.gated and gated:
                seconds, _, late = self._behind(gate, run, let_go)
            else:
                self._values += 1
                value = self._values
                reveal(value)
                seconds = run(gate=gate, value=value, queued=lambda _: end(value))
        return timing.Burst(count, ended - began, seconds, revealing), late

    def _nothing(self) -> Any:
        """Return zeros that are laid out as the candidate's outputs are."""
        expected, device = self._example.expected, self._device.torch_device
        leaves = [
            torch.empty_strided(leaf.spec.shape, stride, dtype=leaf.spec.torch_dtype, device=device).zero_()
            for leaf, stride in zip(expected.leaves, self.strides, strict=True)
        ]
        return tree.rebuild(expected.structure, leaves, device)

    async def candidate_burst(
        self, count: int, right: dict[int, trial.Trial], *, cold: bool, gated: bool = True
    ) -> timing.Burst:
        """Run one burst in the runner by the judge's clock, and keep secret ones of its outputs for `judge`."""
        candidate = self.candidate
        plan = self.plan(count, cold=cold, right=right)
        self._poison(plan)
        watched = {plan.slots[plan.sets.index(index)]: expected for index, expected in right.items()}
        outputs = self._room(watched)
        self._values += 1
        value = self._values
        gate = candidate.gate
        launching: float | None = None
        if gate is not None and self.gated and gated:
            candidate.runner.resume()
            await candidate.order_burst(plan, value)
            launching = await candidate.queued(_PATIENCE)
            if launching is None:
                self._shorten(count)
            began = time.perf_counter()
            revealing = self._reveal(self._arena, gate, value)
        else:
            began = time.perf_counter()
            revealing = self._reveal(self._arena, gate, value)
            candidate.runner.resume()
            await candidate.order_burst(plan, value)
        answer = asyncio.ensure_future(candidate.finished(queued=launching is not None))
        try:
            await self._end(gate, value, answer)
            self._snapshot(outputs)
            wall = time.perf_counter() - began
            seconds = read_burst(await answer, count)
        finally:
            answer.cancel()
            await asyncio.wait({answer})
            _ = answer.cancelled() or answer.exception()  # seen, if only here
        await candidate.runner.stop()
        self._keep([(expected, outputs[slot]) for slot, expected in watched.items()])
        return timing.Burst(count, wall, seconds, revealing, launching or 0.0)

    @staticmethod
    async def _end(gate: Gate | None, value: int, answer: asyncio.Future[Any]) -> None:
        """Return as soon as the burst is over: when the device says so by the gate, or else when the runner answers.

        Who says so too early has outputs missing, and who never does is waited for no longer than the limit of the stage.
        """
        if gate is None:
            await asyncio.wait({answer})
            return
        began = time.perf_counter()
        while not gate.is_finished(value) and not answer.done():
            if (passed := time.perf_counter() - began) > _WATCHED:
                await asyncio.sleep(0 if passed < _WATCHED_CLOSELY else 1e-3)

    def _keep(self, outputs: list[tuple[trial.Trial, torch.Tensor]]) -> None:
        """Keep outputs for `judge`, or judge them now where they are too many."""
        self._unjudged += outputs
        room = self._device.at_most(_UNJUDGED_BYTES[self._device.kind], _UNJUDGED_SHARE)
        if sum(output.numel() for _, output in self._unjudged) > room:
            self.judge()

    def judge(self) -> None:
        """Compare the outputs that were kept with what is right. Raises Finished at the first wrong one."""
        record, spec = self.candidate.record, self.candidate.spec
        while self._unjudged:
            expected, output = self._unjudged.pop()
            comparison = trial.judge_bytes(expected, spec, output)
            record.note(comparison)
            if comparison.mismatch is not None:
                raise Finished(verdict.incorrect(comparison, -1, record.report(), record.findings))
            record.timed_checks += 1

    def _shorten(self, count: int) -> None:
        """A burst that was not queued in time was too long for the device's queue, or its calls wait for the device."""
        if count > _SHORTEST:
            self.longest = max(_SHORTEST, count // 4)
        else:  # not a matter of length, then
            self.gated = False
            self.longest = self.supply.longest

    @property
    def _arena(self) -> torch.Tensor:
        return self.candidate.station.arena

    def _poison(self, plan: Plan) -> None:
        """Leave nothing of earlier bursts where this one reads and writes."""
        self._arena[: len(plan.sets) * self.set_bytes].fill_(POISON)
        outputs = self.candidate.station.outputs
        if 2 * len(plan.slots) > len(outputs):
            outputs.fill_(POISON)
        else:
            for slot in plan.slots:
                outputs[slot].fill_(POISON)
        self._device.synchronize()

    def _reveal(self, target: torch.Tensor, gate: Gate | None, value: int) -> float:
        """Put the staged inputs where they are waited for, evict them from the cache, and open the gate.

        Where there is a gate, all that can be staged is copied, however short the burst: contexts that wait slow each
        other's copies down, and what every burst pays alike does not count in the slope. Returns how many seconds that took,
        or 0 where it takes longer for a longer burst.
        """
        size, most = self._staged.numel(), self._filler.numel()
        if gate is None:
            target[:size].copy_(self._staged)
            self._device.synchronize()
            return 0.0
        began = time.perf_counter()
        with gate.beside():
            target[:size].copy_(self._staged, non_blocking=True)
            target[size:most].copy_(self._filler[size:], non_blocking=True)
            self._device.flush_cache()
        gate.open(value)
        return time.perf_counter() - began

    def _room(self, slots: Iterable[int]) -> dict[int, torch.Tensor]:
        """Return memory for the copies of some slots, equally many for every burst; to allocate it may take its time."""
        outputs = self.candidate.station.outputs
        wanted = list(dict.fromkeys([*slots, *range(len(outputs))]))[: min(self.supply.checks, len(outputs))]
        return {slot: torch.empty_like(outputs[slot]) for slot in wanted}

    def _snapshot(self, copies: dict[int, torch.Tensor]) -> None:
        """Copy the bytes of some slots; what is there when this returns is what counts."""
        for slot, copy in copies.items():
            copy.copy_(self.candidate.station.outputs[slot])
        self._device.synchronize()

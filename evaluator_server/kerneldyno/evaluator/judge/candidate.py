"""The candidate as the judge drives it: one runner, the arenas between them, and an order for each thing it can do.

Every order is answered within the limit of its stage, or the evaluation ends there: whatever a runner does instead of
answering becomes a verdict. Nothing in an answer is believed; what counts is in the arenas, which the judge owns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from .. import tree, wire
from ..burst import Plan, Station
from ..devices.base import Arena, Device
from ..spec import EvalSpec
from ..toolkits import Problem, ReferenceFailure
from . import verdict
from .answers import read_burst, read_call, read_listing
from .handle import Runner, RunnerGarbled, RunnerGone, RunnerLate, RunnerStartError
from .lease import Lease
from .record import Finished, Record
from .trial import Trial

#: What slots hold before a call, and the arena behind the inputs: as a float of any size, not a number.
POISON = 0xFF
#: Bytes behind the inputs that are poisoned before each call: who reads past the end shall notice.
_GUARD_BYTES = 1 << 20


class Candidate:
    """One candidate in its runner."""

    def __init__(
        self, spec: EvalSpec, device: Device, lease: Lease, runner: Runner, record: Record, memory_bytes: int
    ) -> None:
        self.spec = spec
        self.device = device
        self.runner = runner
        self.record = record
        self._lease = lease
        self._memory_bytes = memory_bytes
        self._arenas: list[Arena] = []
        self._station: Station | None = None
        self._spent = 0.0
        self.stage = "load"
        self.overdue = False

    @property
    def station(self) -> Station:
        """Input sets and output slots."""
        assert self._station is not None
        return self._station

    def close(self) -> None:
        """Give the arenas back."""
        self._station = None
        for arena in self._arenas:
            arena.close()

    def enter(self, stage: str) -> None:
        """Begin a stage: its limit counts from here."""
        self.stage = stage
        self._spent = 0.0

    async def open_arenas(self, problem: Problem, trials: Sequence[Trial], sets: int, slots: int) -> None:
        """Allocate the shared memory and have the runner reach it. What fails here is not the candidate's doing."""
        first = trials[0]
        set_bytes = max(each.inputs.set_bytes for each in trials)
        slot_bytes = max(each.slot_bytes for each in trials)
        _, state_bytes = tree.layout([tree.describe(tensor) for tensor in problem.state().values()])
        room = max(sets * first.inputs.set_bytes, set_bytes, state_bytes)
        async with self._lease.work():
            for number, size in enumerate((room, slots * slot_bytes)):
                self._arenas.append(self.device.new_arena(size, self.runner.descriptors, number))
            arena_in, arena_out = (arena.data for arena in self._arenas)
            self.gate = self.device.gate(self.runner.descriptors, queues=False)
        order = {
            "op": "arenas",
            "tickets": [arena.ticket() for arena in self._arenas],
            "structure": first.inputs.structure,
            "specs": [spec.to_json() for spec in first.inputs.specs],
            "sets": sets,
            "slots": slots,
        }
        try:
            answer = await self.runner.ask(order, 60)
        except (RunnerGone, RunnerLate) as error:
            raise RunnerStartError(f"the runner could not reach the arenas: {type(error).__name__}") from None
        if "error" in answer:
            raise RunnerStartError(f"the runner could not reach the arenas: {answer['error']}")
        self._station = Station.over(
            self.device,
            first.inputs.structure,
            first.inputs.specs,
            arena_in,
            arena_out,
            sets=sets,
            slots=slots,
        )

    async def load(self, symbol: str) -> None:
        """Have the source imported."""
        order = {"op": "load", "source": self.spec.kernel_code, "backend": self.spec.backend, "symbol": symbol}
        answer = await self._ask(order)
        if not (isinstance(answer, dict) and answer.get("defines") is True):
            raise Finished(verdict.invalid("kernel_code", f"defines no {symbol}"))

    async def construct(self, problem: Problem) -> None:
        """Have the callable made, with the parameters of the reference where those are secret."""
        try:
            arguments, tensors = tree.flatten(list(problem.init_args))
            keywords, more = tree.flatten(problem.init_kwargs)
            if tensors or more:
                raise tree.UnsupportedValueError("a tensor; pass shapes and build tensors in the constructor")
        except tree.UnsupportedValueError as error:
            raise ReferenceFailure("build", TypeError(f"get_init_inputs() returned {error}")) from error
        order = {
            "op": "construct",
            "symbol": problem.symbol,
            "instantiate": problem.instantiate,
            "args": arguments,
            "kwargs": keywords,
            "seed": problem.init_seed,
        }
        state = problem.state()
        listing = read_listing(await self._ask({**order, "listing": bool(state)}))
        if not state:
            return
        specs = {name: tree.describe(tensor, keep_layout=False) for name, tensor in state.items()}
        pairs = match(specs, listing)
        async with self._lease.work():
            region = self._arenas[0].data
            chosen = [state[source] for source in pairs.values()]
            for view, tensor in zip(
                tree.views(region, [specs[source] for source in pairs.values()]), chosen, strict=True
            ):
                view.copy_(tensor)
            self.device.synchronize()
        names = [[target, specs[source].to_json()] for target, source in pairs.items()]
        await self._ask({**order, "op": "reconstruct", "state": names})
        self.record.parameters_perturbed = len(pairs)

    async def call(self, trial: Trial, *, ghost: bool = False) -> tuple[Any, list[tree.TensorSpec], int | None]:
        """Call once on a trial's inputs; with `ghost`, with the candidate's own kernels doing nothing.

        Slot 0 then holds the output, slots 1 and 2 what the calls before returned, as it is now.
        """
        station = self.station
        inputs = trial.inputs
        if inputs.set_bytes > station.arena.numel() or trial.slot_bytes > station.outputs[0].numel():
            raise ReferenceFailure("inputs", ValueError("get_inputs() returned larger inputs than the first time"))
        async with self._lease.work():
            station.arena[: inputs.set_bytes].copy_(inputs.master)
            station.arena[inputs.set_bytes :][:_GUARD_BYTES].fill_(POISON)
            station.outputs[:3].fill_(POISON)
            self.device.synchronize()
        specs = [spec.to_json() for spec in inputs.specs]
        order = {"op": "call", "seed": trial.seed, "structure": inputs.structure, "specs": specs, "ghost": ghost}
        return read_call(await self._ask(order))

    async def profile(self, trial: Trial, calls: int) -> Any:
        """Profile `calls` calls on a trial's inputs; returns what the harness says, unread."""
        async with self._lease.work():
            self.station.arena[: trial.inputs.set_bytes].copy_(trial.inputs.master)
            self.device.synchronize()
        specs = [spec.to_json() for spec in trial.inputs.specs]
        structure = trial.inputs.structure
        return await self._ask({"op": "profile", "structure": structure, "specs": specs, "calls": calls})

    async def capture(self, count: int) -> bool:
        """Have the call captured on the first `count` input sets of the arena; say whether bursts will replay it."""
        return await self._ask({"op": "capture", "count": count}) is True

    async def order_burst(self, plan: Plan, value: int) -> None:
        """Send the order for a burst; the answers are read by `queued` and `finished`."""
        self.runner.send(
            {
                "op": "burst",
                "sets": list(plan.sets),
                "slots": list(plan.slots),
                "seeds": list(plan.seeds),
                "cold": plan.cold,
                "value": value,
            }
        )

    async def queued(self, patience: float) -> float | None:
        """Wait until the burst is queued; return the host seconds of one call, or None after `patience` seconds."""
        try:
            answer = await self.runner.answer(patience)
        except RunnerLate:
            return None
        if await self._heed(answer) != "queued":
            raise RunnerGarbled("a burst that was never queued")
        (launching,) = read_burst([answer.get("launching")], 1)
        return launching

    async def finished(self, *, queued: bool) -> Any:
        """Return the answer to the burst; `queued` says whether its first half has been read."""
        if not queued:
            first = await self._receive()
            if first != "queued":
                raise RunnerGarbled("a burst that was never queued")
        return await self._receive()

    async def _ask(self, order: wire.Frame) -> Any:
        self.runner.send(order)
        return await self._receive()

    async def _receive(self) -> Any:
        """Return the next answer, within what is left of the stage's limit; every other event ends the evaluation."""
        limit = getattr(self.spec.limits, self.stage)
        begin, stopped = time.monotonic(), self.runner.stopped_seconds
        try:
            answer = await self.runner.answer(max(0.0, limit - self._spent))
        except RunnerLate:
            self.overdue = True
            raise Finished(verdict.late(self.stage, limit)) from None
        finally:
            self._spent += time.monotonic() - begin - (self.runner.stopped_seconds - stopped)
        return await self._heed(answer)

    async def _heed(self, answer: wire.Frame) -> Any:
        if "ok" in answer:
            return answer["ok"]
        raise Finished(verdict.raised(self.stage, answer.get("error"), self._memory_bytes, self.record.findings))


def match(wanted: dict[str, tree.TensorSpec], listing: dict[str, tree.TensorSpec]) -> dict[str, str]:
    """Pair the candidate's constant tensors (`listing`) with the reference's (`wanted`); return {candidate: reference}.

    By name; what is left by the last part of its name and its shape, then by shape alone, in order, and only where both
    sides have equally many of a kind.
    """
    pairs = {name: name for name, spec in wanted.items() if _same(listing.get(name), spec)}
    for key in (
        lambda name, spec: (name.rpartition(".")[2], spec.shape, spec.dtype),
        lambda _, spec: (spec.shape, spec.dtype),
    ):
        ours: dict[Any, list[str]] = {}
        theirs: dict[Any, list[str]] = {}
        for name, spec in wanted.items():
            if name not in pairs.values():
                ours.setdefault(key(name, spec), []).append(name)
        for name, spec in listing.items():
            if name not in pairs:
                theirs.setdefault(key(name, spec), []).append(name)
        for kind, names in ours.items():
            if len(theirs.get(kind, ())) == len(names):
                pairs.update(zip(theirs[kind], names, strict=True))
    return pairs


def _same(left: tree.TensorSpec | None, right: tree.TensorSpec) -> bool:
    return left is not None and (left.shape, left.dtype) == (right.shape, right.dtype)

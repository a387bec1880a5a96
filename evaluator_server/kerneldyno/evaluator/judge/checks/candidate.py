"""The candidate as the judge controls it: one runner, the shared arenas, and an order for each thing it can do.

Every order must be answered within the limit of its stage; otherwise the evaluation ends, and what the runner did
instead becomes the verdict. No answer is believed. Only the arenas count, which the judge owns.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kerneldyno.v1 import evaluation_pb2 as pb

from ...devices.base import Device
from ...shared import small_floats, tree, wire
from ...shared.native_build import of_files
from ...shared.reference_failure import ReferenceFailure
from ...shared.running_problem import Part, RunningProblem
from ...shared.spec import EvalSpec
from ..comparison.fingerprint import Fingerprint
from ..problems.cases import Case, case_of
from ..problems.inputs import Inputs
from ..problems.trial import Trial, changed_padding
from ..results import verdict
from ..results.record import Finished, Record
from ..results.stages import LIMITED_AS
from ..runners.answers import Called, read_call, read_error, read_listing, read_parameters
from ..runners.handle import Runner, RunnerLate
from ..runners.lease import Lease
from ..runners.side import Side, Sizes
from ..runners.work import numbers, settle
from .libraries import Libraries

#: Content of slots before a call, and of the arena behind the inputs. As a float of any size it is NaN.
POISON = 0xFF
#: Bytes behind the inputs that are poisoned before each call, so that a read past the end has an effect and a write can
#: be seen. At least the second number of them exist.
_GUARD_BYTES = 1 << 20
_LEAST_GUARD_BYTES = 64 << 10
#: Least number of bytes of parameters that are transferred at a time.
_HANDED = 4 << 20
#: Time limit in seconds for the tools that read the kernels' code.
_LISTING_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Adopted:
    """The reference's tensors whose values the candidate was given, by name."""

    given: list[str] = field(default_factory=list)
    #: If there are none: the tensors that it lacks, while it has others that could stand for them.
    missing: list[str] = field(default_factory=list)


class Candidate(Side):
    """One candidate in its runner."""

    def __init__(
        self,
        spec: EvalSpec,
        device: Device,
        lease: Lease,
        runner: Runner,
        record: Record,
        memory: verdict.Limits,
    ) -> None:
        super().__init__(device, lease, runner)
        self.spec = spec
        self.record = record
        #: What it may have.
        self.memory = memory
        self._spent = 0.0
        #: For how long it had been stopped when the stage began, in seconds.
        self._stopped = 0.0
        #: Seconds of the quickest call so far, as the runner says; used for planning only.
        self.quickest_call = math.inf
        #: The stage's name in evidence and limits; see `LIMITED_AS`.
        self.stage = LIMITED_AS[pb.STAGE_LOADING]
        #: Which of several fixed cases it is called with; None if there are none, or before it is called.
        self.case: Case | None = None
        self.overdue = False

    def enter(self, stage: pb.Stage.ValueType) -> None:
        """Begin a stage. Its time limit starts now."""
        self.stage = LIMITED_AS[stage]
        self._spent = 0.0
        self._stopped = self.runner.stopped_seconds

    async def open_for(self, problem: RunningProblem, trials: Sequence[Trial], sizes: Sizes) -> None:
        """Open arenas of `sizes` that also hold the secret parameters, and inputs and output of each of `trials`.

        If an output is wider than a slot of `sizes`, call `narrow` before bursts.
        """
        state = await self._constants(problem)
        _, state_bytes = tree.layout([tree.describe(tensor) for tensor in state.values()])
        room = max(state_bytes, min(problem.parameter_bytes, _HANDED), *(each.inputs.set_bytes for each in trials))
        widest = max(each.slot_bytes for each in trials)
        room += _LEAST_GUARD_BYTES
        await self.open_arenas(
            sizes, host_bytes=self.memory.host, room=room, widest=widest, memory_bytes=self.memory.device
        )

    async def _constants(self, problem: RunningProblem) -> Mapping[str, torch.Tensor]:
        """Return the secret values, and wait for nobody who is timed if there are none."""
        return await self.execute(lambda: problem.constants) if problem.constant_names else {}

    async def load(self, symbol: str, libraries: Libraries) -> None:
        """Import the source in the runner, which gets the libraries that builders have built for it."""
        given = self.spec.candidate
        native = of_files(given.kernel_files, given.cuda_flags, given.cpp_flags, given.libraries)
        order = {
            "op": "load",
            "source": given.kernel_code,
            "files": given.kernel_files,
            "native": None if native is None else native.to_json(),
            "libraries": libraries.read(),
            "failures": libraries.failures,
            "backend": given.backend,
            "symbol": symbol,
        }
        answer = await self.ask(order)
        if not (isinstance(answer, dict) and answer.get("defines") is True):
            raise Finished(verdict.invalid("kernel_code", f"defines no {symbol}"))

    async def construct(self, problem: RunningProblem) -> None:
        """Construct the callable in the runner, with the reference's parameters if those are secret."""
        order = {
            "op": "construct",
            "symbol": problem.symbol,
            "instantiate": problem.instantiate,
            "args": problem.init_args,
            "kwargs": problem.init_kwargs,
            "seed": problem.init_seed,
            "precision": problem.precision,
            "gradients": problem.gradients and problem.gradients.to_plain(),
            "training": problem.training,
            "buffers": list(problem.buffers),
        }
        self.case = case_of(problem, self.spec, 0)
        state = await self._constants(problem)
        listing = read_listing(await self.ask({**order, "listing": bool(state)}))
        if not state:
            return
        specs = {name: tree.describe(tensor, keep_layout=False) for name, tensor in state.items()}
        pairs = match(specs, listing)
        chosen = [specs[source] for source in pairs.values()]

        def stage() -> None:
            for view, source in zip(tree.views(self._arenas[0].data, chosen), pairs.values(), strict=True):
                view.copy_(state[source])
            settle(self.device)

        await self.execute(stage)
        names = [[target, specs[source].to_json()] for target, source in pairs.items()]
        await self.ask({**order, "op": "reconstruct", "state": names})
        self.record.parameters_perturbed = len(pairs)

    async def adopt(self, problem: RunningProblem) -> Adopted:
        """Construct the callable again, and give the reference's values to tensors of the same names with other values.

        A module that creates the same parameters in another order draws other values for them. If there are no such
        tensors, nothing is constructed again.
        """
        ours = await self.execute(problem.parameters)
        if not (problem.instantiate and ours):
            return Adopted()
        theirs = read_parameters(await self.ask({"op": "parameters"}))
        here = [name for name, (spec, _) in ours.items() if name in theirs and _same(theirs[name][0], spec)]
        other = [name for name in here if theirs[name][1] != ours[name][1]]
        if not other:
            # Constants were paired by more than their names, or are reported as missing already (`correctness`).
            missing = [name for name in ours if name not in here and name not in problem.constant_names]
            return Adopted(missing=missing if len(theirs) > len(here) else [])
        await self.construct(problem)
        region = self._arenas[0].data
        for batch in _batches([(name, ours[name][0]) for name in other], region.numel()):
            specs = await self.execute(functools.partial(self._stage_values, problem, batch))
            told = [[part.name, part.start, spec.to_json()] for part, spec in zip(batch, specs, strict=True)]
            await self.ask({"op": "adopt", "parts": told})
        return Adopted(given=other)

    def _stage_values(self, problem: RunningProblem, parts: Sequence[Part]) -> list[tree.TensorSpec]:
        """Copy parts of the reference's tensors to where the runner finds them, and return how they lie there."""
        with problem.values(parts) as found:
            specs = [tree.describe(values) for values in found]
            for view, values in zip(tree.views(self._arenas[0].data, specs), found, strict=True):
                view.copy_(values)
            settle(self.device)
        return specs

    async def call(self, trial: Trial, *, ghost: bool = False, guarded: bool = False) -> Called:
        """Call once on a trial's inputs.

        With `ghost`, the candidate's own kernels do nothing. If the call is `guarded`, tensors that it makes get guard
        zones, and the answer says which were written to.

        Afterwards slot 0 holds the output, and slots 1 and 2 hold the present content of what the previous calls
        returned.
        """
        station = self.station
        inputs = trial.inputs
        if not self.has_room(trial):
            room = station.outputs.shape[1]
            said = f"the reference returned an output of {trial.slot_bytes} bytes, and {room} were enough at first"
            raise ReferenceFailure("reference", ValueError(said))
        if inputs.set_bytes > station.arena.numel():
            raise ReferenceFailure("inputs", ValueError("get_inputs() returned larger inputs than the first time"))
        await self.execute(lambda: self._stage(trial))
        specs = [spec.to_json() for spec in inputs.specs]
        order = {"op": "call", "seed": trial.seed, "structure": inputs.structure, "specs": specs}
        order |= {"ghost": ghost, "guarded": guarded}
        called = read_call(await self.ask(order))
        self.quickest_call = min(self.quickest_call, called.seconds)
        return called

    def _stage(self, trial: Trial) -> None:
        if not trial.staged:
            self.stage_inputs(trial.inputs)
        self.station.arena[trial.inputs.set_bytes :][:_GUARD_BYTES].fill_(POISON)
        self.station.outputs[:3].fill_(POISON)
        settle(self.device)

    def has_room(self, trial: Trial) -> bool:
        """Return True if the answer to a trial fits into a slot; its size may depend on the inputs."""
        return trial.slot_bytes <= self.station.outputs.shape[1]

    def outside(self, trial: Trial) -> str:
        """Return what the last call wrote to the arena outside of the inputs of `trial`; "" if it wrote nothing there.

        Call this under the lease, like everything that uses the device.
        """
        arena = self.station.arena
        zone = arena[trial.inputs.set_bytes :][:_GUARD_BYTES]
        # Words take an eighth of the operations; all bits of the poison are set.
        words = zone[: len(zone) // 8 * 8].view(torch.int64)
        near, far = changed_padding(trial, arena), 0
        if numbers((words != -1).any()):
            far = int((zone != POISON).sum())
        if near or far:
            return f"{near + far} bytes behind the end of an input" + ("" if near else ", and not right behind it")
        return ""

    async def fingerprint(self, prints: Fingerprint) -> int:
        """Return the fingerprint of the last call's output."""
        return await self.execute(lambda: prints.of(self.station.outputs[0]))

    def _show(self, inputs: Inputs) -> None:
        self.stage_inputs(inputs)
        settle(self.device)

    def stage_inputs(self, inputs: Inputs) -> None:
        """Copy inputs to where the next call finds them."""
        self.station.arena[: inputs.set_bytes].copy_(inputs.master)

    async def profile(self, trial: Trial, calls: int) -> Any:
        """Profile `calls` calls on a trial's inputs. Return the harness's answer, unparsed."""
        return await self._look("profile", trial, calls=calls)

    async def survey(self, trial: Trial) -> Any:
        """Find what else does the work of one call on a trial's inputs. Return the harness's answer, unparsed."""
        return await self._look("survey", trial)

    async def listing(self, *, ptx: bool, sass: bool) -> Any:
        """Ask what compilers made of the candidate's kernels. Return the harness's answer, unparsed."""
        left = getattr(self.spec.candidate.limits, self.stage) - self._spent
        seconds = min(_LISTING_SECONDS, max(0.0, left / 2))
        return await self.ask({"op": "listing", "ptx": ptx, "sass": sass, "seconds": seconds})

    async def _look(self, operation: str, trial: Trial, **more: int) -> Any:
        if trial.inputs.master.numel():  # else the inputs of the last call are still there
            await self.execute(lambda: self._show(trial.inputs))
        specs = [spec.to_json() for spec in trial.inputs.specs]
        return await self.ask({"op": operation, "structure": trial.inputs.structure, "specs": specs, **more})

    async def _frame(self) -> wire.Frame:
        """Return the next frame, within the rest of the stage's limit. Any other event ends the evaluation."""
        limit = getattr(self.spec.candidate.limits, self.stage)
        begin, stopped = time.monotonic(), self.runner.stopped_seconds
        try:
            return await self.runner.answer(max(0.0, limit - self._spent))
        except RunnerLate:
            self.overdue = True
            raise Finished(verdict.late(self.stage, limit, self.runner.stopped_seconds - self._stopped)) from None
        finally:
            self._spent += time.monotonic() - begin - (self.runner.stopped_seconds - stopped)

    def _heed(self, answer: wire.Frame) -> Any:
        if "ok" in answer:
            return answer["ok"]
        raise Finished(verdict.raised(self.stage, read_error(answer.get("error")), self.memory, self.record.findings))


def _batches(tensors: Sequence[tuple[str, tree.TensorSpec]], room: int) -> Iterator[list[Part]]:
    """Cut tensors into parts, and yield as many at a time as fit into `room` bytes."""
    batch: list[Part] = []
    left = room
    for name, spec in tensors:
        dtype, start = small_floats.raw(torch.empty(0, dtype=spec.torch_dtype)).dtype, 0
        total = spec.nbytes // dtype.itemsize
        while start < total:
            count = min(total - start, left // tree.ALIGNMENT * tree.ALIGNMENT // dtype.itemsize)
            if count <= 0:
                yield batch
                batch, left = [], room
                continue
            batch.append(Part(name, start, count))
            start += count
            left -= -(-count * dtype.itemsize // tree.ALIGNMENT) * tree.ALIGNMENT
    if batch:
        yield batch


def match(wanted: dict[str, tree.TensorSpec], listing: dict[str, tree.TensorSpec]) -> dict[str, str]:
    """Pair the candidate's constant tensors (`listing`) with the reference's (`wanted`); return {candidate: reference}.

    Tensors are paired by name; the rest by the last part of the name and the shape; the rest of those by shape alone.
    The last two go in order, and only if both sides have equally many of a kind.
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

"""The memory plan: how much memory a problem takes, and how large the arenas of an evaluation may be.

Sizes are measured when the judge runs a reference for the first time. From these the plan computes the peak of one
evaluation, all its processes together, and what two of them take of the host's memory. The ledgers admit the evaluation
with these numbers. Pure arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...devices.base import Device
from ..runners.side import CHECKED_SLOTS, Sizes

#: Problems above one of these limits, in bytes and in operations, are examined by an excerpt of their rows.
_LARGE_BYTES = 256 << 20
_LARGE_FLOPS = 2e11
#: Device memory of a runner's process before it does anything, in bytes: a context of the driver, and libraries. (496
#: to 550 MiB on H200s.)
CONTEXT_BYTES = 600 << 20
#: What one evaluation takes in addition to the plan, in bytes: workspaces of libraries, fragments, the judge's small
#: tensors.
_SLACK_BYTES = 1 << 30
#: Unless the request says otherwise, a candidate may take this multiple of its reference's memory, plus these bytes.
_CANDIDATE_TIMES, _CANDIDATE_MORE = 2, 4 << 30
#: A problem's process keeps parameters in their own precision and in float64, which is three times as many bytes. Of
#: those that are secret the judge has a copy.
WITH_PRECISE = 3
#: Share of the device that is admitted for a problem that was never run: most problems need less.
_UNKNOWN_SHARE = 1 / 4
#: If the host memory that constructing took was not measured, it counts as this multiple of the parameters: each may be
#: computed from another tensor of its size, or be cast to half of it afterwards.
_CONSTRUCTION_TIMES = 2
#: The judge may take this multiple of what the plan expects before its allocations fail.
_AT_MOST = 1.5

#: Memory of one arena beyond one input set or output slot, in bytes: more sets make longer bursts. On a small device it
#: is limited to this share of the memory.
_ARENA_BUDGET = {"cuda": 512 << 20, "cpu": 64 << 20}
_ARENA_SHARE = 1 / 128
_MOST_SETS = 40
#: Least number of input sets of a timed candidate, because bursts must differ in length. It does not apply if the sets
#: would take more than this share of the device's memory: such large calls take so long that they are timed one by one.
_MIN_SETS = 3
_MIN_SETS_SHARE = 1 / 32
#: Output slots if outputs are larger than this, in bytes: then the judge checks only one earlier output.
_MIN_SLOTS_LARGE = 2
_LARGE_OUTPUT = 1 << 30
#: Numbers of input sets and output slots if the preferred ones do not fit. With one slot no earlier output is checked.
_SMALLER = ((2, 2), (1, 2), (1, 1))


@dataclass(frozen=True, slots=True)
class HostNeed:
    """What the processes of an evaluation take of the host's memory, in bytes, in addition to what any process takes."""

    candidate: int
    #: The runner of its reference; 0 if nothing is timed.
    reference: int


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a problem takes, in bytes."""

    #: One input set, and one output.
    inputs: int
    outputs: int
    #: What a call of the reference takes in addition to its inputs, including its output.
    working: int
    parameters: int
    #: What may be drawn ahead for timing, and kept for comparison afterwards.
    ahead: int
    #: Operations of one call, as far as known.
    flops: int = 0
    #: With several fixed cases, of which the first is timed: the largest inputs and output of the others, and all cases
    #: together, which are in each process that builds the problem. `working` then holds for the largest case.
    widest_inputs: int = 0
    widest_outputs: int = 0
    held: int = 0
    #: Host memory that building the reference took, and drawing one input set, at most.
    construction: int = 0
    drawing: int = 0
    #: Those of the parameters that have secret values, which the candidate gets through its arena.
    secret: int = 0
    #: If trials are small: what passes at once when some are prepared together, and what those take (`together`).
    passing: int = 0
    prepared: int = 0
    #: True if the reference works on the inputs themselves and not on a copy: they are large, and it does not change
    #: them.
    spares_inputs: bool = False

    @property
    def is_large(self) -> bool:
        """True if running all of it repeatedly, also in float64, would take too much memory or time."""
        return self.inputs + self.working > _LARGE_BYTES or self.flops > _LARGE_FLOPS

    @property
    def alone(self) -> int:
        """What one call of the reference takes with its inputs and parameters. It cannot run with less."""
        return self.inputs + self.parameters + self.working

    @property
    def candidate_limit(self) -> int:
        """What a candidate may allocate, if the request does not say."""
        return _CANDIDATE_TIMES * self.alone + _CANDIDATE_MORE

    def reference_limit(self, sizes: Sizes) -> int:
        """Return what the reference's runner may allocate. The output of an empty call may have to fit there, too."""
        return self.candidate_limit + self._nothing(sizes)

    @property
    def judged(self) -> int:
        """What judge and problem take at their peak: inputs as drawn and as kept, the answer, and one more run."""
        running = (1 if self.spares_inputs else 2) * self.inputs + self.working + self.outputs
        if self.is_large:
            # On their way there are inputs and outputs. When inputs are drawn, they are in the problem's memory as well.
            running = max(running + self.inputs + self.outputs, 3 * self.inputs + self.outputs)
        else:
            running += 2 * (self.inputs + self.working) + 6 * self.outputs  # float64 twins of everything
            running += self.passing
        kept = max(self.outputs, self.widest_outputs) + WITH_PRECISE * self.parameters + self.secret + self.held
        return running + kept + _SLACK_BYTES

    @property
    def judged_at_most(self) -> int:
        """What either of them may take while the reference executes, including inputs for bursts."""
        return int(_AT_MOST * (self.judged + max(self._prepared, self.ahead)))

    @property
    def _prepared(self) -> int:
        return 0 if self.is_large else self.prepared  # large trials are prepared one by one

    def reference_runner(self, sizes: Sizes) -> int:
        """Return what the reference's runner takes with such arenas."""
        return sizes.sets * (self.inputs + self.outputs) + self.alone + self.held + self._nothing(sizes)

    def _nothing(self, sizes: Sizes) -> int:
        return 0 if lies_over_inputs(self.outputs, sizes.sets * self.inputs) else self.outputs

    def kept(self, sizes: Sizes) -> int:
        """Return what outputs of earlier calls take in the candidate's process, where they are checked again."""
        return (min(CHECKED_SLOTS, sizes.slots) - 1) * max(self.outputs, self.widest_outputs)

    def _arenas(self, sizes: Sizes) -> int:
        wide = min(CHECKED_SLOTS, sizes.slots) * self.widest_outputs
        return max(sizes.sets * self.inputs, self.widest_inputs) + max(sizes.slots * self.outputs, wide)

    def beside(self, sizes: Sizes, *, timed: bool) -> int:
        """Return what an evaluation with such arenas takes in addition to the candidate's own allocations."""
        runner = self.reference_runner(sizes) if timed else 0
        trials = max(self._prepared, self.ahead) if timed else self._prepared  # those of the checks are gone by then
        return self._arenas(sizes) + self.kept(sizes) + runner + trials + self.judged

    def needed(self, sizes: Sizes, *, timed: bool) -> int:
        """Return what an evaluation with such arenas takes at its peak, all its processes together."""
        return self.beside(sizes, timed=timed) + self.alone + self.parameters

    def host_need(self, device: Device, sizes: Sizes, *, timed: bool) -> HostNeed:
        """Return what processes with such arenas take of the host's memory. A GPU's modules are constructed there.

        The candidate is constructed twice, if it has secret values. On the CPU both instances are there at once, and so
        are the secret values in the arena and a copy of them.
        """
        if device.kind != "cpu":
            return HostNeed(self.construction, self.construction + self.drawing if timed else 0)
        passing = max(0, self.construction - self.parameters)
        candidate = self._arenas(sizes) + self.kept(sizes) + self.alone + self.parameters + 2 * self.secret
        return HostNeed(candidate + passing, self.reference_runner(sizes) + passing if timed else 0)

    def sizes(self, device: Device, capacity: int, *, timed: bool) -> Sizes:
        """Return the sizes of the arenas: those that timing prefers, and smaller ones if the evaluation would not fit."""
        comfortable = self._comfortable(device, timed=timed)
        smaller = [replace(comfortable, sets=sets, slots=slots) for sets, slots in _SMALLER if sets <= comfortable.sets]
        fitting = (sizes for sizes in (comfortable, *smaller) if self.needed(sizes, timed=timed) <= capacity)
        return next(fitting, smaller[-1])

    def _comfortable(self, device: Device, *, timed: bool) -> Sizes:
        slots = _MIN_SLOTS_LARGE if self.outputs > _LARGE_OUTPUT else CHECKED_SLOTS
        sets = 1
        if timed:
            budget = device.at_most(_ARENA_BUDGET[device.kind], _ARENA_SHARE)
            wanted = _MIN_SETS * self.inputs
            enough = device.kind == "cpu" or device.at_most(wanted, _MIN_SETS_SHARE) == wanted
            least = _MIN_SETS if enough else 1
            sets = max(least, min(_MOST_SETS, budget // self.inputs, budget // self.outputs))
            slots = max(sets, slots)
        return Sizes(None, [], sets, slots, self.outputs)


def lies_over_inputs(outputs: int, arena: int) -> bool:
    """Return True if an empty call's output is placed over an arena of inputs: it is large, and fits there."""
    return _LARGE_OUTPUT < outputs <= arena


def constructing(parameters: int, measured: int | None) -> int:
    """Return the host memory that constructing a module takes.

    Memory that was kept from earlier does not show in what was `measured`, so it is not less than the parameters.
    """
    return _CONSTRUCTION_TIMES * parameters if measured is None else max(parameters, measured)


def unknown(capacity: int) -> int:
    """Return the bytes with which to admit a problem that was never run."""
    return int(_UNKNOWN_SHARE * capacity)

"""The memory plan: how much device memory a problem takes, and how large the arenas of an evaluation may be.

Sizes are measured when the judge runs a reference for the first time. From these the plan says what one evaluation needs
at its peak, all its processes together, which is what the ledger admits it with. Pure arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...devices.base import Device
from ..runners.side import Sizes

#: Problems that take more bytes than this, or more operations, are examined by an excerpt of their rows.
_LARGE_BYTES = 256 << 20
_LARGE_FLOPS = 2e11
#: What a runner's process takes of a GPU's memory before it does anything, in bytes: a context of the driver, and libraries.
#: (496 to 550 MiB on H200s.)
CONTEXT_BYTES = 600 << 20
#: What one evaluation takes beside what is planned: workspaces of libraries, fragments, the judge's own small tensors.
_SLACK_BYTES = 1 << 30
#: A candidate may take this many times what its reference takes, plus this, unless the request says otherwise.
_CANDIDATE_TIMES, _CANDIDATE_MORE = 2, 4 << 30
#: The judge keeps parameters in their own precision, and in float64: three times as many bytes.
WITH_PRECISE = 3
#: What is admitted for a problem that nobody has run yet, as a share of the device: most problems need less.
_UNKNOWN_SHARE = 1 / 4
#: The judge may take this many times what it is expected to before its allocations fail.
_AT_MOST = 1.5

#: Memory of one arena beyond what one input set or output slot needs, in bytes: more sets make longer bursts. No more
#: of a small device's memory than this share.
_ARENA_BUDGET = {"cuda": 512 << 20, "cpu": 64 << 20}
_ARENA_SHARE = 1 / 128
_MOST_SETS = 40
#: Fewest input sets of a candidate that is timed, since bursts must differ in length, unless they would take more than
#: this share of the device's memory: calls on so much take so long that they are timed one by one.
_MIN_SETS = 3
_MIN_SETS_SHARE = 1 / 32
#: Output slots: the judge looks at two earlier outputs as well; of outputs larger than this, in bytes, at one.
_MIN_SLOTS = 3
_MIN_SLOTS_LARGE = 2
_LARGE_OUTPUT = 1 << 30
#: Input sets and output slots where the comfortable ones do not fit. With one slot no earlier output is looked at.
_SMALLER = ((2, 2), (1, 2), (1, 1))


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a problem takes, in bytes."""

    #: One input set, and one output.
    inputs: int
    outputs: int
    #: What a call of the reference takes beside its inputs, its output included.
    working: int
    parameters: int
    #: What may be drawn ahead for timing, and kept to be compared after it.
    ahead: int
    #: Operations of one call, as far as they are known.
    flops: int = 0

    @property
    def is_large(self) -> bool:
        """Whether running all of it again and again, in float64 too, would take too much memory or time."""
        return self.inputs + self.working > _LARGE_BYTES or self.flops > _LARGE_FLOPS

    @property
    def alone(self) -> int:
        """What one call of the reference takes with its inputs and parameters: it cannot run with less."""
        return self.inputs + self.parameters + self.working

    @property
    def candidate_limit(self) -> int:
        """What a candidate may allocate, where the request does not say."""
        return _CANDIDATE_TIMES * self.alone + _CANDIDATE_MORE

    def reference_limit(self, sizes: Sizes) -> int:
        """Return what a runner of the reference may allocate: the answer of a call that does nothing may lie there too."""
        return self.candidate_limit + self._nothing(sizes)

    @property
    def judged(self) -> int:
        """What the judge takes at its peak: inputs as drawn and as kept, the answer, and one more run."""
        drawing = 2 * self.inputs
        running = 2 * self.inputs + self.working + self.outputs
        if not self.is_large:
            running += 2 * (self.inputs + self.working) + 6 * self.outputs  # float64 twins of all of it
        return max(drawing, running) + self.outputs + WITH_PRECISE * self.parameters + _SLACK_BYTES

    @property
    def judged_at_most(self) -> int:
        """What the judge may take while the reference executes, inputs for bursts included."""
        return int(_AT_MOST * (self.judged + self.ahead))

    def reference_runner(self, sizes: Sizes) -> int:
        """Return what a runner of the reference takes with such arenas."""
        return sizes.sets * (self.inputs + self.outputs) + self.alone + self._nothing(sizes)

    def _nothing(self, sizes: Sizes) -> int:
        return 0 if lies_over_inputs(self.outputs, sizes.sets * self.inputs) else self.outputs

    def kept(self, sizes: Sizes) -> int:
        """Return what outputs of earlier calls take in the candidate's process, which are looked at again."""
        return (min(_MIN_SLOTS, sizes.slots) - 1) * self.outputs

    def beside(self, sizes: Sizes, *, timed: bool) -> int:
        """Return what an evaluation with such arenas takes beside what the candidate itself allocates."""
        arenas = sizes.sets * self.inputs + sizes.slots * self.outputs
        timing = self.ahead + self.reference_runner(sizes) if timed else 0
        return arenas + self.kept(sizes) + timing + self.judged

    def needed(self, sizes: Sizes, *, timed: bool) -> int:
        """Return what an evaluation with such arenas takes at its peak, all its processes together."""
        return self.beside(sizes, timed=timed) + self.alone + self.parameters

    def sizes(self, device: Device, capacity: int, *, timed: bool) -> Sizes:
        """Return what the arenas hold: as much as timing likes, and less where the evaluation would not fit."""
        comfortable = self._comfortable(device, timed=timed)
        smaller = [replace(comfortable, sets=sets, slots=slots) for sets, slots in _SMALLER if sets <= comfortable.sets]
        fitting = (sizes for sizes in (comfortable, *smaller) if self.needed(sizes, timed=timed) <= capacity)
        return next(fitting, smaller[-1])

    def _comfortable(self, device: Device, *, timed: bool) -> Sizes:
        slots = _MIN_SLOTS_LARGE if self.outputs > _LARGE_OUTPUT else _MIN_SLOTS
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
    """Say whether the answer of a call that does nothing is laid over an arena of inputs: a large one, where that fits."""
    return _LARGE_OUTPUT < outputs <= arena


def unknown(capacity: int) -> int:
    """Return what to admit a problem with that nobody has run yet, in bytes."""
    return int(_UNKNOWN_SHARE * capacity)

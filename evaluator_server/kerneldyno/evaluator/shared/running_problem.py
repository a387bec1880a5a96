"""A problem that has been built and can be asked: for inputs, for answers, and for what its reference consists of.

The judge knows problems by this interface only. Behind it the reference runs in a process of its own
(`judge/problems/process.py`), or in this process (`toolkits/local.py`: there, and in programs that judge nobody).
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .gradients import Gradients
from .tree import TensorSpec

#: Numbers of the arenas between the judge and a problem's process: for what a call is made with, and what it returned.
INBOX, OUTBOX = 0, 1


@dataclass(frozen=True, slots=True)
class Counted:
    """What a call of a reference consists of."""

    #: Operations of matrix products, convolutions and attention; a multiply-add counts as two; 0 if none is known.
    flops: int = 0
    #: Number of operations that use the device, at least one: about as many kernels.
    kernels: int = 1
    #: True if the call could be counted.
    is_known: bool = False
    #: True if some of them may compute in TF32 by torch's settings, on float32 and a GPU.
    may_use_tf32: bool = False
    #: Device memory in bytes that the call took at its peak, its output included; None where it is not counted.
    peak: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reference returned, in memory that nobody else writes to."""

    structure: Any
    values: list[torch.Tensor]
    #: True if the reference wrote to its inputs, whatever values it wrote.
    mutates: bool
    #: True if its output shares memory with its inputs, so that it changes when they do.
    aliased: bool
    #: Device memory in bytes that the call took at its peak, its output included; None if it was not measured.
    peak: int | None = None


@dataclass(frozen=True, slots=True)
class Draw:
    """An input set to draw: the number of the trial, or of the fixed case, and the seed."""

    number: int
    seed: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a reference on the inputs that lie in `region`, as `structure` and `specs` say."""

    number: int
    structure: Any
    specs: Sequence[TensorSpec]
    region: torch.Tensor
    seed: int
    #: Whether to measure the memory that it takes.
    measured: bool = False


@dataclass(frozen=True, slots=True)
class PreciseRun:
    """A run of a reference in float64."""

    structure: Any
    tensors: Sequence[torch.Tensor]
    seed: int
    #: To how many mantissa bits the parameters are rounded, if they are. The caller has rounded the inputs.
    bits: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Some elements of one of a problem's tensors: its name, the first element, and their number."""

    name: str
    start: int
    count: int


class Answering(ABC):
    """What draws inputs and answers them. Structures are those of `tree.flatten`."""

    @abstractmethod
    def drawn(self, number: int, seed: int) -> contextlib.AbstractContextManager[tuple[Any, list[torch.Tensor]]]:
        """Draw the arguments of one call, or those of a fixed case, as a structure and tensors.

        The tensors may be used in the body only, which asks the problem nothing. Raises ReferenceFailure.
        """

    @abstractmethod
    def answer(self, call: Call) -> Answer:
        """Call the reference on the inputs that lie in the call's region, where it may change them.

        Raises ReferenceFailure.
        """

    @abstractmethod
    def precise(self, runs: Sequence[PreciseRun]) -> list[tuple[Any, list[torch.Tensor]] | None]:
        """Return structure and tensors of the answer of each run in float64; None where the reference has no such form.

        Raises whatever the reference raises, and OutOfMemoryError.
        """


class RunningProblem(Answering):
    """One built problem, shared by all its candidates. Structures are those of `tree.flatten`."""

    #: Name that the candidate must define.
    symbol: str
    #: Whether the symbol is a class to instantiate; then with which arguments, under which seed, cast to which precision,
    #: and put into which mode.
    instantiate: bool
    init_args: Any
    init_kwargs: Any
    init_seed: int
    precision: int
    training: bool | None
    #: Which gradients a call returns beside its output; None if it returns the output only.
    gradients: Gradients | None
    #: Names of the buffers that a call returns beside its output. Known once inputs have been drawn.
    buffers: Sequence[str]
    #: Names and values (JSON) of all workloads.
    workloads: Sequence[tuple[str, str]]
    #: Number of fixed cases; None if inputs are drawn at random.
    cases: int | None
    #: Names of constant parameters and buffers that hold secret values, and the values by name. The values are kept as
    #: long as the process lives; asking for them may ask the process.
    constant_names: Sequence[str]
    constants: Mapping[str, torch.Tensor]
    #: Host memory in bytes that building it took, and drawing inputs for the first time; None if that is unknown.
    construction_bytes: int | None = None
    drawing_bytes: int | None = None
    #: Bytes of memory that is shared with its process; and when it was asked last (monotonic, seconds).
    arena_bytes: int = 0
    last_asked: float = 0.0
    #: Size in bytes of all parameters and buffers, and of one input set as far as it is known beforehand.
    parameter_bytes: int
    input_bytes: int | None

    @abstractmethod
    def draw_sets(
        self,
        numbers: Sequence[int],
        seeds: Sequence[int],
        specs: Sequence[TensorSpec],
        into: Sequence[torch.Tensor],
    ) -> None:
        """Draw several input sets of these shapes, each `into` a region of zeros.

        Raises ReferenceFailure, also if a set has other shapes.
        """

    @contextlib.contextmanager
    def drawn_together(self, draws: Sequence[Draw]) -> Iterator[list[tuple[Any, list[torch.Tensor]]]]:
        """Draw several input sets, as `drawn` does one. Raises ReferenceFailure if any of them cannot be drawn."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(self.drawn(each.number, each.seed)) for each in draws]

    def answer_together(self, calls: Sequence[Call]) -> list[Answer | BaseException]:
        """Make several calls. Return for each what `answer` would return or raise.

        Raises ReferenceFailure if the process ends.
        """
        found: list[Answer | BaseException] = []
        for each in calls:
            try:
                found.append(self.answer(each))
            except Exception as error:
                found.append(error)
        return found

    def precise_together(
        self, runs: Sequence[PreciseRun]
    ) -> list[tuple[Any, list[torch.Tensor]] | BaseException | None]:
        """Do several runs. Return for each what `precise` would return or raise.

        Raises ReferenceFailure if the process ends.
        """
        found: list[tuple[Any, list[torch.Tensor]] | BaseException | None] = []
        for each in runs:
            try:
                found += self.precise([each])
            except Exception as error:
                found.append(error)
        return found

    @abstractmethod
    def count(self, structure: Any, specs: Sequence[TensorSpec], region: torch.Tensor, seed: int) -> Counted:
        """Return what a call consists of, or almost nothing if it cannot be counted. Raises OutOfMemoryError."""

    @abstractmethod
    def parameters(self) -> Mapping[str, tuple[TensorSpec, int]]:
        """Return all parameters and buffers by name, with the checksum of each (`tree.checksum`)."""

    @abstractmethod
    def values(self, parts: Sequence[Part]) -> contextlib.AbstractContextManager[list[torch.Tensor]]:
        """Give the body parts of parameters and buffers, flat, as raw numbers (`small_floats.raw`).

        They may be used in the body only, which asks the problem nothing.
        """

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """Device memory in bytes that it keeps between calls, with its parameters; 0 where it is not counted."""

    @property
    def is_alive(self) -> bool:
        """True if it can be asked without making a process for it first."""
        return True

    @property
    def is_asked(self) -> bool:
        """True while somebody waits for its answer."""
        return False

    @property
    def deaths(self) -> int:
        """How often its reference has ended its process."""
        return 0

    def pardon(self, deaths: int) -> bool:
        """Do not count deaths after the first `deaths`: the judge had asked for what no reference need bear.

        Return whether there were any.
        """
        return False

    @property
    def is_given_up(self) -> bool:
        """True if its reference has ended its process so often that none is made any more."""
        return False

    def rest(self) -> Coroutine[Any, Any, object]:
        """Have no process any more, which holds memory, and return what ends it.

        It is made again when the problem is asked for the next time.
        """
        return _nothing()

    def taken(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Have it to oneself for a body in which nobody else could go on; make its process if there is none now.

        Raises ReferenceFailure, RunnerStartError.
        """
        return contextlib.nullcontext()

    def put_away(self) -> None:
        """Free the memory that is shared with its process, until it is needed again."""

    def limit(self, nbytes: int) -> None:
        """Let its process have so many bytes of device memory."""


async def _nothing() -> None:
    """There is no process to end."""

"""The interface of a toolkit. Its code runs in the judge and is trusted; it never sees the candidate."""

from __future__ import annotations

import importlib.util
import io
import itertools
import linecache
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

from ..shared.out_of_memory import asked_bytes, is_lack_of_memory, tells_of_it
from ..shared.spec import EvalSpec
from ..shared.tracebacks import ErrorDescription, describe_error

#: Name under which tracebacks show a reference's source.
REFERENCE_FILE = "reference.py"

_counter = itertools.count()


class ReferenceFailure(Exception):  # noqa: N818  (a failure of the problem, not of this program)
    """The reference, or the cases, could not be used. `stage` says where, and `error` why."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(f"{stage}: {type(error).__name__}: {error}")
        self.stage = stage
        self.error = describe_error(error, REFERENCE_FILE)
        #: Whether memory ran out, and how much more was asked for, in bytes; 0 where nobody says.
        self.lacked_memory: bool = (
            error.lacked_memory if isinstance(error, ReferenceFailure) else is_lack_of_memory(error)
        )
        self.asked_bytes = asked_bytes(str(error)) if self.lacked_memory else 0

    @classmethod
    def from_runner(cls, stage: str, described: ErrorDescription) -> ReferenceFailure:
        """Make one of what `describe_error` has said in the runner of a reference."""
        failure = cls(stage, RuntimeError(described.message))
        failure.args = (f"{stage}: {described.type}: {described.message}",)
        failure.error = described
        # A ReferenceFailure of the runner names in its message what caused it.
        if tells_of_it(f"{described.type}: {described.message}"):
            failure.lacked_memory, failure.asked_bytes = True, asked_bytes(described.message)
        return failure


class Problem(ABC):
    """One built problem, shared by all its candidates. Every method may raise whatever the reference raises."""

    #: Name that the candidate must define.
    symbol: str
    #: Whether the symbol is a class to be instantiated, with what, and under which seed.
    instantiate: bool
    init_args: Sequence[Any] = ()
    init_kwargs: dict[str, Any]
    init_seed: int = 0
    #: Number of fixed cases, or None when inputs are drawn at random.
    cases: int | None = None
    #: Called on the inputs of a call to time the reference; None when there is none to compare with. The judge only
    #: looks whether it is there: it is called in a runner of its own, after `make_ready`.
    timed: Callable[..., Any] | None = None

    def make_ready(self, seed: int) -> None:  # noqa: B027
        """Do what must be done before `timed` is called for the first time, and in no process that does not time it."""

    @abstractmethod
    def inputs(self, trial: int, seed: int) -> tuple[Any, ...]:
        """Return positional arguments for one call, tensors on the device, random ones drawn under `seed`."""

    @abstractmethod
    def expected(self, trial: int, arguments: Sequence[Any], seed: int) -> Any:
        """Return what a right candidate returns for `arguments`, which may be changed where the reference does."""

    def precise(self, arguments: Sequence[Any], seed: int) -> Any:
        """Return the expected value computed in float64, or None where that is impossible."""
        return None

    def precise_at(self, arguments: Sequence[Any], seed: int, bits: int) -> Any:
        """The same with parameters rounded to `bits` mantissa bits; the arguments come rounded already."""
        return None

    def input_bytes(self) -> int | None:
        """Return how much memory one input set takes, without taking it; None where that cannot be told."""
        return None

    def parameter_bytes(self) -> int:
        """Return the size of all parameters and buffers that the reference reads: for the roofline."""
        return 0

    def state(self) -> dict[str, torch.Tensor]:
        """Return the constant parameters and buffers that `build` replaced by secret values, by name.

        The candidate's tensors of the same names get these values before it is called, so that it cannot leave them
        out.
        """
        return {}

    def parameters(self) -> dict[str, torch.Tensor]:
        """Return all parameters and buffers by name: what a candidate's of the same names should be."""
        return {}


class Toolkit(ABC):
    """Builds problems. Subclass it and register an instance."""

    #: Name in requests.
    name: str

    @abstractmethod
    def build(self, spec: EvalSpec, device: torch.device, seed: int) -> Problem:
        """Build the problem of `spec`; `seed` is secret and fresh. Raises ReferenceFailure."""


def run_source(source: str) -> ModuleType:
    """Execute a trusted source as a module of its own, with its lines known to tracebacks. Raises what it raises."""
    name = f"kerneldyno_reference_{next(_counter)}"
    filename = f"<{name}>/{REFERENCE_FILE}"
    # Lines as Python counts them: `splitlines` would also end one at a form feed.
    lines = io.StringIO(source, newline=None).readlines()
    linecache.cache[filename] = (len(source), None, lines, filename)
    module = importlib.util.module_from_spec(ModuleSpec(name, None))
    module.__file__ = filename
    sys.modules[name] = module  # torch.compile and dataclasses look a class's module up
    try:
        exec(compile(source, filename, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def unload_with(problem: Problem, module: ModuleType) -> None:
    """Forget a module of `run_source` when `problem` is no longer used: it may hold tensors of the device."""
    weakref.finalize(problem, _unload, module.__name__, module.__file__ or "")


def _unload(name: str, filename: str) -> None:
    sys.modules.pop(name, None)
    linecache.cache.pop(filename, None)


def to_device(value: Any, device: torch.device) -> Any:
    """Return `value` with every tensor in it moved to `device`."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, list | tuple):
        return type(value)(to_device(part, device) for part in value)
    if isinstance(value, dict):
        return {key: to_device(part, device) for key, part in value.items()}
    return value

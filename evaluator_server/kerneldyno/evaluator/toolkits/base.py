"""The interface of a toolkit. Its code runs where references run, and never sees the candidate."""

from __future__ import annotations

import importlib.util
import io
import itertools
import linecache
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

from ..shared import tree
from ..shared.gradients import Gradients
from ..shared.reference_failure import REFERENCE_FILE, ReferenceFailure
from ..shared.spec import ProblemSpec, TimedForm

__all__ = [
    "REFERENCE_FILE",
    "Problem",
    "ReferenceFailure",
    "Sketch",
    "Toolkit",
    "run_source",
    "to_device",
    "unload_with",
]

_counter = itertools.count()


class Problem(ABC):
    """One built problem, shared by all its candidates. Every method may raise what the reference raises."""

    #: Name that the candidate must define.
    symbol: str
    #: Whether the symbol is a class to instantiate; then with which arguments, and under which seed.
    instantiate: bool
    init_args: Sequence[Any] = ()
    init_kwargs: dict[str, Any]
    init_seed: int = 0
    #: The precision to which the candidate's instance is cast (`shared/casting.py`); 0 if it is not.
    precision: int = 0
    #: Which gradients a call returns beside its output; None if it returns the output only.
    gradients: Gradients | None = None
    #: Whether the candidate's module is put into training mode or (False) into eval mode; None if it stays as it is.
    training: bool | None = None
    #: Names of the tensors in the module that calls change, and that each call must find as they were first. A call
    #: returns them beside its output. In training mode they are all buffers that calls change; otherwise only those on
    #: which answers depend. Known once inputs have been drawn.
    buffers: Sequence[str] = ()
    #: Names and values (JSON) of all workloads of the problem, of which this one has number `ProblemSpec.workload`. A
    #: problem with several fixed cases may name each of them here; then each is timed in a process that has it as number
    #: 0.
    workloads: Sequence[tuple[str, str]] = ()
    #: Number of fixed cases; None if inputs are drawn at random. Number 0 is timed, and all are checked.
    cases: int | None = None
    #: Called with the inputs of a call to time the reference; None if there is none to compare with. The judge only
    #: checks whether it is None. A runner of its own calls it, after `make_ready`.
    timed: Callable[..., Any] | None = None

    def know(self, buffers: Sequence[str]) -> None:  # noqa: B027
        """Take over the names `buffers` from another process, which has learnt them from calls of the same problem."""

    def make_ready(self, form: TimedForm) -> None:
        """Prepare `timed` in this form. Only the process that times the reference calls this, before the first call."""
        if form.baseline_code:
            raise ValueError("the toolkit knows no library_baselines; leave them out")

    @abstractmethod
    def inputs(self, trial: int, seed: int) -> tuple[Any, ...]:
        """Return positional arguments for one call.

        Tensors are on the device, and random ones are drawn under `seed`.
        """

    @abstractmethod
    def expected(self, trial: int, arguments: Sequence[Any], seed: int) -> Any:
        """Return what a correct candidate returns for `arguments`. It may modify them if the reference does."""

    def precise(self, arguments: Sequence[Any], seed: int) -> Any:
        """Return the expected value computed in float64, or None if that is impossible."""
        return None

    def precise_at(self, arguments: Sequence[Any], seed: int, bits: int) -> Any:
        """As `precise`, with parameters rounded to `bits` mantissa bits.

        The caller has already rounded the arguments.
        """
        return None

    def input_bytes(self) -> int | None:
        """Return the size of one input set in bytes, without allocating it, or None if it is unknown."""
        return None

    def parameter_bytes(self) -> int:
        """Return the size in bytes of all parameters and buffers that the reference reads, for the roofline."""
        return 0

    def state(self) -> dict[str, torch.Tensor]:
        """Return the constant parameters and buffers that `build` replaced by secret values, by name.

        The candidate's tensors of the same names get these values before it is called, so it cannot leave them out.
        """
        return {}

    def parameters(self) -> dict[str, torch.Tensor]:
        """Return all parameters and buffers by name: the right values for a candidate's tensors of the same names."""
        return {}


@dataclass(frozen=True, slots=True)
class Sketch:
    """What a constructor and a call get, with tensors that have no memory (the device "meta")."""

    init_args: Sequence[Any]
    init_kwargs: dict[str, Any]
    inputs: Sequence[Any]
    #: See `Problem.precision` and `Problem.training`.
    precision: int = 0
    training: bool | None = None


class Toolkit(ABC):
    """Builds problems. Subclass it and register an instance."""

    #: Name in requests.
    name: str

    @abstractmethod
    def build(self, spec: ProblemSpec, device: torch.device, seed: int) -> Problem:
        """Build the problem of `spec`. `seed` is secret and new. Raises ReferenceFailure."""

    def sketch(self, spec: ProblemSpec) -> Sketch | None:
        """Return what candidates of `spec` are constructed and called with, without a device; None if unknown.

        May raise whatever the reference raises.
        """
        return None


def run_source(source: str) -> ModuleType:
    """Execute a trusted source as a separate module, with its lines available to tracebacks. Raises what it raises."""
    name = f"kerneldyno_reference_{next(_counter)}"
    filename = f"<{name}>/{REFERENCE_FILE}"
    # These lines match Python's line numbers: `splitlines` would also end a line at a form feed.
    lines = io.StringIO(source, newline=None).readlines()
    linecache.cache[filename] = (len(source), None, lines, filename)
    module = importlib.util.module_from_spec(ModuleSpec(name, None))
    module.__file__ = filename
    sys.modules[name] = module  # torch.compile and dataclasses look up the module of a class
    try:
        exec(compile(source, filename, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def unload_with(problem: Problem, module: ModuleType) -> None:
    """Delete a module of `run_source` when `problem` is no longer used, since it may hold tensors of the device."""
    weakref.finalize(problem, _unload, module.__name__, module.__file__ or "")


def _unload(name: str, filename: str) -> None:
    sys.modules.pop(name, None)
    linecache.cache.pop(filename, None)


def to_device(value: Any, device: torch.device) -> Any:
    """Return `value` with every tensor in it moved to `device`.

    Raises UnsupportedValueError for a tensor that cannot pass to a candidate.
    """
    return tree.mapped(value, lambda tensor: tree.require_plain(tensor).to(device))

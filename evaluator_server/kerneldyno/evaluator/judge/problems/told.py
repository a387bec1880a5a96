"""Read what a problem's process says with suspicion: a reference may have taken it over.

Whatever it says concerns its own problem only. So this makes sure that reading and using it harms nobody: types are
those of the protocol, structures are those of `tree.flatten`, and sizes are bounded before memory is allocated.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...shared import small_floats, tree, wire
from ...shared.enums import Precision
from ...shared.gradients import Gradients
from ...shared.reference_failure import ReferenceFailure
from ...shared.running_problem import Counted
from ...shared.tracebacks import ErrorDescription
from ...shared.tree import TensorSpec

#: Stages that a process may name.
_STAGES = ("build", "inputs", "reference", "cases")
#: Most tensors in one answer, and most parameters that are listed.
_MOST_TENSORS = 10_000
#: Most buffers, gradients and workloads, and longest name, in characters.
_MOST_NAMES = 10_000
_NAME_CHARS = 1000
#: More operations and kernels than there can be, and more bytes and elements. Sums of several of these fit into 64 bits.
_MOST = 1 << 60
_MOST_BYTES = 1 << 48
#: Most base classes of an exception that are read.
_MOST_BASES = 100
#: Longest parts of an error, in characters.
_TYPE_CHARS, _MESSAGE_CHARS, _TRACEBACK_CHARS = 200, 4096, 8192


class MalformedError(ValueError):
    """A process said what the program of a problem never says."""


@contextlib.contextmanager
def suspicion() -> Iterator[None]:
    """Raise as a failure of the reference what its process says and the program of a problem never does."""
    try:
        yield
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        failure = ReferenceFailure("reference", RuntimeError(f"the reference took its process over: {error}"))
        raise failure from error


def heed(answer: wire.Frame, stage: str) -> Any:
    """Return what a process says in its answer, or raise the failure of which that tells; of `stage` if it names none."""
    if "ok" in answer:
        return answer["ok"]
    said = answer.get("error")
    where = said.get("stage") if isinstance(said, dict) else None
    failure = ReferenceFailure.from_runner(where if where in _STAGES else stage, read_error(said))
    if answer.get("lacked_memory") is True:
        failure.lacked_memory = True
    raise failure


def outcome(answer: wire.Frame) -> Any:
    """Return what a process says of one call, or the failure with which that ended."""
    try:
        return heed(answer, "reference")
    except ReferenceFailure as failure:
        return failure


@dataclass(frozen=True, slots=True)
class About:
    """What a problem is, as its process says."""

    symbol: str
    instantiate: bool
    init_args: Any
    init_kwargs: Any
    init_seed: int
    precision: int
    training: bool | None
    workloads: list[tuple[str, str]]
    cases: int | None
    #: Names of constants that hold secret values.
    constants: list[str]
    parameter_bytes: int
    input_bytes: int | None
    construction_bytes: int | None


def read_about(said: Any) -> About:
    """Return the description of a problem that was built. Raises MalformedError."""
    said = _dict(said)
    return About(
        symbol=_symbol(said.get("symbol")),
        instantiate=_is(said.get("instantiate"), bool),
        init_args=_is(read_structure(said.get("init_args"), 0), list),
        init_kwargs=_keywords(said.get("init_kwargs")),
        init_seed=_count(said.get("init_seed")),
        precision=_precision(said.get("precision")),
        training=_or_none(said.get("training"), bool),
        workloads=[(_text(name), _text(value, 1 << 16)) for name, value in _pairs(said.get("workloads"))],
        cases=None if said.get("cases") is None else _count(said.get("cases"), 1000),
        constants=[_text(name) for name in _list(said.get("constants"))],
        parameter_bytes=_count(said.get("parameter_bytes"), _MOST_BYTES),
        input_bytes=read_bytes(said.get("input_bytes")),
        construction_bytes=read_bytes(said.get("construction_bytes")),
    )


def read_late(said: Any) -> tuple[Gradients | None, list[str]]:
    """Return which gradients and buffers belong to an answer. Raises MalformedError."""
    said = _dict(said)
    buffers = [_text(name) for name in _list(said.get("buffers"))]
    if said.get("gradients") is None:
        return None, buffers
    match said["gradients"]:
        case [[*wanted], [*names], outputs]:
            return Gradients([_is(each, bool) for each in wanted], list(map(_text, names)), _count(outputs)), buffers
    raise MalformedError("gradients")


def read_specs(said: Any, most_bytes: int) -> list[TensorSpec]:
    """Return descriptions of tensors that take at most so many bytes. Raises MalformedError."""
    specs = [_spec(each) for each in _list(said, _MOST_TENSORS)]
    if tree.layout(specs)[1] > most_bytes:
        raise MalformedError(f"tensors of {tree.layout(specs)[1]} bytes, where at most {most_bytes} fit")
    return specs


def read_parts(specs: Sequence[TensorSpec], sizes: Sequence[int]) -> None:
    """Check descriptions of parts of parameters: flat, each of its size in bytes. Raises MalformedError."""
    if [(spec.nbytes, len(spec.shape)) for spec in specs] != [(size, 1) for size in sizes]:
        raise MalformedError("other parts of parameters than were asked for")


def read_error(said: Any) -> ErrorDescription:
    """Return the exception that a process describes, shortened; what is malformed in it is left empty."""
    said = said if isinstance(said, dict) else {}
    kind, message, trace = (said.get(name) for name in ("type", "message", "traceback"))
    bases = said.get("bases")
    return ErrorDescription(
        _shortened(kind, _TYPE_CHARS),
        tuple(_shortened(base, _TYPE_CHARS) for base in bases[:_MOST_BASES]) if isinstance(bases, list) else (),
        _shortened(message, _MESSAGE_CHARS),
        _shortened(trace, _TRACEBACK_CHARS),
    )


def read_parameters(said: Any) -> Mapping[str, tuple[TensorSpec, int]]:
    """Return descriptions and checksums of parameters by name. Raises MalformedError."""
    found = {}
    for each in _list(said, _MOST_TENSORS):
        match each:
            case [str(name), spec, int(checksum)] if type(checksum) is int:
                found[_text(name)] = (_spec(spec), checksum)
            case _:
                raise MalformedError("parameters")
    return found


def read_counted(said: Any) -> Counted:
    """Return what a call consists of. Raises MalformedError."""
    said = _dict(said)
    return Counted(
        flops=_count(said.get("flops")),
        kernels=max(1, _count(said.get("kernels"))),
        is_known=_is(said.get("is_known"), bool),
        may_use_tf32=_is(said.get("may_use_tf32"), bool),
        peak=read_bytes(said.get("peak")),
    )


def read_bytes(said: Any) -> int | None:
    """Return a number of bytes, or None where none was measured. Raises MalformedError."""
    return None if said is None else _count(said, _MOST_BYTES)


def read_flag(said: Any) -> bool:
    """Return a truth value. Raises MalformedError."""
    flag: bool = _is(said, bool)
    return flag


def read_structure(said: Any, tensors: int) -> Any:
    """Return a structure of `tree.flatten` with so many tensors, each of which it names once. Raises MalformedError."""
    try:
        named = tree.numbers(said)
    except tree.UnsupportedValueError as error:
        raise MalformedError(str(error)) from None
    if sorted(named) != list(range(tensors)):
        raise MalformedError(f"a structure that names {len(named)} tensors, where there are {tensors}")
    return said


def _spec(said: Any) -> TensorSpec:
    try:
        spec = TensorSpec.from_json(said)
        if not _has_values(spec.torch_dtype):
            raise MalformedError(f"tensors of dtype {spec.dtype}")
    except tree.UnsupportedValueError as error:
        raise MalformedError(str(error)) from None
    if spec.nbytes and not tree.is_dense(spec.shape, spec.stride):
        raise MalformedError("a tensor with gaps")
    if math.prod(max(1, size) for size in spec.shape) > _MOST_BYTES:  # torch computes such products of empty ones, too
        raise MalformedError("a shape of more elements than there can be")
    return spec


@functools.cache
def _has_values(dtype: torch.dtype) -> bool:
    """Return True if bytes can be read as numbers of `dtype`: not those of quantised tensors, nor bare bits."""
    try:
        small_floats.cloned(torch.zeros(dtype.itemsize, dtype=torch.uint8).view(dtype))
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _shortened(said: Any, most: int) -> str:
    return said[:most] if isinstance(said, str) else ""


def _dict(said: Any) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise MalformedError("no object")
    return said


def _list(said: Any, most: int = _MOST_NAMES) -> Sequence[Any]:
    if not isinstance(said, list) or len(said) > most:
        raise MalformedError(f"no list of at most {most} parts")
    return said


def _symbol(said: Any) -> str:
    if not _text(said).isidentifier():
        raise MalformedError("no name of a symbol")
    return str(said)


def _keywords(said: Any) -> Any:
    match read_structure(said, 0):
        case {"dict": [*pairs]} if all(isinstance(key, str) for key, _ in pairs):
            return said
    raise MalformedError("no arguments by name")


def _precision(said: Any) -> int:
    return Precision(_count(said))  # raises a ValueError for a number that is none


def _pairs(said: Any) -> list[tuple[Any, Any]]:
    found = []
    for each in _list(said):
        if not isinstance(each, list) or len(each) != 2:
            raise MalformedError("no pair")
        found.append((each[0], each[1]))
    return found


def _text(said: Any, most: int = _NAME_CHARS) -> str:
    if not isinstance(said, str) or len(said) > most:
        raise MalformedError(f"no text of at most {most} characters")
    return said


def _count(said: Any, most: int = _MOST) -> int:
    if type(said) is not int or not 0 <= said <= most:
        raise MalformedError("no number")
    return said


def _is(said: Any, kind: type[Any]) -> Any:
    if type(said) is not kind:
        raise MalformedError(f"no {kind.__name__}")
    return said


def _or_none(said: Any, kind: type[Any]) -> Any:
    return None if said is None else _is(said, kind)

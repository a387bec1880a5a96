"""Read a runner's answers with suspicion. An answer that the harness cannot have sent means that it was taken over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...shared import tree
from ...shared.tracebacks import ErrorDescription
from .handle import RunnerGarbled

#: A time of zero counts as this many seconds: no clock ticks faster, and ratios of times must exist.
SHORTEST = 1e-9
#: Largest device time that a runner may report for one call, in seconds: a day.
_LONGEST = 86400.0
#: Most constant tensors of a candidate that are read, and most rows of a profile.
_MOST_TENSORS = 10_000
_MOST_ROWS = 10_000
#: Most broken guard zones that are read.
_MOST_ZONES = 4
#: Longest name of a kernel that is read, in characters.
_MOST_NAME = 400
#: Most kernels whose code is read, and longest PTX and SASS of one, in characters.
_MOST_KERNELS = 50
_MOST_LISTING = 64 << 10


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One kernel of a profile, as the runner says."""

    name: str
    launches: int
    device_seconds: float


@dataclass(frozen=True, slots=True)
class Average:
    """A row of torch's table of averages, as the runner says: an operator with what it launched, or a kernel."""

    name: str
    device_seconds: float
    host_seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile, as the runner says.

    It has all kernels, the names of the candidate's own kernels, averages, and the reason if profiling failed.
    """

    rows: list[ProfileRow]
    own: list[str]
    averages: list[Average]
    failed: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What else may have done a call's work, as the runner says: operators of torch, functions of libraries."""

    operators: list[str]
    libraries: list[str]


@dataclass(frozen=True, slots=True)
class BrokenZone:
    """A guard zone that was written to, before or behind a tensor, as the runner says. Sizes are in bytes."""

    behind: bool
    nbytes: int
    #: How many bytes lie between the tensor and the nearest byte that was written.
    distance: int
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        where = "behind the end" if self.behind else "before the beginning"
        dtype = getattr(torch, self.dtype, None)
        elements = self.distance // dtype.itemsize if isinstance(dtype, torch.dtype) else self.distance
        return (
            f"{self.nbytes} bytes {where} of a {self.dtype} tensor of shape {self.shape}, the nearest {self.distance}"
            f" bytes ({elements} elements) away"
        )


@dataclass(frozen=True, slots=True)
class Code:
    """What a compiler made of one kernel, as the runner says. Sizes are in bytes."""

    name: str
    origin: str
    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_memory_bytes: int
    warps: int
    ptx: str
    sass: str
    truncated: bool


@dataclass(frozen=True, slots=True)
class Called:
    """What a runner says about one call."""

    structure: Any
    specs: list[tree.TensorSpec]
    #: Launches of the candidate's own kernels, or None if they cannot be counted.
    launches: int | None
    #: How long it took. This decides how many calls are planned, and nothing else.
    seconds: float
    #: Guard zones that a guarded call wrote to.
    broken: Sequence[BrokenZone] = ()


def read_error(answer: Any) -> ErrorDescription:
    """Return the exception that a runner describes. Missing or malformed parts are left empty."""
    said = answer if isinstance(answer, dict) else {}
    bases = said.get("bases")
    names = tuple(str(base) for base in bases) if isinstance(bases, list) else ()
    return ErrorDescription(
        str(said.get("type", "")), names, str(said.get("message", "")), str(said.get("traceback", ""))
    )


def read_call(answer: Any) -> Called:
    """Return the answer to a call. Raises RunnerGarbled."""
    try:
        count = answer["launches"]
        if count is not None and (type(count) is not int or not 0 <= count < 1 << 40):
            raise TypeError("launches")
        specs = answer["specs"]
        if not isinstance(specs, list):
            raise TypeError("specs")
        (seconds,) = read_burst([answer["seconds"]], 1)
        broken = [_zone(zone) for zone in answer["broken"][:_MOST_ZONES]]
        return Called(answer["structure"], [tree.TensorSpec.from_json(spec) for spec in specs], count, seconds, broken)
    except (KeyError, TypeError, tree.UnsupportedValueError) as error:
        raise RunnerGarbled(f"malformed answer: {error}") from None


def _zone(said: Any) -> BrokenZone:
    nbytes, distance, dtype, shape = (said[key] for key in ("nbytes", "distance", "dtype", "shape"))
    if not all(type(number) is int and 0 <= number < 1 << 48 for number in (nbytes, distance, *shape[:64])):
        raise TypeError("broken")
    return BrokenZone(said["behind"] is True, nbytes, distance, str(dtype)[:_MOST_NAME], tuple(shape[:64]))


def read_burst(answer: Any, length: int) -> list[float]:
    """Return the device seconds of each call of a burst. Raises RunnerGarbled."""
    return [max(seconds, SHORTEST) for seconds in _seconds(answer, length)]


def _seconds(answer: Any, length: int) -> list[float]:
    # Reject negative and infinite numbers, NaN, and integers that are too large for a float.
    if (
        isinstance(answer, list)
        and len(answer) == length
        and all(type(value) in (int, float) and 0 <= value < _LONGEST for value in answer)
    ):
        return [float(value) for value in answer]
    raise RunnerGarbled("malformed answer to a burst")


def read_listing(answer: Any) -> dict[str, tree.TensorSpec]:
    """Return the constant tensors that a candidate claims to have, by name. Raises RunnerGarbled."""
    try:
        listing = answer["state"]
        if not isinstance(listing, list) or len(listing) > _MOST_TENSORS:
            raise TypeError("state")
        found = {}
        for name, spec in listing:
            if not isinstance(name, str):
                raise TypeError("state")
            found[name] = tree.TensorSpec.from_json(spec)
        return found
    except (KeyError, TypeError, ValueError, tree.UnsupportedValueError) as error:
        raise RunnerGarbled(f"malformed answer: {error}") from None


def read_parameters(answer: Any) -> dict[str, tuple[tree.TensorSpec, int]]:
    """Return the parameters and buffers that a candidate claims to have, by name.

    Each has its description and its checksum. Raises RunnerGarbled.
    """
    try:
        listing = answer["parameters"]
        if not isinstance(listing, list) or len(listing) > _MOST_TENSORS:
            raise TypeError("parameters")
        found = {}
        for name, spec, checksum in listing:
            if not isinstance(name, str) or type(checksum) is not int:
                raise TypeError("parameters")
            found[name] = (tree.TensorSpec.from_json(spec), checksum)
        return found
    except (KeyError, TypeError, ValueError, tree.UnsupportedValueError) as error:
        raise RunnerGarbled(f"malformed answer: {error}") from None


def read_profile(answer: Any) -> Profile:
    """Return a profile. Raises RunnerGarbled."""
    try:
        rows = [_row(row) for row in answer["kernels"][:_MOST_ROWS]]
        averages = [_average(row) for row in answer["averages"][:_MOST_ROWS]]
        return Profile(rows, _names(answer["own"]), averages, str(answer["failed"])[:500])
    except (KeyError, TypeError, ValueError) as error:
        raise RunnerGarbled(f"malformed answer: {error}") from None


def read_survey(answer: Any) -> Survey:
    """Return a survey. Raises RunnerGarbled."""
    try:
        return Survey(_names(answer["operators"]), _names(answer["libraries"]))
    except (KeyError, TypeError, ValueError) as error:
        raise RunnerGarbled(f"malformed answer: {error}") from None


def read_code(answer: Any) -> tuple[list[Code], str]:
    """Return what compilers made of kernels, and what could not be found out. Raises RunnerGarbled."""
    try:
        return [_code(each) for each in answer["kernels"][:_MOST_KERNELS]], str(answer["failed"])[:500]
    except (KeyError, TypeError, ValueError) as error:
        raise RunnerGarbled(f"malformed answer: {error}") from None


def _code(said: Any) -> Code:
    counts = {name: said[name] for name in ("registers", "spill_bytes", "stack_bytes", "shared_memory_bytes", "warps")}
    texts = {name: said[name] for name in ("name", "origin", "ptx", "sass")}
    cut = said["truncated"]
    numbers = all(type(count) is int and 0 <= count < 1 << 31 for count in counts.values())
    if not numbers or not all(isinstance(text, str) for text in texts.values()) or type(cut) is not bool:
        raise TypeError("kernels")
    cut = cut or max(len(texts["ptx"]), len(texts["sass"])) > _MOST_LISTING
    texts = {name: text[: _MOST_LISTING if name in ("ptx", "sass") else _MOST_NAME] for name, text in texts.items()}
    return Code(**counts, **texts, truncated=cut)


def _names(said: Any) -> list[str]:
    if not isinstance(said, list):
        raise TypeError("names")
    return [str(name)[:_MOST_NAME] for name in said[:_MOST_ROWS]]


def _average(row: Any) -> Average:
    name, device, host = row
    if not isinstance(name, str):
        raise TypeError("averages")
    return Average(name[:_MOST_NAME], *_seconds([device, host], 2))


def _row(row: Any) -> ProfileRow:
    name, launches, seconds = row
    if not isinstance(name, str) or type(launches) is not int or not 0 < launches < 1 << 31:
        raise TypeError("kernels")
    (checked,) = read_burst([seconds], 1)
    return ProfileRow(name[:_MOST_NAME], launches, checked)

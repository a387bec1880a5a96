"""Compare what a value is made of besides its tensors: its form, and the plain Python values in it, by their types.

Integers, strings, bools and None must be equal, and of the same type: 1 is neither True nor 1.0. Floats and complex
numbers may be off as elements of a tensor may (`Precision`), since they often come from one. A dict is compared by its
keys, a dataclass by its fields, and a namedtuple by its fields and their order; what its class is called does not
matter. A tuple without names is as good as a namedtuple, and the other way round.
"""

from __future__ import annotations

import cmath
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...shared.spec import ToleranceRule
from .evidence import Mismatch
from .rules import bounds

#: If the number of a float64 run is further off than this, relative to it, that run is no twin of the reference.
_MOST_ROUNDING = 0.05
#: The effect of rounded operands is allowed this many times, as for tensors.
_ROUNDINGS = 2.0
#: Longest quotation from a candidate's structure, in characters.
_MOST_QUOTED = 60


@dataclass(frozen=True, slots=True)
class Precision:
    """How far floats in an output may be off: as an element of a tensor of `dtype` may."""

    rule: ToleranceRule
    dtype: torch.dtype
    #: The noise of each float, in the order of `floats`. Those that are missing have none.
    noise: Sequence[float] = ()


def floats(structure: Any) -> Iterator[complex]:
    """Yield the floats and complex numbers in a flattened structure, except for those in keys of dicts."""
    if type(structure) is float:
        yield structure
    elif isinstance(structure, list):
        for part in structure:
            yield from floats(part)
    elif isinstance(structure, dict):
        ((kind, content),) = structure.items()
        if kind == "complex":
            yield complex(*content)
        elif kind == "tuple":
            yield from floats(content)
        elif kind == "dict":
            yield from floats([part for _, part in content])
        elif kind in ("namedtuple", "dataclass"):
            yield from floats([part for _, part in content[1]])


def twin_noise(structure: Any, precise: Any, others: Sequence[Any], rounded: Any, allowed: float) -> list[float]:
    """Return the noise of each float of an answer. The arguments are those of `expect`, with structures for tensors."""
    twins = list(floats(precise))
    noise = []
    for at, (value, twin) in enumerate(itertools.zip_longest(floats(structure), twins)):
        if value is None or twin is None:
            return []  # the float64 run returns something else
        error, size = _distance(value, twin), abs(twin)
        if not error <= _MOST_ROUNDING * size:
            noise.append(0.0)
            continue
        for other in _each_at(at, others, len(twins)):
            moved = _distance(other, twin)
            error = max(error, moved) if moved <= allowed * size else error
        for other in _each_at(at, [rounded], len(twins)):
            error = max(error, _ROUNDINGS * _distance(other, twin))
        noise.append(error)
    return noise


def rerun_noise(structure: Any, again: Any, most: float, times: float) -> list[float]:
    """Return the noise of each float by another run: `times` its difference, if that is at most `most` of its size."""
    values, others = list(floats(structure)), list(floats(again))
    if len(values) != len(others):
        return []
    return [
        times * off if (off := _distance(value, other)) <= most * abs(value) else 0.0
        for value, other in zip(values, others, strict=True)
    ]


def _each_at(at: int, structures: Sequence[Any], count: int) -> Iterator[complex]:
    for structure in structures:
        found = list(floats(structure))
        if len(found) == count:
            yield found[at]


def _distance(one: complex, other: complex) -> float:
    """Return how far two numbers are apart; 0 if that is not finite."""
    off = abs(one - other)
    return off if cmath.isfinite(off) else 0.0


def same(one: Any, other: Any) -> bool:
    """Return True if two structures of the reference are equal. (NaN does not equal itself.)"""
    return json.dumps(one) == json.dumps(other)


def form(structure: Any) -> Any:
    """Return a structure without the numbers in it: two answers of one function have the same form."""
    if isinstance(structure, list):
        return [form(part) for part in structure]
    if isinstance(structure, dict):
        ((kind, content),) = structure.items()
        if kind == "complex":
            return kind
        if kind == "dict":
            return {kind: [[key, form(part)] for key, part in content]}
        if kind in ("namedtuple", "dataclass"):
            return {kind: [content[0], [[name, form(part)] for name, part in content[1]]]}
        return {kind: form(content)} if kind == "tuple" else structure
    return type(structure).__name__ if isinstance(structure, int | float) else structure


def difference(expected: Any, got: Any, precision: Precision, where: str = "output") -> Mismatch | None:
    """Return the first difference between two flattened structures, or None. A runner may have sent anything as `got`."""
    walk = _Walk(precision, itertools.chain(precision.noise, itertools.repeat(0.0)))
    found = _difference(expected, got, walk, where)
    if found is None and walk.renumbered:  # an honest harness numbers the tensors of equal structures equally
        return Mismatch(walk.renumbered, "structure", f"{walk.renumbered} differs in structure")
    return found


@dataclass(slots=True)
class _Walk:
    """One comparison: the noise of the floats that are still to come, and where tensors first had other numbers."""

    precision: Precision
    noise: Iterator[float]
    renumbered: str = ""


def _difference(expected: Any, got: Any, walk: _Walk, where: str) -> Mismatch | None:
    if isinstance(expected, dict):
        ((kind, content),) = expected.items()
        return _of_kind(kind, content, got, walk, where)
    if type(expected) is not type(got):
        return _other_kind(expected, got, where)
    if isinstance(expected, list):
        return _of_parts(expected, got, walk, where)
    if isinstance(expected, float):
        return _number(expected, got, walk, where)
    if expected == got:
        return None
    if type(expected) is int:
        return Mismatch(where, "values", f"{where} is a wrong number")
    return Mismatch(where, "structure", f"{where} is {_name(got)}, expected {_name(expected)}")


def _of_kind(kind: str, content: Any, got: Any, walk: _Walk, where: str) -> Mismatch | None:
    """Compare with what stands for a value that JSON does not have."""
    wanted, found = kind, _content(got, kind)
    if kind == "tuple" and found is None:
        found = _unnamed(_content(got, "namedtuple"))
    elif kind == "namedtuple" and found is None:
        kind, content, found = "tuple", _unnamed(content), _content(got, "tuple")
    if found is None:
        return _other_kind({wanted: content}, got, where)
    match kind:
        case "tensor" if type(found) is int:
            walk.renumbered = walk.renumbered or (where if found != content else "")
            return None
        case "tuple":
            return _of_parts(content, found, walk, where)
        case "dict" if _are_pairs(found):
            return _of_keys(content, found, walk, where)
        case "namedtuple" | "dataclass" if _is_record(found):
            return _of_fields(content[1], found[1], walk, where, in_order=kind == "namedtuple")
        case "complex" if _is_complex(found):
            return _number(complex(*content), complex(*found), walk, where)
        case "dtype" | "device" if found == content:
            return None
    return Mismatch(where, "structure", f"{where} differs in structure")


def _of_parts(expected: Sequence[Any], got: Any, walk: _Walk, where: str) -> Mismatch | None:
    if not isinstance(got, list) or len(expected) != len(got):
        count = len(got) if isinstance(got, list) else 0
        return Mismatch(where, "structure", f"{where} has {count} parts, expected {len(expected)}")
    pairs = enumerate(zip(expected, got, strict=True))
    found = (_difference(left, right, walk, f"{where}[{at}]") for at, (left, right) in pairs)
    return next(filter(None, found), None)


def _of_fields(expected: Any, got: Any, walk: _Walk, where: str, *, in_order: bool) -> Mismatch | None:
    names, given = ([name for name, _ in each] for each in (expected, got))
    if given != names if in_order else sorted(given) != sorted(names):
        said = f"{where} has the fields {', '.join(given)[:_MOST_QUOTED]}, expected {', '.join(names)}"
        return Mismatch(where, "structure", said)
    by_name = dict(got)
    found = (_difference(part, by_name[name], walk, f"{where}.{name}") for name, part in expected)
    return next(filter(None, found), None)


def _of_keys(expected: Any, got: Any, walk: _Walk, where: str) -> Mismatch | None:
    given = {json.dumps(key): part for key, part in got}
    keys = [json.dumps(key) for key, _ in expected]
    if lacking := next((key for key in keys if key not in given), ""):
        return Mismatch(where, "structure", f"{where} has no key {_key(lacking)}")
    if len(got) != len(expected):
        more = next((key for key in given if key not in keys), "")
        return Mismatch(where, "structure", f"{where} has a key that is not expected: {_key(more)}")
    pairs = zip(keys, expected, strict=True)
    found = (_difference(part, given[key], walk, f"{where}[{_key(key)}]") for key, (_, part) in pairs)
    return next(filter(None, found), None)


def _number(expected: complex, got: complex, walk: _Walk, where: str) -> Mismatch | None:
    """Compare a float, or a complex number, by the rule for elements of tensors."""
    noise = next(walk.noise)
    if all(_are_same(*pair) for pair in ((expected.real, got.real), (expected.imag, got.imag))):
        return None
    off = abs(expected - got)
    if cmath.isfinite(expected) and cmath.isfinite(off):
        allowance = bounds(walk.precision.rule, walk.precision.dtype, 0.0, noise)
        if off <= float(allowance.allowed(torch.tensor(abs(expected), dtype=torch.float64))):
            return None
    return Mismatch(where, "values", f"{where} is a wrong number")


def _are_same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)


def _content(got: Any, kind: str) -> Any:
    """Return what a structure from a runner has of a kind; None if it is of another kind."""
    return got.get(kind) if isinstance(got, dict) and len(got) == 1 else None


def _unnamed(content: Any) -> list[Any] | None:
    """Return the parts of a namedtuple as those of a plain tuple; None if it is no description of one."""
    return [part for _, part in content[1]] if _is_record(content) else None


def _is_record(content: Any) -> bool:
    """Return True for the content of a namedtuple or a dataclass, which a runner may have made up."""
    match content:
        case [str(), pairs]:
            return _are_pairs(pairs) and all(isinstance(name, str) for name, _ in pairs)
    return False


def _are_pairs(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)


def _is_complex(content: Any) -> bool:
    return isinstance(content, list) and len(content) == 2 and all(type(part) is float for part in content)


def _other_kind(expected: Any, got: Any, where: str) -> Mismatch:
    return Mismatch(where, "structure", f"{where} is {_name(got)}, expected {_name(expected)}")


def _key(text: str) -> str:
    """Return a key as its JSON text, and a string as Python writes it."""
    key = json.loads(text) if text else ""
    return repr(key)[:_MOST_QUOTED] if isinstance(key, str) else text[:_MOST_QUOTED]


def _name(structure: Any) -> str:
    """Return what a structure is, for people."""
    if isinstance(structure, dict) and len(structure) == 1:
        (kind,) = structure
        return f"a {str(kind)[:_MOST_QUOTED]}"
    if structure is None:
        return "None"
    name = type(structure).__name__
    return f"an {name}" if name == "int" else f"a {name}"

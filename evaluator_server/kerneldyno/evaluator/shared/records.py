"""Namedtuples and dataclasses: values with named fields, as instances of a class that the other process does not have.

A namedtuple passes between processes by its name and fields, and arrives as a namedtuple of an equal class.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import keyword
from collections.abc import Callable
from typing import Any

#: The name of a class whose own name cannot be used.
_NAMELESS = "Record"


def is_namedtuple(value: Any) -> bool:
    """Return True if a tuple has named fields as those of `collections.namedtuple` have."""
    return isinstance(getattr(value, "_fields", None), tuple) and isinstance(value, tuple)


def is_dataclass(value: Any) -> bool:
    """Return True for an instance of a dataclass."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def fields(value: Any) -> list[tuple[str, Any]]:
    """Return names and values of the fields of a namedtuple or a dataclass.

    Fields of a dataclass are in the order of their names. Raises AttributeError if one has no value.
    """
    if isinstance(value, tuple):
        return list(zip(getattr(value, "_fields"), value, strict=False))  # noqa: B009  (mypy)
    return [(name, getattr(value, name)) for name in sorted(field.name for field in dataclasses.fields(value))]


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value of the same class whose fields went through `change`; its constructor is not called."""
    if isinstance(value, tuple):
        return type(value)(*(change(part) for part in value))
    made = copy.copy(value)
    for name, part in fields(value):
        object.__setattr__(made, name, change(part))  # also of a frozen one
    return made


@functools.lru_cache(maxsize=256)
def namedtuple_class(name: str, names: tuple[str, ...]) -> Callable[..., Any]:
    """Return a class of namedtuples with this name and these fields."""
    make: Callable[..., Any] = collections.namedtuple
    made: Callable[..., Any] = make(_usable(name), names, rename=True)
    return made


@functools.lru_cache(maxsize=256)
def dataclass_class(name: str, names: tuple[str, ...]) -> Callable[..., Any]:
    """Return a dataclass with this name and these fields."""
    return dataclasses.make_dataclass(_usable(name), names)


def _usable(name: str) -> str:
    return name if name.isidentifier() and not keyword.iskeyword(name) else _NAMELESS

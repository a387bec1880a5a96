"""Exceptions of the training library. Each is also a ValueError; the message names the argument and says what to do.

KernelDynoError        base of all errors of KernelDyno (kerneldyno.rpc.errors)
└── TrainingError      base of this family; also raised itself for other unusable arguments
    ├── ShapeError     the shape of an argument does not fit the others
    ├── MaskError      a mask is of a floating-point type
    ├── GroupError     group ids are not integers, or not one for each episode
    ├── NotFiniteError a value that counts is NaN or infinite
    └── OptionError    an option has an unknown value
"""

from __future__ import annotations

from collections.abc import Iterable

from kerneldyno.rpc.errors import KernelDynoError


class TrainingError(KernelDynoError, ValueError):
    """An argument cannot be used. Base of all errors of this library."""


class ShapeError(TrainingError):
    """The shape of an argument does not fit the others."""

    def __init__(self, name: str, shape: Iterable[int], expected: str) -> None:
        super().__init__(f"{name} has shape {tuple(shape)}; expected {expected}")


class MaskError(TrainingError):
    """A mask or an id tensor is not of a boolean or integer type."""

    def __init__(self, name: str, dtype: object) -> None:
        super().__init__(
            f"{name} is {dtype}; it must be bool or integer, because it selects what counts: pass {name}.bool()"
        )


class GroupError(TrainingError):
    """Group ids are not integers, or not one for each episode."""


class NotFiniteError(TrainingError):
    """A value that counts is NaN or infinite."""

    def __init__(self, name: str, where: str) -> None:
        super().__init__(
            f"{name} has NaN or infinite values where {where}. A turn without a reward must not have a reward of NaN: "
            "leave it out of the mask"
        )


class OptionError(TrainingError):
    """An option has an unknown value."""

    def __init__(self, name: str, value: object, choices: Iterable[str]) -> None:
        super().__init__(f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, choices))}")

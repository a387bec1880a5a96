"""What the training library refuses, and why: every error is a ValueError that names the argument and says what to do.

ValueError
└── TrainingError      base of all
    ├── ShapeError     two arguments do not fit together
    ├── MaskError      a mask is of floating point: weights are not membership
    ├── GroupError     group ids are not integers, or not one for each episode
    ├── NotFiniteError a value that counts is NaN or infinite
    └── OptionError    an option has a value that does not exist
"""

from __future__ import annotations

from collections.abc import Iterable


class TrainingError(ValueError):
    """Base of what this library raises about its arguments."""


class ShapeError(TrainingError):
    """Two arguments do not fit together."""

    def __init__(self, name: str, shape: Iterable[int], expected: str) -> None:
        super().__init__(f"{name} has shape {tuple(shape)}; expected {expected}")


class MaskError(TrainingError):
    """A mask is not of a boolean or integer type."""

    def __init__(self, name: str, dtype: object) -> None:
        super().__init__(f"{name} is {dtype}; a mask says what counts and must be bool or integer: pass {name}.bool()")


class GroupError(TrainingError):
    """Group ids are unusable."""


class NotFiniteError(TrainingError):
    """A value that counts is NaN or infinite."""

    def __init__(self, name: str, where: str) -> None:
        super().__init__(
            f"{name} has NaN or infinite values where {where}. A turn without a reward is not a reward of NaN: "
            "leave it out of the mask"
        )


class OptionError(TrainingError):
    """An option has a value that does not exist."""

    def __init__(self, name: str, value: object, choices: Iterable[str]) -> None:
        super().__init__(f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, choices))}")

"""What a runner answers, read with suspicion: what the harness could not have said means that it was taken over."""

from __future__ import annotations

from typing import Any

from .. import tree
from .handle import RunnerGarbled

#: Largest device time that a runner may report for one call, in seconds: a day.
_LONGEST = 86400.0
#: What a time of nothing at all counts as, in seconds: no clock ticks faster, and ratios of times must exist.
_SHORTEST = 1e-9


def read_call(answer: Any) -> tuple[Any, list[tree.TensorSpec], int | None]:
    """Return structure, tensors and launches of the answer to a call. Raises RunnerGarbled."""
    try:
        count = answer["launches"]
        if count is not None and type(count) is not int:
            raise TypeError("launches")
        specs = answer["specs"]
        if not isinstance(specs, list):
            raise TypeError("specs")
        return answer["structure"], [tree.TensorSpec.from_json(spec) for spec in specs], count
    except (KeyError, TypeError, tree.UnsupportedValueError) as error:
        raise RunnerGarbled(f"malformed answer: {error}") from None


def read_burst(answer: Any, length: int) -> list[float]:
    """Return the device seconds of each call of a burst. Raises RunnerGarbled."""
    # Neither negative, nor infinite, nor not a number, nor a whole number that no float can hold.
    if (
        isinstance(answer, list)
        and len(answer) == length
        and all(type(value) in (int, float) and 0 <= value < _LONGEST for value in answer)
    ):
        return [max(float(value), _SHORTEST) for value in answer]
    raise RunnerGarbled("malformed answer to a burst")

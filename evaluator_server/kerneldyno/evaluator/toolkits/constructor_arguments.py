"""The constructor's arguments in what `get_init_inputs` returned, in each of the forms in which people write them.

KernelBench calls `Model(*get_init_inputs())`. Other collections return `[[positional...], {keyword: ...}]`. The same
list can be meant in both ways, so the signature of the constructor decides.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any


def split(made: Any, constructor: Any) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return the positional and keyword arguments for a constructor. Raises TypeError if `made` has another form."""
    match made:
        case None:
            return [], {}
        case dict():
            return [], dict(made)
        case [list() | tuple() as positional, dict() as keywords]:
            together = _fits(constructor, positional, keywords) or not _fits(constructor, made, {})
            return (list(positional), dict(keywords)) if together else (list(made), {})
        case [dict() as keywords] if not _fits(constructor, made, {}) and _fits(constructor, (), keywords):
            return [], dict(keywords)
        case list() | tuple():
            return list(made), {}
    raise TypeError(
        f"get_init_inputs() returned a {type(made).__name__}, not a list; return a list of positional arguments,"
        " a dict of keyword arguments, or [[positional, ...], {keyword: ...}]"
    )


def _fits(constructor: Any, positional: Sequence[Any], keywords: Mapping[Any, Any]) -> bool:
    """Return True if a constructor takes these arguments, as far as its signature says."""
    try:
        signature = inspect.signature(constructor)
    except (TypeError, ValueError):  # it is written in C, for example
        return True
    try:
        signature.bind(*positional, **keywords)
    except TypeError:
        return False
    return True

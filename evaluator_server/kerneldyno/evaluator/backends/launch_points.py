"""Pieces for backends that count or suppress launches: they replace a function of Python that every launch calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .base import Launches

#: Makes from a function that launches kernels one that counts its calls.
Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]


def counting(launches: Launches, *, launch: bool = True) -> Wrapper:
    """Return a wrapper that counts calls. If `launch` is false, the wrapped function does nothing and returns None."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs) if launch else None
            add_one(launches)  # a launch that fails does not count
            return result

        return counted

    return wrap


def add_one(launches: Launches) -> None:
    """Count one launch, with a backend that can count."""
    assert launches.count is not None
    launches.count += 1


@contextlib.contextmanager
def replaced(owner: Any, name: str, wrap: Wrapper) -> Iterator[None]:
    """Replace a function of a class, a module or an object by the wrapped one."""
    original = getattr(owner, name)
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def graph_replays(launches: Launches, *, launch: bool = True) -> contextlib.AbstractContextManager[None]:
    """Count replays of CUDA graphs, which may contain the candidate's launches.

    If `launch` is false, they do nothing.
    """
    return replaced(torch.cuda.CUDAGraph, "replay", counting(launches, launch=launch))

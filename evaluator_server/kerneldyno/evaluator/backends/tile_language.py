"""What the tile languages have in common: each is an optional package, and all its launches pass functions of Python.

The package is imported in the runner, and only for candidates that use it: the imports take up to 3 s, and a hundred
megabytes and more would be mapped into the runners of all other candidates.
"""

from __future__ import annotations

import abc
import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from ..devices.base import Device
from .base import Backend, Launches
from .launch_points import counting, graph_replays, replaced

#: Names in a profile are cut after this number of characters: runner.profiler.NAME, which imports too much for here.
LONGEST_NAME = 400


class PackageMissingError(ImportError):
    """The language of a candidate is not installed on this node."""


class TileLanguage(Backend, abc.ABC):
    """A backend for a language in an optional package. A subclass says where its launches pass."""

    must_launch = True
    #: The environment variable that names the directory where the language keeps compiled kernels.
    cache_variable: str

    def __init__(self) -> None:
        self._compiled: set[str] = set()

    def prepare(self, device: Device) -> None:
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), self.name)
        os.makedirs(cache, exist_ok=True)
        os.environ[self.cache_variable] = cache
        try:
            self._set_up()
        except ModuleNotFoundError as error:
            raise PackageMissingError(
                f"backend {self.name} is not installed on this node ({error}): install kerneldyno[{self.name}]"
            ) from error

    @contextlib.contextmanager
    def count_launches(self, device: Device) -> Iterator[Launches]:
        with self._watching(launch=True) as launches:
            yield launches

    @contextlib.contextmanager
    def suppress_launches(self, device: Device) -> Iterator[Launches]:
        with self._watching(launch=False) as launches:
            yield launches

    @contextlib.contextmanager
    def _watching(self, *, launch: bool) -> Iterator[Launches]:
        launches = Launches(0)
        with contextlib.ExitStack() as stack:
            for owner, name in self._launch_points():
                stack.enter_context(replaced(owner, name, self._wrapper(launches, launch=launch)))
            stack.enter_context(graph_replays(launches, launch=launch))
            yield launches
        if launches.count:
            launches.names |= self._compiled

    def _wrapper(self, launches: Launches, *, launch: bool) -> Any:
        return counting(launches, launch=launch)

    def _add_names(self, names: Sequence[str]) -> None:
        """Note kernels that were compiled in this process. No one but the candidate compiles any here."""
        self._compiled.update(name[:LONGEST_NAME] for name in names)

    @abc.abstractmethod
    def _set_up(self) -> None:
        """Import the package and have the names of compiled kernels noted. The candidate is imported next."""

    @abc.abstractmethod
    def _launch_points(self) -> list[tuple[Any, str]]:
        """Return the functions that every launch calls exactly one of, as (owner, name)."""

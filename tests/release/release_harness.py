"""The type that a fixture of conftest.py gives to the tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Release:
    """The files that would be published, and what they were built from."""

    sdist: Path
    #: Built from the sdist.
    wheel: Path
    #: Built from the tree that the sdist was built from.
    wheel_of_tree: Path
    #: The unpacked sdist.
    source: Path

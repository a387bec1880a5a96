"""What the fixtures of conftest.py hand to the tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Release:
    """What would be published."""

    sdist: Path
    #: Built from the sdist.
    wheel: Path
    #: Built from the tree that the sdist was built from.
    wheel_of_tree: Path
    #: The sdist, unpacked.
    source: Path

"""The tests as a package: import helpers by their full names, such as tests.waiting (tests/README.md)."""

from __future__ import annotations

from pathlib import Path

#: The checkout. Programs that tests start with `-m tests.x` or `-c` have it as working directory, so they find `tests`.
ROOT = Path(__file__).resolve().parents[1]

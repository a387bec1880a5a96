"""The tests, as a package: helpers are imported by their full names, such as tests.waiting (tests/README.md)."""

from __future__ import annotations

from pathlib import Path

#: The checkout. Programs that tests start with `-m tests.x` or `-c` have it as their working directory, and so find `tests`.
ROOT = Path(__file__).resolve().parents[1]

"""Fixtures of the scheduler's tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What --store says for an empty store of each kind that survives a crash."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'journal.sqlite'}"
    return str(request.getfixturevalue("postgres").schema())

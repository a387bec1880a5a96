"""The judge that most tests of candidates share. Modules that need another one define their own `judge`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.evaluator.judge_harness import Judge


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """One for each module."""
    with Judge() as running:
        assert running.ready["op"] == "ready", running.ready
        yield running

"""Fixture: services on the GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kerneldyno.client import LocalServices


@pytest.fixture(scope="session")
def gpu_services() -> Iterator[LocalServices]:
    """A scheduler and an evaluator with the first GPU."""
    with LocalServices(devices="cuda:0") as running:
        yield running
        running.check()

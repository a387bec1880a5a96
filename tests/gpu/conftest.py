"""Services on the GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerneldyno.client import LocalServices

# What the end-to-end tests share is shared with these.
sys.path.append(str(Path(__file__).resolve().parents[1] / "e2e"))


@pytest.fixture(scope="session")
def gpu_services() -> Iterator[LocalServices]:
    """A scheduler and an evaluator with the first GPU."""
    with LocalServices(devices="cuda:0") as running:
        yield running
        running.check()

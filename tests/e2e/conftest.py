"""Services for the end-to-end tests: started once, real, and stopped at the end of the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kerneldyno.client import LocalServices
from tests.e2e.e2e_harness import DEVICES


@pytest.fixture(scope="session")
def services() -> Iterator[LocalServices]:
    """A scheduler and an evaluator on the device of this run. Tests that kill services start their own."""
    with LocalServices(devices=DEVICES) as running:
        yield running
        running.check()

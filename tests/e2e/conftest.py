"""Services for the end-to-end tests: real, started once, and stopped at the end of the session.

On the CPU device they are the services that tests of other folders share.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kerneldyno.client import LocalServices
from tests.e2e.e2e_harness import DEVICES, ON_GPU


@pytest.fixture(scope="session")
def services(request: pytest.FixtureRequest) -> Iterator[LocalServices]:
    """A scheduler and an evaluator on the device of this run. Tests that kill services start their own."""
    if not ON_GPU:
        yield request.getfixturevalue("cpu_services")
        return
    with LocalServices(devices=DEVICES) as running:
        yield running
        running.check()

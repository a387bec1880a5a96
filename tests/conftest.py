"""What all tests share: settings of hypothesis, interrupts, and which tests need a GPU."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

# How long an example takes depends on what else the machine does.
settings.register_profile("kerneldyno", deadline=None)
settings.load_profile("kerneldyno")

# Tests interrupt what they have started. Who runs them in the background (nohup, a shell's &) has interrupts ignored, and
# so would all processes that are started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of a GPU unless somebody insists on one: `make test-gpu`, where they fail without."""
    if os.environ.get("KERNELDYNO_REQUIRE_GPU"):
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU: make test-gpu"))

"""The corpus (attacks, honest and wrong candidates) on one judge for each folder; its tests are one for each file."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from corpus import JOBS, SECRETS, Judge, Run
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


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Yields what evaluates the entries that were selected in this module, a few at a time."""
    items = [item for item in request.session.items if item.getparent(pytest.Module) is request.node]
    selected = [item.callspec.params["entry"] for item in items if hasattr(item, "callspec")]
    with Judge("--lanes", str(JOBS), "--spares", str(JOBS), environment=SECRETS) as judge:
        assert judge.ready["op"] == "ready", judge.ready
        yield Run(judge, selected)

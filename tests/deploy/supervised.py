"""Waiting for supervised services."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from kerneldyno.deploy.supervisor import Supervisor


def eventually(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait until `condition` holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.05)


def ready(service: Supervisor) -> Mapping[str, str]:
    """The fields of its ready line."""
    eventually(lambda: bool(service.state().ready or service.state().last_end), "the ready line")
    fields = service.state().ready
    assert fields, service.state().last_end
    return fields

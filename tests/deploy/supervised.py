"""A function that waits for supervised services."""

from __future__ import annotations

from collections.abc import Mapping

from kerneldyno.deploy.supervisor import Supervisor
from tests.waiting import wait_until


def ready(service: Supervisor) -> Mapping[str, str]:
    """Wait for the service's ready line and return its fields."""
    wait_until(lambda: bool(service.state().ready or service.state().last_end), "the ready line")
    fields = service.state().ready
    assert fields, service.state().last_end
    return fields

"""Waiting for supervised services."""

from __future__ import annotations

from collections.abc import Mapping

from waiting import wait_until

from kerneldyno.deploy.supervisor import Supervisor


def ready(service: Supervisor) -> Mapping[str, str]:
    """The fields of its ready line."""
    wait_until(lambda: bool(service.state().ready or service.state().last_end), "the ready line")
    fields = service.state().ready
    assert fields, service.state().last_end
    return fields

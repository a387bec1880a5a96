"""Stores on the PostgreSQL of the tests."""

from __future__ import annotations

import uuid

from kerneldyno.scheduler.clock import lived_seconds
from kerneldyno.scheduler.store.postgres import migrations
from kerneldyno.scheduler.store.postgres.connection import connect
from kerneldyno.scheduler.store.postgres.role import RoleRows
from kerneldyno.scheduler.store.postgres.store import PostgresStore
from kerneldyno.scheduler.store.postgres.tenure import Tenure


def open_postgres(url: str, *, lease_seconds: float = 5.0, address: str = "") -> PostgresStore:
    """Take over the database at `url` at once, whoever has it, and return its store."""
    instance = uuid.uuid4().hex
    with connect(url, name="test", limit_seconds=10) as connection:
        migrations.prepare(connection, "the test's database")
    rows = RoleRows(url, instance, address, lease_seconds)
    began = lived_seconds()
    claim = rows.take(rows.read())
    assert claim is not None
    return PostgresStore(url, Tenure(rows, claim, began), instance)


def emptied(url: str) -> str:
    """Delete what is in the store at `url`, so that it is as after its migrations; return `url`."""
    with connect(url, name="test", limit_seconds=10) as connection:
        migrations.prepare(connection, "the test's database")
        connection.execute("TRUNCATE evaluations, results, jobs, payloads, drained_nodes, quarantines")
        connection.execute("UPDATE scheduler_role SET last_evaluation = 0, last_result = 0")
    return url

"""Stores on the PostgreSQL of the tests, and stores of any kind by what a scheduler's --store says."""

from __future__ import annotations

import uuid

from kerneldyno.scheduler.clock import lived_seconds
from kerneldyno.scheduler.store.postgres import migrations
from kerneldyno.scheduler.store.postgres.connection import connect
from kerneldyno.scheduler.store.postgres.role import RoleRows
from kerneldyno.scheduler.store.postgres.store import PostgresStore
from kerneldyno.scheduler.store.postgres.tenure import Tenure
from kerneldyno.scheduler.store.sqlite import SqliteStore

#: The former store's beat may come between a look at the rows and a take-over, but hardly so often.
_TAKES = 20


def open_postgres(
    url: str, *, lease_seconds: float = 5.0, address: str = "", ends_sessions: bool = False
) -> PostgresStore:
    """Take over the database at `url` at once, whoever has it, and return its store.

    Args:
        url: The database.
        lease_seconds: The lease.
        address: What the scheduler would advertise.
        ends_sessions: Whether the sessions of the former store are ended, as in a real take-over. Without that, only its
            epoch keeps it from writing.
    """
    instance = uuid.uuid4().hex
    with connect(url, name="test", limit_seconds=10) as connection:
        migrations.prepare(connection, "the test's database")
    rows = RoleRows(url, instance, address, lease_seconds)
    if not ends_sessions:
        rows._end_sessions_of = lambda connection, former: None  # type: ignore[method-assign]
    for _ in range(_TAKES):
        began = lived_seconds()
        if (claim := rows.take(rows.read())) is not None:
            break
    else:
        rows.close()
        raise AssertionError(f"the rows of the role changed {_TAKES} times between a look at them and a take-over")
    return PostgresStore(url, Tenure(rows, claim, began), instance)


def emptied(url: str) -> str:
    """Delete what is in the store at `url`, so that it is as after its migrations; return `url`."""
    with connect(url, name="test", limit_seconds=10) as connection:
        migrations.prepare(connection, "the test's database")
        connection.execute("TRUNCATE evaluations, results, jobs, payloads, drained_nodes, quarantines")
        connection.execute("UPDATE scheduler_role SET last_evaluation = 0, last_result = 0")
    return url


def open_any(where: str, *, lease_seconds: float = 5.0) -> SqliteStore | PostgresStore:
    """Open the store that "sqlite:PATH" or a URL names. A PostgreSQL is taken over at once, whoever has it."""
    if where.startswith("sqlite:"):
        return SqliteStore(where.removeprefix("sqlite:"))
    return open_postgres(where, lease_seconds=lease_seconds)

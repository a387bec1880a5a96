"""The tables of the PostgreSQL store, as numbered migrations.

Each migration is applied once, in a transaction, and recorded in `schema_versions`. While a fleet is upgraded, schedulers of
two versions use the same tables: the newer one starts as standby and migrates, and the older one goes on until it ends. So a
migration may only add what the version before it can ignore (tables, columns with a default); what it makes obsolete is
removed by a later migration, which says in `readable_by` which version of the schema a program must know.

Why no library: those that are kept well bring an object-relational mapper or a program of their own with them, and these
are few statements, which need PostgreSQL's transactional DDL and a lock, and nothing else.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from kerneldyno.scheduler.core.ports import StoreError
from kerneldyno.scheduler.store.postgres.connection import PgConnection

_log = logging.getLogger(__name__)

#: The oldest server that is accepted: the parameters of a connection (target_session_attrs=primary) are of 14.
OLDEST_SERVER = 140_000
#: Key of the advisory lock that one migrating scheduler holds: "KDyn" in ASCII.
_LOCK = 0x4B44796E


@dataclass(frozen=True, slots=True)
class Migration:
    """A change of the tables."""

    readable_by: int
    """The lowest version of the schema that a program must know to work with the tables after this migration."""
    statements: str


#: Migrations by number, from 1. Never change one that was released; add another.
MIGRATIONS = (
    Migration(
        readable_by=1,
        statements="""
CREATE TABLE evaluations (
    number BIGINT PRIMARY KEY,
    client_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    fingerprint BYTEA NOT NULL,
    digest BYTEA NOT NULL,
    priority TEXT NOT NULL,
    labels TEXT NOT NULL,  -- JSON, each pair on a line of its own
    accepted_wall DOUBLE PRECISION NOT NULL,
    deadline_wall DOUBLE PRECISION,
    merged BOOLEAN NOT NULL,
    job_id BYTEA,
    result BIGINT,
    outcome TEXT,
    cached BOOLEAN NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    placed_wall DOUBLE PRECISION NOT NULL DEFAULT 0,
    finished_wall DOUBLE PRECISION NOT NULL,
    trace TEXT NOT NULL DEFAULT '',
    speedup_kind TEXT NOT NULL DEFAULT 'DEVICE',
    grace_seconds DOUBLE PRECISION
);
CREATE UNIQUE INDEX evaluations_by_key ON evaluations (client_id, id);
CREATE INDEX evaluations_by_digest ON evaluations (digest, number);
CREATE INDEX evaluations_by_age ON evaluations (finished_wall, number) WHERE result IS NOT NULL;
CREATE INDEX evaluations_unfinished ON evaluations (number) WHERE result IS NULL;

CREATE TABLE results (
    number BIGINT PRIMARY KEY,
    environment BYTEA NOT NULL,
    outcome TEXT NOT NULL,
    cause TEXT,
    detail TEXT,
    retryable BOOLEAN,
    payload BYTEA NOT NULL,
    cacheable BOOLEAN NOT NULL,
    uses BIGINT NOT NULL  -- evaluations that refer to it
);

-- Rows change when a job is placed, and go when it ends. Room in each page lets a change stay there.
CREATE TABLE jobs (
    number BIGINT PRIMARY KEY,  -- of the evaluation that it was made for
    id BYTEA NOT NULL UNIQUE,
    share TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    unlucky_nodes TEXT NOT NULL,
    token TEXT NOT NULL,
    node_id TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    placed_wall DOUBLE PRECISION NOT NULL
) WITH (fillfactor = 70);
CREATE TABLE payloads (number BIGINT PRIMARY KEY, payload BYTEA NOT NULL);

CREATE TABLE drained_nodes (node_id TEXT PRIMARY KEY);
CREATE TABLE quarantines (
    digest BYTEA PRIMARY KEY,
    reason TEXT NOT NULL,
    since_wall DOUBLE PRECISION NOT NULL,
    until_wall DOUBLE PRECISION NOT NULL
);

-- One row: who may write. Each batch changes it in its own transaction, if the epoch is still that of the writer.
CREATE TABLE scheduler_role (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch BIGINT NOT NULL,
    instance TEXT NOT NULL,  -- random, for each process
    address TEXT NOT NULL,  -- where clients and nodes reach it; empty if it does not say
    takeovers BIGINT NOT NULL,
    batch BIGINT NOT NULL,  -- the number of the last batch in this epoch
    last_evaluation BIGINT NOT NULL,
    last_result BIGINT NOT NULL
) WITH (fillfactor = 50);
INSERT INTO scheduler_role VALUES (1, 0, '', '', 0, 0, 0, 0);
-- One row: that it lives. It is a row of its own, so that a beat does not wait for a batch.
CREATE TABLE scheduler_beat (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch BIGINT NOT NULL,
    beat BIGINT NOT NULL,
    lease_seconds DOUBLE PRECISION NOT NULL,
    released BOOLEAN NOT NULL
) WITH (fillfactor = 50);
INSERT INTO scheduler_beat VALUES (1, 0, 0, 0, TRUE);
""",
    ),
)

#: The version of the schema that this program makes and knows.
VERSION = len(MIGRATIONS)


def prepare(connection: PgConnection, name: str) -> None:
    """Apply the migrations that are missing. Schedulers that start together do it one after the other.

    Args:
        connection: A connection to the database.
        name: How messages call the database.

    Raises:
        StoreError: The server is too old, the tables belong to another program, or only a newer version can use them.
        psycopg.Error: The tables cannot be read or changed.
    """
    if connection.info.server_version < OLDEST_SERVER:
        raise StoreError(
            f"{name} is PostgreSQL {connection.info.server_version // 10_000}; the store needs 14 or newer"
        )
    (encoding,) = _row(connection, "SHOW server_encoding")
    if encoding != "UTF8":
        raise StoreError(f"{name} stores text as {encoding}; create a database with ENCODING 'UTF8'")
    with connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '10s'")
        connection.execute("SELECT pg_advisory_xact_lock(%s::bigint)", (_LOCK,))
        found, needed = version(connection)
        if not found:
            _create(connection, name)
        if needed > VERSION:
            raise StoreError(
                f"{name} was changed by a newer KernelDyno (schema {found}, readable by {needed}; this one knows"
                f" {VERSION}); run that version, or choose another database"
            )
        for number in range(found + 1, VERSION + 1):
            migration = MIGRATIONS[number - 1]
            connection.execute(migration.statements.encode())
            connection.execute("INSERT INTO schema_versions VALUES (%s, %s, now())", (number, migration.readable_by))
            _log.info("event=schema_migrated version=%d store=%s", number, name)


def version(connection: PgConnection) -> tuple[int, int]:
    """Return the version of the tables, and the version that a program must know; (0, 0) if there are none."""
    (there,) = _row(connection, "SELECT to_regclass('schema_versions') IS NOT NULL")
    if not there:
        return 0, 0
    found = _row(connection, "SELECT max(version), max(readable_by) FROM schema_versions")
    return found[0] or 0, found[1] or 0


def _create(connection: PgConnection, name: str) -> None:
    (foreign,) = _row(connection, "SELECT to_regclass('evaluations') IS NOT NULL OR to_regclass('jobs') IS NOT NULL")
    if foreign:
        raise StoreError(f"{name} has tables of another program; choose another database or schema")
    connection.execute(
        "CREATE TABLE schema_versions (version INTEGER PRIMARY KEY, readable_by INTEGER NOT NULL,"
        " applied TIMESTAMPTZ NOT NULL)"
    )


def _row(connection: PgConnection, query: str) -> tuple[Any, ...]:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None, "an aggregate or an expression has one row"
    return row

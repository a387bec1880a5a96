"""Copies a store into an empty one of another kind: a SQLite file into PostgreSQL, or back.

Numbers, results and unfinished work stay as they are, so a scheduler on the copy goes on where the last one ended.
Nobody else may use either of them meanwhile; what cannot be copied completely is not copied at all.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from kerneldyno.scheduler.core.ports import StoreError, StoreUnreachableError
from kerneldyno.scheduler.store.postgres.connection import PgConnection, connect, plain
from kerneldyno.scheduler.store.postgres.contender import Contender
from kerneldyno.scheduler.store.postgres.store import PostgresStore
from kerneldyno.scheduler.store.postgres.writing import in_lines
from kerneldyno.scheduler.store.row_batch import Row, to_json
from kerneldyno.scheduler.store.sqlite import SqliteStore

#: Rows that are in memory at once. A row may have a request or a result, of up to some megabytes.
CHUNK = 200
#: Lease in seconds of the copy itself, and the time limit of one of its statements.
LEASE_SECONDS, STATEMENT_SECONDS = 5.0, 600.0

#: Columns of each table in PostgreSQL, in the order in which both kinds of store give and take them.
COLUMNS = {
    "results": "number environment outcome cause detail retryable payload cacheable uses",
    "evaluations": "number client_id id fingerprint digest priority labels accepted_wall deadline_wall merged job_id result"
    " outcome cached attempts placed_wall finished_wall trace speedup_kind grace_seconds",
    "jobs": "number id share attempts crashes unlucky_nodes token node_id instance_id placed_wall",
    "payloads": "number payload",
    "drained_nodes": "node_id",
    "quarantines": "digest reason since_wall until_wall",
}
#: Positions of truth values, which SQLite stores as numbers.
_TRUTHS = {"results": (5, 7), "evaluations": (9, 13)}
_LABELS = COLUMNS["evaluations"].split().index("labels")
_SQLITE_EVALUATIONS = """
SELECT e.*, coalesce(t.trace, ''), coalesce(k.kind, 'DEVICE'), g.seconds FROM evaluations AS e
LEFT JOIN traces AS t ON t.number = e.number LEFT JOIN speedup_kinds AS k ON k.number = e.number
LEFT JOIN client_graces AS g ON g.number = e.number ORDER BY e.number
"""

Last = tuple[int, int]


def into_postgres(path: Path, url: str, name: str) -> dict[str, int]:
    """Copy the SQLite file at `path` into the empty database at `url`, which messages call `name`.

    Returns:
        The number of rows of each table.

    Raises:
        StoreError, StoreUnreachableError: A store is in use, missing, not empty, or cannot be read or written.
    """
    if not path.exists():
        raise StoreError(f"there is no file {path}")
    with _opened(path) as source, _taken(url, name) as (target, epoch), _translated(name):
        _require_empty(name, lambda table: _count(target.execute(f"SELECT count(*) FROM {table}".encode())))
        counts = {}
        with target.transaction():
            for table, columns in COLUMNS.items():
                query = _SQLITE_EVALUATIONS if table == "evaluations" else f"SELECT * FROM {table}"
                marks = ", ".join(["%s"] * len(columns.split()))
                insert = f"INSERT INTO {table} ({', '.join(columns.split())}) VALUES ({marks})".encode()
                cursor, counts[table] = target.cursor(), 0
                for rows in _chunks(source.execute(query)):
                    cursor.executemany(insert, [_for_postgres(table, row) for row in rows])
                    counts[table] += len(rows)
            last: dict[str, int] = dict(source.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
            fence = target.execute(
                "UPDATE scheduler_role SET last_evaluation = %s, last_result = %s WHERE epoch = %s",
                (last.get("evaluations", 0), last.get("results", 0), epoch),
            )
            if fence.rowcount != 1:
                raise StoreError(f"{name}: a scheduler has taken it over meanwhile; nothing was copied")
        target.execute("ANALYZE")
    return counts


def into_sqlite(url: str, name: str, path: Path) -> dict[str, int]:
    """Copy the database at `url`, which messages call `name`, into the SQLite file at `path`, which is made if needed.

    Returns:
        The number of rows of each table.

    Raises:
        StoreError, StoreUnreachableError: A store is in use, not empty, or cannot be read or written.
    """
    with _opened(path) as target, _taken(url, name) as (source, epoch), _translated(name):
        _require_empty(str(path), lambda table: _count(target.execute(f"SELECT count(*) FROM {table}")))
        counts = {}
        target.execute("BEGIN IMMEDIATE")
        try:
            with source.transaction():
                row = source.execute(
                    "SELECT last_evaluation, last_result FROM scheduler_role WHERE epoch = %s FOR UPDATE", (epoch,)
                ).fetchone()
                if row is None:
                    raise StoreError(f"{name}: a scheduler has taken it over meanwhile; nothing was copied")
                for table, columns in COLUMNS.items():
                    query = f"SELECT {', '.join(columns.split())} FROM {table} ORDER BY 1".encode()
                    counts[table] = 0
                    with source.cursor(name=f"copy_{table}") as cursor:
                        cursor.itersize = CHUNK
                        for rows in _chunks(cursor.execute(query)):
                            _insert_into_sqlite(target, table, rows)
                            counts[table] += len(rows)
            for table, number in zip(("evaluations", "results"), row, strict=True):
                target.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
                target.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, number))
            target.execute("COMMIT")
        except BaseException:
            if target.in_transaction:
                target.execute("ROLLBACK")
            raise
    return counts


def _for_postgres(table: str, row: Row) -> Row:
    values = list(row)
    for position in _TRUTHS.get(table, ()):
        values[position] = None if values[position] is None else bool(values[position])
    if table == "evaluations":
        values[_LABELS] = in_lines(values[_LABELS])
    return tuple(values)


def _insert_into_sqlite(db: sqlite3.Connection, table: str, rows: Sequence[Row]) -> None:
    if table != "evaluations":
        db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        return
    plain_rows = [[*row[:_LABELS], to_json(json.loads(row[_LABELS])), *row[_LABELS + 1 : -3]] for row in rows]
    db.executemany(f"INSERT INTO evaluations VALUES ({', '.join('?' * len(plain_rows[0]))})", plain_rows)
    for side, position, usual in (("traces", -3, ""), ("speedup_kinds", -2, "DEVICE"), ("client_graces", -1, None)):
        own = [(row[0], row[position]) for row in rows if row[position] != usual]
        db.executemany(f"INSERT INTO {side} VALUES (?, ?)", own)


def _chunks(rows: Any) -> Iterator[list[Row]]:
    while found := rows.fetchmany(CHUNK):
        yield found


def _count(cursor: Any) -> int:
    return int(cursor.fetchone()[0])


def _require_empty(name: str, count: Callable[[str], int]) -> None:
    for table in COLUMNS:
        if count(table):
            raise StoreError(f"{name} is not empty: copy into a new store")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield the connection of the SQLite file, locked against schedulers."""
    store = SqliteStore(path)
    try:
        yield store.database
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}") from error
    finally:
        store.close()


@contextlib.contextmanager
def _taken(url: str, name: str) -> Iterator[tuple[PgConnection, int]]:
    """Yield a connection to the database, and the epoch by which this process is its active scheduler."""
    store = _take(Contender(url, name, lease_seconds=LEASE_SECONDS), name)
    try:
        with connect(url, name="kerneldyno copy", limit_seconds=STATEMENT_SECONDS) as connection:
            yield connection, store.tenure.epoch
    finally:
        store.close()


def _take(contender: Contender, name: str) -> PostgresStore:
    """Take the database over as a scheduler would, but only if none is active."""
    store = None
    try:
        contender.prepare()
        contender.look()
        first = contender.claim
        while not contender.due:
            time.sleep(contender.pause_seconds)
            contender.look()
            if first is None or contender.claim is None or contender.claim.life != first.life:
                raise StoreError(f"{name} is in use by a scheduler ({first.address if first else ''}); stop it first")
        store = contender.take()
        if store is None:
            raise StoreError(f"a scheduler has just taken {name} over; stop it first")
        return store
    finally:
        if store is None:
            contender.close()


@contextlib.contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise StoreUnreachableError(f"{name}: {plain(error)}") from error

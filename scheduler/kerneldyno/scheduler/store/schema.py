"""The tables of the SQLite store, and how its file is opened, checked and recognised as a KernelDyno store.

An evaluation is a small row. Its result, which several evaluations may share, is in `results`, and the request of an
unfinished job is in `payloads`, so that rows that change often stay small. There are few indexes, because the cost of a
commit grows with the number of pages that it changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from pathlib import Path

from kerneldyno.scheduler.core.ports import StoreError

#: PRAGMA user_version. Increased with each change of the tables.
VERSION = 1
#: PRAGMA application_id: "KDyn" in ASCII.
APPLICATION = 0x4B44796E
#: UPDATE ... FROM exists since 3.33, and works reliably since 3.35.
OLDEST_SQLITE = (3, 35, 0)
#: Time limit in seconds of the check after an unclean shutdown. SQLite checks the remaining pages when it reads them.
CHECK_SECONDS = 3.0
#: Number of WAL pages after which a commit also copies them to the database file (16 MiB).
CHECKPOINT_PAGES = 4096

TABLES = """
CREATE TABLE evaluations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    client_id TEXT NOT NULL,
    id TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    digest BLOB NOT NULL,
    priority TEXT NOT NULL,
    labels TEXT NOT NULL,
    accepted_wall REAL NOT NULL,
    deadline_wall REAL,
    merged INTEGER NOT NULL,
    job_id BLOB,
    result INTEGER,
    outcome TEXT,
    cached INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    placed_wall REAL NOT NULL,
    finished_wall REAL NOT NULL
);
CREATE UNIQUE INDEX evaluations_by_key ON evaluations (client_id, id);
CREATE INDEX evaluations_by_digest ON evaluations (digest);
CREATE INDEX evaluations_by_age ON evaluations (finished_wall) WHERE result IS NOT NULL;
CREATE INDEX evaluations_unfinished ON evaluations (number) WHERE result IS NULL;

CREATE TABLE results (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    environment BLOB NOT NULL,
    outcome TEXT NOT NULL,
    cause TEXT,
    detail TEXT,
    retryable INTEGER,
    payload BLOB NOT NULL,
    cacheable INTEGER NOT NULL,
    uses INTEGER NOT NULL  -- evaluations that refer to it
);

CREATE TABLE jobs (
    number INTEGER PRIMARY KEY,  -- of the evaluation that it was made for
    id BLOB NOT NULL UNIQUE,
    share TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    unlucky_nodes TEXT NOT NULL,
    token TEXT NOT NULL,
    node_id TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    placed_wall REAL NOT NULL
);
CREATE TABLE payloads (number INTEGER PRIMARY KEY, payload BLOB NOT NULL);
CREATE TRIGGER job_ended AFTER DELETE ON jobs BEGIN
    DELETE FROM payloads WHERE number = OLD.number;
END;

CREATE TABLE drained_nodes (node_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE quarantines (
    digest BLOB PRIMARY KEY,
    reason TEXT NOT NULL,
    since_wall REAL NOT NULL,
    until_wall REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE totals (finished INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO totals VALUES (0, 0);
CREATE TRIGGER evaluation_answered AFTER INSERT ON evaluations WHEN NEW.result IS NOT NULL BEGIN
    UPDATE totals SET finished = finished + 1;
END;
CREATE TRIGGER evaluation_finished AFTER UPDATE OF result ON evaluations
WHEN OLD.result IS NULL AND NEW.result IS NOT NULL BEGIN
    UPDATE totals SET finished = finished + 1;
END;
CREATE TRIGGER evaluation_forgotten AFTER DELETE ON evaluations WHEN OLD.result IS NOT NULL BEGIN
    UPDATE totals SET finished = finished - 1;
END;
CREATE TRIGGER result_stored AFTER INSERT ON results BEGIN
    UPDATE totals SET bytes = bytes + length(NEW.payload);
END;
CREATE TRIGGER result_forgotten AFTER DELETE ON results BEGIN
    UPDATE totals SET bytes = bytes - length(OLD.payload);
END;
"""

#: Tables that were added later and that an older version may ignore. They are created if missing, without a new VERSION.
LATER_TABLES = """
CREATE TABLE IF NOT EXISTS traces (number INTEGER PRIMARY KEY, trace TEXT NOT NULL);  -- of evaluations that are in one
CREATE TRIGGER IF NOT EXISTS trace_forgotten AFTER DELETE ON evaluations BEGIN
    DELETE FROM traces WHERE number = OLD.number;
END;
-- Which speedup counts, for evaluations where it is not the device's.
CREATE TABLE IF NOT EXISTS speedup_kinds (number INTEGER PRIMARY KEY, kind TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS speedup_kind_forgotten AFTER DELETE ON evaluations BEGIN
    DELETE FROM speedup_kinds WHERE number = OLD.number;
END;
-- How long evaluations go on without their client, where they say so themselves.
CREATE TABLE IF NOT EXISTS client_graces (number INTEGER PRIMARY KEY, seconds REAL NOT NULL);
CREATE TRIGGER IF NOT EXISTS client_grace_forgotten AFTER DELETE ON evaluations BEGIN
    DELETE FROM client_graces WHERE number = OLD.number;
END;
"""


def connect(path: str, *, reads_only: bool = False) -> sqlite3.Connection:
    """Return a connection without implicit transactions, which may be used in any thread."""
    connection = sqlite3.connect(
        path,
        timeout=1.0,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.execute("PRAGMA query_only = ON" if reads_only else "PRAGMA synchronous = FULL")
    connection.create_function("has_label", 3, _has_label, deterministic=True)
    # An automatic index would be built anew for each statement, which is slower for every statement of this store.
    connection.execute("PRAGMA automatic_index = OFF")
    return connection


def _has_label(labels: str, name: str, value: str) -> bool:
    # SQLite's json_each ends a string at its first NUL.
    return bool(json.loads(labels).get(name) == value)


def open_file(path: Path) -> sqlite3.Connection:
    """Open the database at `path`, or create it.

    Raises:
        StoreError: The file cannot be opened, is damaged, or is not a KernelDyno store that this version can read.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreError(f"this Python has SQLite {sqlite3.sqlite_version}; the store needs {needed} or newer")
    wal = path.with_name(path.name + "-wal")
    unclean = wal.exists() and wal.stat().st_size > 0
    try:
        # Only the owner may read the candidates and results in it. SQLite gives -wal and -shm the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = connect(str(path))
        try:
            prepare(connection, str(path))
            if unclean:
                _check(connection, path)
        except BaseException:
            connection.close()
            raise
    except OSError as error:
        raise StoreError(f"cannot open the store {path}: {error.strerror}") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"cannot open the store {path}: {error}; it is damaged or no KernelDyno store") from error
    return connection


def prepare(connection: sqlite3.Connection, name: str) -> None:
    """Create the tables in an empty database, and check that an existing one can be used.

    Raises:
        StoreError: It belongs to another program, or to a newer version.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION:
        raise StoreError(f"{name} is another program's database; choose another file")
    if version > VERSION:
        raise StoreError(
            f"{name} was written by a newer KernelDyno (schema {version}, this one knows {VERSION}); "
            "run that version, or choose another file"
        )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {4 * CHECKPOINT_PAGES * 4096}")
    # Some systems build SQLite to overwrite freed pages, which is slow.
    connection.execute("PRAGMA secure_delete = OFF")
    if not tables:
        marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
        connection.executescript(f"BEGIN IMMEDIATE; {TABLES} {marks} COMMIT;")
    connection.executescript(LATER_TABLES)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    limit = threading.Timer(CHECK_SECONDS, connection.interrupt)
    limit.start()
    try:
        with contextlib.suppress(sqlite3.OperationalError):  # interrupted by the time limit: no damage so far
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise StoreError(f"the store {path} is damaged ({found}); move the file away, or restore a copy")
    finally:
        limit.cancel()
        limit.join()

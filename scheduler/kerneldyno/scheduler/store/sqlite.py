"""The store of one scheduler in one SQLite file, with a write-ahead log and every commit synchronised with the disk.

There are three connections: one for writes in the journal's thread, one for short reads in the event loop, and one for
listings in any thread. Readers see a whole number of batches and never wait for a writer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from kerneldyno.scheduler.core.model import Key
from kerneldyno.scheduler.core.ports import Filter, StoreError
from kerneldyno.scheduler.core.records import CachedResult, Quarantined, Record, Recovered, StoredEvaluation
from kerneldyno.scheduler.failpoints import failpoint
from kerneldyno.scheduler.store import schema
from kerneldyno.scheduler.store.membership import MembershipFilter
from kerneldyno.scheduler.store.row_batch import Row, RowBatch, to_json
from kerneldyno.scheduler.store.row_reading import (
    CACHE_DEPTH,
    EVALUATION_COLUMNS,
    RESULT_COLUMNS,
    TRIM_STEP,
    beyond_retention,
    conditions_of,
    evaluation_of,
    job_of,
    verdict_of,
)

#: Maximum number of rows of one statement. Fewer rows are split into powers of two, so that few statements are prepared.
CHUNK = 256

_RESULTS_OF_DIGEST = f"""
SELECT r.number, {RESULT_COLUMNS} FROM evaluations AS e JOIN results AS r ON r.number = e.result
WHERE e.digest = ? AND r.cacheable ORDER BY e.number DESC LIMIT ?
"""
_EVALUATION = f"""
SELECT {EVALUATION_COLUMNS}, {RESULT_COLUMNS}, coalesce(t.trace, ''), coalesce(k.kind, 'DEVICE'), g.seconds
FROM evaluations AS e LEFT JOIN results AS r ON r.number = e.result LEFT JOIN traces AS t ON t.number = e.number
    LEFT JOIN speedup_kinds AS k ON k.number = e.number LEFT JOIN client_graces AS g ON g.number = e.number
"""


class SqliteStore:
    """The durable memory of one scheduler. Implements Store."""

    name = "sqlite"

    def __init__(self, path: str | Path) -> None:
        """Open or create the file at `path`, and lock it.

        Raises:
            StoreError: The file cannot be used.
        """
        self._path: str | Path = Path(path)
        self._lock = _lock(self._path)
        try:
            self._writer = schema.open_file(self._path)
            self._reader = schema.connect(str(self._path), reads_only=True)
            self._lister = schema.connect(str(self._path), reads_only=True)
            self._last_evaluation, self._last_result = _last_numbers(self._writer)
            self._membership = MembershipFilter(self._writer.execute("SELECT client_id, id, digest FROM evaluations"))
        except BaseException:
            os.close(self._lock)
            raise
        self._listing = threading.Lock()

    @property
    def database(self) -> sqlite3.Connection:
        """The connection that writes, for tools that copy the store."""
        return self._writer

    def recover(self) -> Recovered:
        """Return what was unfinished, in order of acceptance. Raises StoreError."""
        try:
            return _recover(self._writer)
        except sqlite3.Error as error:
            raise StoreError(f"cannot read the store {self._path}: {error}") from error

    def write(self, records: Sequence[Record]) -> None:
        """Apply `records` in order, all or none; they are on disk when this returns. Raises OSError or sqlite3.Error."""
        batch = RowBatch(records, self._last_evaluation, self._last_result)
        # Before the commit, because other threads see the rows from then on.
        self._membership.add((row[1], row[2], row[4]) for row in batch.evaluations)
        with _transaction(self._writer):
            _apply(self._writer, batch)
            failpoint("during_commit")
        self._last_evaluation, self._last_result = batch.last_evaluation, batch.last_result

    def find(self, key: Key) -> StoredEvaluation | None:
        """Return the evaluation with this key, or None if it is unknown or was deleted."""
        if not self._membership.may_have_key(key):
            return None
        row = self._reader.execute(f"{_EVALUATION} WHERE e.client_id = ? AND e.id = ?", key).fetchone()
        return None if row is None else evaluation_of(row)

    def cached(self, digest: bytes, environments: Collection[bytes]) -> CachedResult | None:
        """Return the newest cacheable result of `digest` on one of `environments`, or None."""
        if not self._membership.may_have_digest(digest):
            return None
        for number, *row in (rows := self._reader.execute(_RESULTS_OF_DIGEST, (digest, CACHE_DEPTH))):
            if row[-1] in environments:
                rows.close()
                return CachedResult(number, verdict_of(tuple(row), cached=False))
        return None

    def list(self, which: Filter, before: int | None, limit: int) -> list[StoredEvaluation]:
        """Return evaluations with a number below `before`, newest first. May be called in any thread, and may be slow."""
        conditions, values = conditions_of(which, before, _label_condition)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        # A subquery selects the numbers first, so that sorting and skipping do not read the payloads.
        numbers = f"SELECT e.number FROM evaluations AS e {where} ORDER BY e.number DESC LIMIT ?"
        query = f"{_EVALUATION} WHERE e.number IN ({numbers}) ORDER BY e.number DESC"
        with self._listing:
            rows = self._lister.execute(query, (*values, limit)).fetchall()
        return [evaluation_of(row) for row in rows]

    def trim(self, *, max_results: int, max_bytes: int, older_than_wall: float) -> int:
        """Delete up to TRIM_STEP finished evaluations that are too old or too many, and return how many.

        The file does not shrink; freed pages are used again.
        """
        db = self._writer
        if deleted := _to_delete(db, max_results, max_bytes, older_than_wall):
            with _transaction(db):
                _delete(db, deleted)
                failpoint("during_trim")
            kept = {digest for *_, digest in deleted if _has_digest(db, digest)}
            self._membership.remove([(client_id, own_id, digest) for _, _, client_id, own_id, digest in deleted], kept)
        return len(deleted)

    def close(self) -> None:
        """Write the log back into the file, and release it."""
        for connection in (self._lister, self._reader, self._writer):
            connection.close()
        os.close(self._lock)


def _lock(path: Path) -> int:
    """Lock the store against other processes, and return the descriptor that holds the lock while it is open.

    Raises:
        StoreError: Another process has the lock, or the file cannot be created.
    """
    side = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(side, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"cannot open the store {path}: {side}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StoreError(
            f"the store {path} is in use by another scheduler ({side} is locked); stop that one, or choose another file"
        ) from error
    return lock


def _last_numbers(db: sqlite3.Connection) -> tuple[int, int]:
    last = dict(db.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    return last.get("evaluations", 0), last.get("results", 0)


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
            # On a full disk the log cannot grow. After a checkpoint into the file, it starts again from its beginning.
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        raise


# Writing


def _apply(db: sqlite3.Connection, batch: RowBatch) -> None:
    _bulk(db, "INSERT INTO results VALUES {} ON CONFLICT (number) DO UPDATE SET uses = uses + 1", batch.results)
    _bulk(db, _INSERT_EVALUATIONS, batch.evaluations)
    _bulk(db, "INSERT INTO traces VALUES {}", batch.traces)
    _bulk(db, "INSERT INTO speedup_kinds VALUES {}", batch.speedup_kinds)
    _bulk(db, "INSERT INTO client_graces VALUES {}", batch.client_graces)
    _bulk(db, _FINISH_EVALUATIONS, batch.finished)
    _bulk(db, "DELETE FROM jobs WHERE id IN (VALUES {})", [(job_id,) for job_id in batch.ended_jobs])
    _bulk(
        db,
        _CHANGE_JOBS,
        [
            (job_id, c.attempts, c.token, c.node_id, c.instance_id, c.placed_wall, c.crashes, c.unlucky_nodes)
            for job_id, c in batch.changed_jobs.items()
        ],
    )
    _bulk(
        db,
        "INSERT INTO jobs VALUES {}",
        [
            (
                new.number,
                job_id,
                new.share,
                new.change.attempts,
                new.change.crashes or 0,
                new.change.unlucky_nodes or "[]",
                new.change.token,
                new.change.node_id,
                new.change.instance_id,
                new.change.placed_wall or 0.0,
            )
            for job_id, new in batch.new_jobs.items()
        ],
    )
    _bulk(db, "INSERT INTO payloads VALUES {}", [(new.number, new.payload) for new in batch.new_jobs.values()])
    for node_id, drained in batch.drained.items():
        db.execute(
            "INSERT OR IGNORE INTO drained_nodes VALUES (?)"
            if drained
            else "DELETE FROM drained_nodes WHERE node_id = ?",
            (node_id,),
        )
    for record in batch.quarantined.values():
        row = (record.digest, record.reason, record.since_wall, record.until_wall)
        db.execute("INSERT OR REPLACE INTO quarantines VALUES (?, ?, ?, ?)", row)
        db.execute("DELETE FROM quarantines WHERE until_wall <= ?", (record.since_wall,))


_INSERT_EVALUATIONS = """
INSERT INTO evaluations (number, client_id, id, fingerprint, digest, priority, labels, accepted_wall, deadline_wall,
    merged, job_id, result, outcome, cached, finished_wall, attempts, placed_wall)
SELECT *, 0, 0.0 FROM (VALUES {})
"""
_FINISH_EVALUATIONS = """
UPDATE evaluations SET job_id = NULL, result = v.column3, outcome = v.column4, cached = v.column5,
    attempts = v.column6, placed_wall = v.column7, finished_wall = v.column8
FROM (VALUES {}) AS v
WHERE evaluations.client_id = v.column1 AND evaluations.id = v.column2
"""
_CHANGE_JOBS = """
UPDATE jobs SET attempts = v.column2, token = v.column3, node_id = v.column4, instance_id = v.column5,
    placed_wall = coalesce(v.column6, placed_wall), crashes = coalesce(v.column7, crashes),
    unlucky_nodes = coalesce(v.column8, unlucky_nodes)
FROM (VALUES {}) AS v
WHERE jobs.id = v.column1
"""


def _bulk(db: sqlite3.Connection, statement: str, rows: Sequence[Row]) -> None:
    """Run `statement` over `rows`, many at a time."""
    done = 0
    while left := len(rows) - done:
        size = min(CHUNK, 1 << left.bit_length() - 1)
        values = [value for row in rows[done : done + size] for value in row]
        db.execute(_filled(statement, size, len(rows[done])), values)
        done += size


@lru_cache(maxsize=256)
def _filled(statement: str, rows: int, columns: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return statement.format(", ".join([row] * rows))


# Deleting


def _to_delete(db: sqlite3.Connection, max_results: int, max_bytes: int, older_than_wall: float) -> list[Row]:
    """Return number, result, client id, id and digest of the oldest evaluations that exceed a bound."""
    finished, size = db.execute("SELECT finished, bytes FROM totals").fetchone()
    oldest = db.execute(
        "SELECT e.number, e.result, e.finished_wall, length(r.payload), e.client_id, e.id, e.digest"
        " FROM evaluations AS e JOIN results AS r ON r.number = e.result"
        " WHERE e.result IS NOT NULL ORDER BY e.finished_wall LIMIT ?",
        (TRIM_STEP,),
    )
    try:
        return beyond_retention(oldest, finished - max_results, size - max_bytes, older_than_wall)
    finally:
        oldest.close()


def _has_digest(db: sqlite3.Connection, digest: bytes) -> bool:
    return db.execute("SELECT 1 FROM evaluations WHERE digest = ? LIMIT 1", (digest,)).fetchone() is not None


def _delete(db: sqlite3.Connection, deleted: Sequence[Row]) -> None:
    _bulk(db, "DELETE FROM evaluations WHERE number IN (VALUES {})", [(number,) for number, *_ in deleted])
    uses = Counter(result for _, result, *_ in deleted)
    _bulk(
        db,
        "UPDATE results SET uses = uses - v.column2 FROM (VALUES {}) AS v WHERE results.number = v.column1",
        list(uses.items()),
    )
    _bulk(db, "DELETE FROM results WHERE uses <= 0 AND number IN (VALUES {})", [(result,) for result in uses])


# Reading


def _recover(db: sqlite3.Connection) -> Recovered:
    jobs = db.execute(
        "SELECT j.id, j.share, p.payload, j.attempts, j.crashes, j.unlucky_nodes, j.token, j.node_id, j.instance_id,"
        " j.placed_wall, coalesce(t.trace, '') FROM jobs AS j JOIN payloads AS p ON p.number = j.number"
        " LEFT JOIN traces AS t ON t.number = j.number ORDER BY j.number"
    )
    evaluations = db.execute(f"{_EVALUATION} WHERE e.result IS NULL ORDER BY e.number")
    drained = db.execute("SELECT node_id FROM drained_nodes ORDER BY node_id")
    quarantined = db.execute("SELECT digest, reason, since_wall, until_wall FROM quarantines ORDER BY since_wall")
    return Recovered(
        [job_of(row) for row in jobs],
        [evaluation_of(row) for row in evaluations],
        [node_id for (node_id,) in drained],
        [Quarantined(*row) for row in quarantined],
    )


def _label_condition(name: str, value: str) -> tuple[str, list[Any]]:
    # The text may also match across pairs. This condition only saves most rows the exact and slower comparison.
    return "instr(e.labels, ?) AND has_label(e.labels, ?, ?)", [to_json({name: value})[1:-1], name, value]

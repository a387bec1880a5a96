"""The store of the active scheduler in PostgreSQL: one transaction for each batch, and its epoch as a fence in each.

There are three connections, as with SQLite: one for writes in the journal's thread, one for short reads in the event loop,
and one for listings in any thread. A broken one is opened again by the next call. While PostgreSQL is away, reads in the
event loop fail at once for a moment after each failure, so that they do not block it one after the other.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import psycopg
from psycopg.errors import Diagnostic

from kerneldyno.scheduler.clock import lived_seconds
from kerneldyno.scheduler.core.model import Key
from kerneldyno.scheduler.core.ports import Filter, RoleLostError, StoreUnreachableError
from kerneldyno.scheduler.core.records import CachedResult, Quarantined, Record, Recovered, StoredEvaluation
from kerneldyno.scheduler.failpoints import failpoint, is_armed
from kerneldyno.scheduler.store.membership import MembershipFilter
from kerneldyno.scheduler.store.postgres import writing
from kerneldyno.scheduler.store.postgres.columns import register
from kerneldyno.scheduler.store.postgres.connection import PgConnection, connect, plain
from kerneldyno.scheduler.store.postgres.role import session_name
from kerneldyno.scheduler.store.postgres.tenure import Tenure
from kerneldyno.scheduler.store.postgres.writing import Growth
from kerneldyno.scheduler.store.row_batch import RowBatch
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

_log = logging.getLogger(__name__)

#: Time limits in seconds of one wait for the server: of a batch, of a read in the event loop, of a listing.
WRITE_SECONDS, READ_SECONDS, LIST_SECONDS = 15.0, 1.0, 30.0
#: Seconds for which reads fail at once after one has failed.
PAUSE_SECONDS = 0.5
#: A transaction whose client is silent for this long is ended, so that its locks are free; also the wait for a lock.
_IDLE, _LOCK = "5s", "3s"

_EVALUATION = f"""
SELECT {EVALUATION_COLUMNS}, {RESULT_COLUMNS}, e.trace, e.speedup_kind, e.grace_seconds
FROM evaluations AS e LEFT JOIN results AS r ON r.number = e.result
"""
_RESULTS_OF_DIGEST = f"""
SELECT r.number, {RESULT_COLUMNS} FROM evaluations AS e JOIN results AS r ON r.number = e.result
WHERE e.digest = %s AND r.cacheable ORDER BY e.number DESC LIMIT {CACHE_DEPTH}
"""
_OLDEST = f"""
SELECT e.number, e.result, e.finished_wall, octet_length(r.payload), e.client_id, e.id, e.digest
FROM evaluations AS e JOIN results AS r ON r.number = e.result
WHERE e.result IS NOT NULL ORDER BY e.finished_wall, e.number LIMIT {TRIM_STEP}
"""
_JOBS = """
SELECT j.id, j.share, p.payload, j.attempts, j.crashes, j.unlucky_nodes, j.token, j.node_id, j.instance_id, j.placed_wall,
    e.trace
FROM jobs AS j JOIN payloads AS p ON p.number = j.number JOIN evaluations AS e ON e.number = j.number ORDER BY j.number
"""
#: Fails with a division by zero if another scheduler has taken over, or if this batch or a later one is there already.
_FENCE = """
WITH fence AS (
    UPDATE scheduler_role SET batch = %s, last_evaluation = %s, last_result = %s WHERE epoch = %s AND batch < %s RETURNING 1
)
SELECT 1 / count(*) FROM fence
"""


class PostgresStore:
    """The durable memory of the active scheduler. Implements Store."""

    name = "postgres"

    @property
    def tenure(self) -> Tenure:
        """The role of this process."""
        return self._tenure

    def __init__(self, url: str, tenure: Tenure, instance: str) -> None:
        """Read what is needed in memory.

        Args:
            url: The database. Its tables are there (migrations.prepare).
            tenure: The role of this process.
            instance: The name of this process in the row of the role.

        Raises:
            StoreUnreachableError: The database does not answer.
        """
        self._url = url
        self._tenure = tenure
        self._instance = instance
        # Few rows of a batch meet many of a table: the index is right, whatever the statistics of a young table say.
        plans = {f"enable_{plan}": "off" for plan in ("seqscan", "hashjoin", "mergejoin", "material")}
        session = {"idle_in_transaction_session_timeout": _IDLE, "lock_timeout": _LOCK, "jit": "off", **plans}
        reads = {"default_transaction_read_only": "on", "jit": "off"}
        self._writer = _Line(lambda: self._connect("writer", WRITE_SECONDS, session), self._writer_opened)
        self._reader = _Line(lambda: self._connect("reader", READ_SECONDS, reads))
        self._lister = _Line(lambda: self._connect("lister", LIST_SECONDS, reads))
        self._listing = threading.Lock()
        self._totals = Growth()
        self._warned = False
        self._batch = 0
        # A batch whose COMMIT got no answer, and its number: if it comes again, it may be there already.
        self._doubtful: tuple[Sequence[Record], int] | None = None
        with self._writer.use() as connection:
            row = connection.execute("SELECT last_evaluation, last_result FROM scheduler_role").fetchone()
            assert row is not None, "a migration inserts the row, and nothing deletes it"
            self._last_evaluation, self._last_result = row
            everything = connection.execute("SELECT client_id, id, digest FROM evaluations")
            self._membership = MembershipFilter((client_id, own_id, digest) for client_id, own_id, digest in everything)

    def recover(self) -> Recovered:
        """Return what was unfinished, in order of acceptance. Raises StoreUnreachableError."""
        with self._writer.use() as connection:
            jobs = [job_of(row) for row in connection.execute(_JOBS)]
            unfinished = connection.execute(f"{_EVALUATION} WHERE e.result IS NULL ORDER BY e.number".encode())
            evaluations = [evaluation_of(row) for row in unfinished]
            drained = connection.execute("SELECT node_id FROM drained_nodes ORDER BY node_id")
            nodes = [node_id for (node_id,) in drained]
            quarantined = connection.execute(
                "SELECT digest, reason, since_wall, until_wall FROM quarantines ORDER BY since_wall"
            )
            return Recovered(jobs, evaluations, nodes, [Quarantined(*row) for row in quarantined])

    def write(self, records: Sequence[Record]) -> None:
        """Apply `records` in order, all or none; they are durable when this returns.

        Raises:
            StoreUnreachableError: Try again with the same sequence, which is recognised if it is there already.
            RoleLostError: Another scheduler has taken over.
            psycopg.Error: The database refuses a record.
        """
        batch = RowBatch(records, self._last_evaluation, self._last_result)
        # Before the commit, because other threads see the rows from then on.
        self._membership.add((row[1], row[2], row[4]) for row in batch.evaluations)
        doubtful = self._doubtful[1] if self._doubtful is not None and self._doubtful[0] is records else None
        self._transact(
            lambda connection: writing.apply(connection, batch),
            (batch.last_evaluation, batch.last_result),
            "during_commit",
            records,
            doubtful,
        )
        self._last_evaluation, self._last_result = batch.last_evaluation, batch.last_result

    def find(self, key: Key) -> StoredEvaluation | None:
        """Return the evaluation with this key, or None if it is unknown or was deleted. Raises StoreUnreachableError."""
        if not self._membership.may_have_key(key):
            return None
        self._require_role()
        with self._reader.use(pause=True) as connection:
            query = f"{_EVALUATION} WHERE e.client_id = %s AND e.id = %s"
            row = connection.execute(query.encode(), key).fetchone()
        return None if row is None else evaluation_of(row)

    def cached(self, digest: bytes, environments: Collection[bytes]) -> CachedResult | None:
        """Return the newest cacheable result of `digest` on one of `environments`. Raises StoreUnreachableError."""
        if not self._membership.may_have_digest(digest):
            return None
        self._require_role()
        with self._reader.use(pause=True) as connection:
            rows = connection.execute(_RESULTS_OF_DIGEST.encode(), (digest,)).fetchall()
        for number, *row in rows:
            if row[-1] in environments:
                return CachedResult(number, verdict_of(tuple(row), cached=False))
        return None

    def list(self, which: Filter, before: int | None, limit: int) -> list[StoredEvaluation]:
        """Return evaluations with a number below `before`, newest first. May be called in any thread, and may be slow."""
        conditions, values = conditions_of(which, before, _label_condition)
        where = f"WHERE {' AND '.join(conditions)}".replace("?", "%s") if conditions else ""
        # A subquery selects the numbers first, so that sorting and skipping do not read the payloads.
        numbers = f"SELECT e.number FROM evaluations AS e {where} ORDER BY e.number DESC LIMIT %s"
        query = f"{_EVALUATION} WHERE e.number IN ({numbers}) ORDER BY e.number DESC"
        with self._listing, self._lister.use() as connection:
            rows = connection.execute(query.encode(), (*values, limit), prepare=False).fetchall()
        return [evaluation_of(row) for row in rows]

    def trim(self, *, max_results: int, max_bytes: int, older_than_wall: float) -> int:
        """Delete up to TRIM_STEP finished evaluations that are too old or too many, and return how many.

        Raises:
            StoreUnreachableError: The database does not answer.
            RoleLostError: Another scheduler has taken over.
        """
        with self._writer.use() as connection:
            totals = self._totals
            oldest = connection.execute(_OLDEST.encode())
            deleted = beyond_retention(oldest, totals.finished - max_results, totals.size - max_bytes, older_than_wall)
        if deleted:
            last = (self._last_evaluation, self._last_result)
            self._transact(lambda connection: writing.delete(connection, deleted), last, "during_trim")
            members = [(client_id, own_id, digest) for _, _, client_id, own_id, digest in deleted]
            self._membership.remove(members, self._with_digests([digest for *_, digest in members]))
        return len(deleted)

    def close(self) -> None:
        """Close the connections, and let a standby begin."""
        for line in (self._lister, self._reader, self._writer):
            line.close()
        self._tenure.close()

    # Writing

    def _transact(
        self,
        send: Callable[[PgConnection], Callable[[], Growth]],
        last: tuple[int, int],
        place: str,
        records: Sequence[Record] = (),
        doubtful: int | None = None,
    ) -> None:
        """Run what `send` sends in a transaction that begins with the fence.

        Args:
            send: Sends the statements, and returns how to read what they added.
            last: The last numbers of evaluations and results after the transaction.
            place: The failpoint before COMMIT.
            records: The batch.
            doubtful: The number of this batch if it may be there already.
        """
        if self._tenure.lost is not None:
            raise RoleLostError(self._tenure.lost)
        self._batch += 1
        number, epoch = doubtful or self._batch, self._tenure.epoch
        stops = is_armed(place)
        self._warned = False
        self._doubtful = (records, number)
        with self._writer.use() as connection:
            try:
                # One round trip. If the fence fails, the server skips the rest up to the end of the pipeline.
                with connection.pipeline():
                    connection.execute("BEGIN")
                    connection.execute(_FENCE.encode(), (number, *last, epoch, number))
                    growth = send(connection)
                    if not stops:
                        connection.execute("COMMIT")
            except psycopg.errors.DivisionByZero:
                connection.execute("ROLLBACK")
                self._examine(connection, number, epoch)
                # The server may have been committing still when this connection was opened and the totals were counted.
                self._totals = _counted(connection)
                growth = Growth
            else:
                if stops:
                    failpoint(place)
                    connection.execute("COMMIT")
            if self._warned:
                raise psycopg.OperationalError("the commit did not wait for the synchronous standby")
            self._doubtful = None
            grown = growth()
            self._totals = Growth(self._totals.finished + grown.finished, self._totals.size + grown.size)

    def _examine(self, connection: PgConnection, number: int, epoch: int) -> None:
        """Find out why the fence failed. Return if the batch is there already, and is durable."""
        row = connection.execute("SELECT epoch, batch, address FROM scheduler_role").fetchone()
        assert row is not None, "a migration inserts the row, and nothing deletes it"
        if row[0] != epoch:
            self._tenure.end(row[0], row[2])
            raise RoleLostError(self._tenure.lost)
        assert row[1] == number, "numbers of batches only grow"
        # If its COMMIT was not confirmed by the replicas, this one is, and it comes later in the log.
        connection.execute("UPDATE scheduler_role SET batch = batch WHERE epoch = %s", (epoch,))

    def _require_role(self) -> None:
        """Raise StoreUnreachableError if this process may not be the active scheduler: others may have written meanwhile.

        It also keeps the event loop from connecting again and again to a database that does not answer.
        """
        if not self._tenure.certain:
            raise StoreUnreachableError(
                self._tenure.lost or "PostgreSQL confirmed the role of this scheduler too long ago"
            )

    def _with_digests(self, digests: Sequence[bytes]) -> set[bytes]:
        with self._writer.use() as connection:
            rows = connection.execute(
                "SELECT DISTINCT digest FROM evaluations WHERE digest = ANY(%s::bytea[])", ([*digests],)
            )
            return {digest for (digest,) in rows}

    # Connections

    def _connect(self, use: str, limit_seconds: float, settings: dict[str, str]) -> PgConnection:
        name = session_name(self._instance, use)
        return connect(self._url, name=name, limit_seconds=limit_seconds, settings=settings)

    def _writer_opened(self, connection: PgConnection) -> None:
        register(connection)
        connection.add_notice_handler(self._noticed)
        # Never less than the disk and the synchronous standbys of the server, whatever the default of database or role is.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', FALSE)"
            " WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"
        )
        self._totals = _counted(connection)

    def _noticed(self, notice: Diagnostic) -> None:
        # With a COMMIT, it says that the wait for the synchronous standby was cancelled.
        self._warned = self._warned or notice.severity_nonlocalized == "WARNING"
        _log.warning("event=store_notice sqlstate=%s text=%r", notice.sqlstate, notice.message_primary)


class _Line:
    """A connection that is opened again when it is broken."""

    def __init__(
        self, opens: Callable[[], PgConnection], opened: Callable[[PgConnection], None] = lambda connection: None
    ) -> None:
        self._opens = opens
        self._opened = opened
        self._connection: PgConnection | None = None
        self._failed_at = -PAUSE_SECONDS
        self._failure = ""

    @contextlib.contextmanager
    def use(self, *, pause: bool = False) -> Iterator[PgConnection]:
        """Yield the connection, and leave no transaction open.

        Args:
            pause: Fail at once if the last use failed a moment ago.

        Raises:
            StoreUnreachableError: The server is away, or the operation did not end in time.
            psycopg.Error: The server refuses a statement.
        """
        if pause and lived_seconds() - self._failed_at < PAUSE_SECONDS:
            raise StoreUnreachableError(self._failure)
        try:
            if self._connection is None:
                self._connection = self._opens()
                self._opened(self._connection)
            yield self._connection
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction) as error:
            self.close()
            self._failed_at, self._failure = lived_seconds(), f"PostgreSQL: {plain(error)}"
            raise StoreUnreachableError(self._failure) from error
        except BaseException:
            self.close()  # its transaction is rolled back by the server
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()


def _counted(connection: PgConnection) -> Growth:
    row = connection.execute(
        "SELECT (SELECT count(*) FROM evaluations WHERE result IS NOT NULL),"
        " (SELECT coalesce(sum(octet_length(payload)), 0)::bigint FROM results)"
    ).fetchone()
    assert row is not None, "an aggregate has one row"
    return Growth(*row)


def _label_condition(name: str, value: str) -> tuple[str, list[Any]]:
    return "strpos(e.labels, ?) > 0", [writing.label_line(name, value)]

"""Which of several schedulers on one PostgreSQL writes: a row with an epoch, and a row with a beat.

The active scheduler raises the beat several times in each lease. A standby reads both rows, and measures on its own
monotonic clock for how long they have not changed. After a whole lease it takes over: it raises the epoch, if nobody else
has done so meanwhile. Every batch of the former scheduler names its own epoch in its transaction, and is refused from
then on. No clocks of two machines are compared, and no time is stored.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, replace

import psycopg

from kerneldyno.scheduler.core.ports import StoreUnreachableError
from kerneldyno.scheduler.store.postgres.connection import PgConnection, connect, plain

_log = logging.getLogger(__name__)

#: Milliseconds for which a take-over waits for locks of the former scheduler before it tries again.
_LOCK_MILLISECONDS = 1_000
_READ = """
SELECT b.epoch, b.beat, b.lease_seconds, b.released, r.address, r.takeovers, r.instance
FROM scheduler_beat AS b JOIN scheduler_role AS r ON r.id = b.id
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """What the rows say about the scheduler that is active, or was the last one."""

    epoch: int
    beat: int
    lease_seconds: float
    released: bool
    """True if it ended in order, or if there never was one: anybody may begin at once."""
    address: str
    """host:port where clients and nodes reach it; empty if it does not say."""
    takeovers: int
    """How often a scheduler took over from one that had not ended in order."""
    instance: str

    @property
    def life(self) -> tuple[int, int]:
        """What changes as long as a scheduler lives."""
        return self.epoch, self.beat


class RoleRows:
    """The two rows, over a connection of its own. Use it in one thread at a time."""

    def __init__(self, url: str, instance: str, address: str, lease_seconds: float) -> None:
        """Describe this process.

        Args:
            url: The database.
            instance: A random name of this process.
            address: host:port where clients and nodes reach it, or "".
            lease_seconds: How long its beat may stand still until another scheduler may take over.
        """
        self._url = url
        self._instance = instance
        self._address = address
        self._lease_seconds = lease_seconds
        self._connection: PgConnection | None = None

    def read(self) -> Claim:
        """Return what the rows say now. Raises StoreUnreachableError."""
        try:
            row = self._connected().execute(_READ).fetchone()
        except psycopg.Error as error:
            raise self._broken(error) from error
        assert row is not None, "a migration inserts the rows, and nothing deletes them"
        return Claim(*row)

    def take(self, seen: Claim) -> Claim | None:
        """Become the active scheduler if the rows have not changed since `seen`; return None if they have.

        Raises:
            StoreUnreachableError: The database does not answer, or the former scheduler still holds a lock: try again.
        """
        try:
            connection = self._connected()
            if not seen.released:
                self._end_sessions_of(connection, seen)
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}".encode())
                # The row of the role is changed with it: the fence counts only if it is as durable as the batches.
                connection.execute("SET LOCAL synchronous_commit = on")
                taken = connection.execute(
                    "UPDATE scheduler_beat SET epoch = epoch + 1, beat = beat + 1, lease_seconds = %s, released = FALSE"
                    " WHERE epoch = %s AND beat = %s",
                    (self._lease_seconds, *seen.life),
                )
                if taken.rowcount != 1:
                    return None
                connection.execute(
                    "UPDATE scheduler_role SET epoch = %s, instance = %s, address = %s, takeovers = takeovers + %s,"
                    " batch = 0",
                    (seen.epoch + 1, self._instance, self._address, int(not seen.released)),
                )
        except psycopg.Error as error:
            raise self._broken(error) from error
        return replace(
            seen,
            epoch=seen.epoch + 1,
            beat=seen.beat + 1,
            lease_seconds=self._lease_seconds,
            released=False,
            address=self._address,
            takeovers=seen.takeovers + (not seen.released),
            instance=self._instance,
        )

    def beat(self, epoch: int) -> bool:
        """Show that the scheduler of `epoch` lives; return False if there is a newer one. Raises StoreUnreachableError."""
        try:
            # It need not survive a crash of the database, so it waits neither for a disk nor for a replica.
            with (connection := self._connected()).transaction():
                connection.execute("SET LOCAL synchronous_commit = off")
                found = connection.execute("UPDATE scheduler_beat SET beat = beat + 1 WHERE epoch = %s", (epoch,))
        except psycopg.Error as error:
            raise self._broken(error) from error
        return found.rowcount == 1

    def release(self, epoch: int) -> None:
        """Let a standby begin at once. Raises StoreUnreachableError."""
        try:
            self._connected().execute(
                "UPDATE scheduler_beat SET released = TRUE, beat = beat + 1 WHERE epoch = %s", (epoch,)
            )
        except psycopg.Error as error:
            raise self._broken(error) from error

    def close(self) -> None:
        """Close the connection. The next call opens another."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
        self._connection = None

    def _connected(self) -> PgConnection:
        if self._connection is None:
            # A part of the lease, so that several attempts fit into one.
            limit = max(0.5, self._lease_seconds / 3)
            settings = {
                "lock_timeout": f"{limit:g}s",
                "idle_in_transaction_session_timeout": f"{self._lease_seconds:g}s",
            }
            self._connection = connect(
                self._url, name=session_name(self._instance, "role"), limit_seconds=limit, settings=settings
            )
        return self._connection

    def _broken(self, error: psycopg.Error) -> StoreUnreachableError:
        self.close()
        return StoreUnreachableError(f"PostgreSQL: {plain(error)}")

    def _end_sessions_of(self, connection: PgConnection, former: Claim) -> None:
        """End the connections of the former scheduler: a stopped process may hold locks in an open transaction.

        This only makes the take-over faster. What keeps the former scheduler from writing is the epoch.
        """
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE starts_with(application_name, %s)"
            " AND datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()",
            (session_name(former.instance, ""),),
        ).fetchall()
        if ended:
            _log.info("event=former_sessions_ended epoch=%d sessions=%d", former.epoch, len(ended))


def session_name(instance: str, use: str) -> str:
    """Return the name of a connection in pg_stat_activity. PostgreSQL keeps 63 characters."""
    return f"kerneldyno {instance[:32]} {use}"

"""The way of a scheduler to its role: it prepares the database, watches the active scheduler, and takes over in its turn."""

from __future__ import annotations

import logging
import time
import uuid

import psycopg

from kerneldyno.scheduler.clock import lived_seconds
from kerneldyno.scheduler.core.ports import StoreError, StoreUnreachableError
from kerneldyno.scheduler.store.postgres import durability, migrations
from kerneldyno.scheduler.store.postgres.connection import connect, plain
from kerneldyno.scheduler.store.postgres.role import Claim, RoleRows, session_name
from kerneldyno.scheduler.store.postgres.store import PostgresStore
from kerneldyno.scheduler.store.postgres.tenure import Tenure

_log = logging.getLogger(__name__)

#: Looks at the rows in one lease.
LOOKS_IN_LEASE = 10
#: Time limit in seconds of each statement that prepares the database.
PREPARE_SECONDS = 60.0


class Contender:
    """One process that wants to be the active scheduler. Its methods block; use them in one thread at a time."""

    def __init__(self, url: str, name: str, *, address: str = "", lease_seconds: float) -> None:
        """Describe the process.

        Args:
            url: The database.
            name: How messages call the database: without its password.
            address: host:port where clients and nodes reach it, or "".
            lease_seconds: How long its own beat may stand still until another one may take over.
        """
        self.lease_seconds = lease_seconds
        self.claim: Claim | None = None
        """What the rows said at the last look; None if it failed."""
        self._url = url
        self._name = name
        self._instance = uuid.uuid4().hex
        self._rows = RoleRows(url, self._instance, address, lease_seconds)
        self._changed_at = 0.0

    def prepare(self) -> None:
        """Make or migrate the tables, and log what a failover of the database would lose.

        Raises:
            StoreError: The database cannot be reached, or its tables cannot be used.
        """
        try:
            name = session_name(self._instance, "migration")
            with connect(self._url, name=name, limit_seconds=PREPARE_SECONDS) as connection:
                migrations.prepare(connection, self._name)
                found = durability.look(connection)
        except psycopg.Error as error:
            raise StoreError(f"cannot use the store {self._name}: {plain(error)}") from error
        log = _log.info if found.safe else _log.warning
        log(
            "event=store_durability synchronous_commit=%s synchronous_standby_names=%r fsync=%s replicas=%d"
            " lost_at_failover=%r note=%r",
            *(found.synchronous_commit, found.synchronous_standby_names, found.fsync, found.replicas),
            *(found.risk, found.note),
        )

    def look(self) -> None:
        """Read the rows, and note when they changed. After a look that failed, the measurement begins anew: while the
        database was away, nobody could raise the beat."""
        try:
            claim = self._rows.read()
        except StoreUnreachableError:
            self.claim = None
            raise
        if self.claim is None or claim.life != self.claim.life:
            self._changed_at = lived_seconds()
        self.claim = claim

    @property
    def silence(self) -> float:
        """Seconds for which the rows have not changed, as far as this process has seen."""
        return lived_seconds() - self._changed_at

    @property
    def wait_seconds(self) -> float:
        """Seconds until the take-over is due, if the active scheduler gives no sign."""
        if self.claim is None or self.claim.released:
            return self.lease_seconds
        return max(0.0, max(self.lease_seconds, self.claim.lease_seconds) - self.silence)

    @property
    def due(self) -> bool:
        """Return True if the role is free: released, or its holder was silent for a lease."""
        return self.claim is not None and (self.claim.released or self.wait_seconds <= 0)

    def take(self) -> PostgresStore | None:
        """Become the active scheduler, and read the store; return None if another one was faster.

        Raises:
            StoreUnreachableError: The database does not answer. Look again.
        """
        assert self.claim is not None, "call it when `due`"
        began, seen = lived_seconds(), self.claim
        taken = self._rows.take(seen)
        if taken is None:
            return None
        tenure = Tenure(self._rows, taken, began)
        _log.info(
            "event=role_taken epoch=%d former_released=%s former_address=%s silence_seconds=%.1f takeovers=%d",
            *(taken.epoch, seen.released, seen.address or "-", self.silence, taken.takeovers),
        )
        try:
            return PostgresStore(self._url, tenure, self._instance)
        except BaseException:
            tenure.close()
            raise

    def wait(self) -> PostgresStore:
        """Wait until the role is free, and take it. Raises StoreUnreachableError."""
        while True:
            self.look()
            if self.due and (store := self.take()) is not None:
                return store
            time.sleep(self.pause_seconds)

    @property
    def pause_seconds(self) -> float:
        """Seconds between two looks."""
        return self.lease_seconds / LOOKS_IN_LEASE

    def close(self) -> None:
        """Close the connection."""
        self._rows.close()

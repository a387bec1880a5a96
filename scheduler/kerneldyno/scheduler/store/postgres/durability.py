"""What a failover of the database would lose, as its settings say."""

from __future__ import annotations

from dataclasses import dataclass

from kerneldyno.scheduler.store.postgres.connection import PgConnection

#: Values of synchronous_commit with which a commit waits for the standbys' disks.
WAITING = ("on", "remote_apply")


@dataclass(frozen=True, slots=True)
class Durability:
    """Settings of the database that decide what survives."""

    synchronous_commit: str
    """The default of the session. The scheduler's writes use "on" if it is less."""
    synchronous_standby_names: str
    fsync: bool
    full_page_writes: bool
    replicas: int
    synchronous: int | None
    """Connected replicas that commits wait for; None if the role may not see it (it needs pg_monitor)."""

    @property
    def safe(self) -> bool:
        """Return True if the loss of one machine loses no commit that was told."""
        return self.fsync and self.full_page_writes and bool(self.synchronous_standby_names)

    @property
    def risk(self) -> str:
        """What a failover, or the loss of the database's machine, would lose."""
        if not self.fsync or not self.full_page_writes:
            return "everything: with fsync or full_page_writes off, a crash of the machine may damage the database"
        if self.synchronous_standby_names:
            if self.synchronous == 0:
                return "nothing; but no synchronous standby is connected, so every commit waits for one"
            return "nothing: each commit waits for the synchronous standbys"
        if self.replicas:
            return "the last commits, which the replicas had not received: synchronous_standby_names is empty"
        return "everything since the last backup: there is no replica"

    @property
    def note(self) -> str:
        """What else to know; empty if nothing."""
        if self.synchronous_commit in WAITING:
            return ""
        return f"synchronous_commit is {self.synchronous_commit}; the scheduler's writes use on"


def look(connection: PgConnection) -> Durability:
    """Read the settings. Raises psycopg.Error."""
    row = connection.execute(
        "SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),"
        " current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on',"
        " (SELECT count(*) FROM pg_stat_replication),"
        " (SELECT count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) FROM pg_stat_replication),"
        " (SELECT count(*) FILTER (WHERE sync_state IS NULL) FROM pg_stat_replication)"
    ).fetchone()
    assert row is not None, "an expression has one row"
    commit, names, fsync, pages, replicas, synchronous, hidden = row
    return Durability(commit, names, fsync, pages, replicas, None if hidden else synchronous)

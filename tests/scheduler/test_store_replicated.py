"""Tests of the store in a PostgreSQL with a synchronous standby: what was told survives the primary."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from kerneldyno.scheduler.core.ports import Filter
from kerneldyno.scheduler.core.records import Record
from kerneldyno.scheduler.store.postgres import durability
from kerneldyno.scheduler.store.postgres.connection import connect
from kerneldyno.scheduler.store.postgres.store import PostgresStore
from tests.postgres import PostgresServer
from tests.scheduler.postgres_store import open_postgres
from tests.scheduler.store_records import accepted
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

REPLICATED = {"wal_level": "replica", "max_wal_senders": "4"}
WAITING = {"synchronous_standby_names": "ANY 1 (replica)", "synchronous_commit": "local"}


@pytest.fixture
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    primary = PostgresServer(settings=REPLICATED | WAITING)
    servers = [primary]
    try:
        servers.append(PostgresServer(settings=REPLICATED, replica_of=primary))
        query = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'"
        wait_until(lambda: primary.execute(query) == [(1,)], "the standby is synchronous", 20)
        yield primary, servers[1]
    finally:
        for server in servers:
            server.close()


def both(primary: PostgresServer, replica: PostgresServer) -> str:
    """Return a URL with both servers. One of them is the primary."""
    hosts = ",".join(quote(str(server.folder), safe="") for server in (primary, replica))
    return f"postgresql:///postgres?host={hosts}&port={primary.port},{replica.port}&user=test"


def written(store: PostgresStore, records: list[Record]) -> None:
    """Write a batch, and try again until it succeeds, as the journal does."""

    def succeeds() -> bool:
        try:
            store.write(records)
        except OSError:
            return False
        return True

    wait_until(succeeds, "the batch is written", 30)


def test_a_failover_keeps_what_was_told_and_the_role(pair: tuple[PostgresServer, PostgresServer]) -> None:
    primary, replica = pair
    store = open_postgres(both(primary, replica), lease_seconds=30.0)
    with connect(both(primary, replica), name="test", limit_seconds=5) as connection:
        found = durability.look(connection)
    assert (found.safe, found.synchronous, found.synchronous_commit) == (False, 1, "local"), "fsync is off in tests"
    for i in range(100):
        store.write([accepted(i)])
    primary.stop(signal.SIGQUIT)
    assert replica.execute("SELECT pg_promote()") == [(True,)]
    written(store, [accepted("after")])
    assert len(store.list(Filter(), None, 1000)) == 101
    assert store.tenure.lost is None
    store.close()


def test_nobody_is_told_of_a_commit_whose_wait_for_the_standby_was_cancelled(
    pair: tuple[PostgresServer, PostgresServer],
) -> None:
    primary, replica = pair
    store = open_postgres(primary.url)
    store.write([accepted("a")])
    replica.stop(signal.SIGINT)
    batch: list[Record] = [accepted("b")]
    failures: list[OSError] = []

    def write() -> None:
        try:
            store.write(batch)
        except OSError as error:
            failures.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    wait_until(lambda: primary.execute(f"SELECT count(*) {waiting}") == [(1,)], "the commit waits", 10)
    primary.execute(f"SELECT pg_cancel_backend(pid) {waiting}")
    writing.join(20)
    assert len(failures) == 1
    assert "did not wait for the synchronous standby" in str(failures[0])
    assert len(store.list(Filter(), None, 10)) == 2, "it is committed, but only here"
    retried = threading.Thread(target=written, args=(store, batch))
    retried.start()
    wait_until(lambda: primary.execute(f"SELECT count(*) {waiting}") == [(1,)], "the retry waits as well", 10)
    replica.start()
    retried.join(30)
    assert not retried.is_alive()
    assert [one.key.id for one in store.list(Filter(), None, 10)] == ["b", "a"]
    store.close()

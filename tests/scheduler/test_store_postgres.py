"""Tests of the store in PostgreSQL: its migrations, its fence, commits without an answer, and a server that is away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from kerneldyno.scheduler.core.ports import Filter, RoleLostError, StoreError, StoreUnreachableError
from kerneldyno.scheduler.core.records import Drained
from kerneldyno.scheduler.settings import Settings, without_password
from kerneldyno.scheduler.store.journal import GroupCommitJournal
from kerneldyno.scheduler.store.postgres import durability, migrations
from kerneldyno.scheduler.store.postgres import store as store_module
from kerneldyno.scheduler.store.postgres.columns import column
from kerneldyno.scheduler.store.postgres.connection import PgConnection, connect
from kerneldyno.scheduler.store.postgres.contender import Contender
from kerneldyno.scheduler.store.postgres.migrations import Migration
from kerneldyno.scheduler.store.postgres.store import PostgresStore
from tests.postgres import PostgresServer
from tests.scheduler.postgres_store import open_postgres
from tests.scheduler.scheduler_harness import failing
from tests.scheduler.store_records import accepted, correct, finished, job_of, key, placed
from tests.waiting import eventually, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.schema()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    opened = open_postgres(url)
    yield opened
    opened.close()


def names(store: PostgresStore) -> list[str]:
    return [evaluation.key.id for evaluation in store.list(Filter(), None, 1000)]


def prepared(url: str) -> None:
    with connect(url, name="test", limit_seconds=10) as connection:
        migrations.prepare(connection, "the database")


# Migrations


def test_schedulers_that_start_together_make_the_tables_once(url: str) -> None:
    problems: list[BaseException] = []

    def start() -> None:
        try:
            prepared(url)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_tables_of_another_program_are_left_alone(postgres: PostgresServer, url: str) -> None:
    postgres.execute("CREATE TABLE jobs (salary INTEGER)", url)
    for _ in range(2):
        with pytest.raises(StoreError, match="tables of another program"):
            prepared(url)
    assert postgres.execute("SELECT count(*) FROM jobs", url) == [(0,)]


def test_two_versions_run_on_one_schema_until_the_newer_one_says_no(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = migrations.MIGRATIONS
    newer = (*older, Migration(readable_by=1, statements="ALTER TABLE evaluations ADD hint TEXT NOT NULL DEFAULT ''"))
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", newer)
        patch.setattr(migrations, "VERSION", len(newer))
        prepared(url)  # as a standby of the newer version does, while the older one is active
    store.write([accepted("a"), placed("a"), finished("a")])
    store.close()
    prepared(url)  # the older version starts again
    again = open_postgres(url)
    again.write([accepted("b")])
    assert names(again) == ["b", "a"]
    again.close()
    last = (*newer, Migration(readable_by=3, statements="ALTER TABLE evaluations RENAME hint TO clue"))
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", last)
        patch.setattr(migrations, "VERSION", len(last))
        prepared(url)
    with pytest.raises(
        StoreError, match=r"changed by a newer KernelDyno \(schema 3, readable by 3; this one knows 1\)"
    ):
        prepared(url)


def test_a_migration_that_fails_changes_nothing(
    postgres: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(url)
    with monkeypatch.context() as patch:
        broken = Migration(readable_by=1, statements="CREATE TABLE extra (number BIGINT); SELECT nonsense FROM nowhere")
        patch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, broken))
        patch.setattr(migrations, "VERSION", 2)
        with pytest.raises(psycopg.errors.UndefinedTable):
            prepared(url)
    assert postgres.execute("SELECT to_regclass('extra') IS NULL, (SELECT max(version) FROM schema_versions)", url) == [
        (True, 1)
    ]


# The fence


def test_who_was_taken_over_from_can_write_and_delete_nothing(url: str) -> None:
    former = open_postgres(url)
    former.write([accepted("a"), finished("a")])
    store = open_postgres(url, address="b:1")
    for _ in range(2):
        with pytest.raises(RoleLostError, match=r"another one \(b:1\) took over with epoch 2; this one had 1"):
            former.write([accepted("b")])
    with pytest.raises(RoleLostError):
        former.trim(max_results=0, max_bytes=0, older_than_wall=1e9)
    assert (former.tenure.certain, former.tenure.successor) == (False, "b:1")
    with pytest.raises(StoreUnreachableError, match="took over with epoch 2"):
        former.find(key("a"))  # what it would read may be outdated by what the other one decides
    former.close()
    assert names(store) == ["a"]
    store.write([accepted("b")])
    assert store.find(key("b")).number == 2  # type: ignore[union-attr]
    store.close()


def test_a_take_over_waits_for_no_transaction_of_a_stopped_scheduler(url: str) -> None:
    former = open_postgres(url)
    former.write([accepted("a")])
    refused: list[BaseException] = []

    def write() -> None:
        with failing("during_commit=sleep:4"):  # as SIGSTOP does, with the lock on the row
            try:
                former.write([accepted("b")])
            except (OSError, RoleLostError) as error:
                refused.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    time.sleep(0.3)
    began = time.monotonic()
    store = open_postgres(url, ends_sessions=True)
    assert time.monotonic() - began < 3
    assert names(store) == ["a"]
    writing.join()
    assert len(refused) == 1, "it was told that its batch is durable"
    with pytest.raises(RoleLostError):
        former.write([accepted("b")])
    former.close()
    assert names(store) == ["a"]
    store.close()


def test_of_two_standbys_one_takes_over_after_the_lease_and_the_other_waits_again(url: str) -> None:
    def contender() -> Contender:
        return Contender(url, "the database", lease_seconds=0.6)

    first, second, third = contender(), contender(), contender()
    first.prepare()
    first.look()
    assert first.due, "nobody had it before"
    active = first.take()
    assert active is not None
    second.look()
    assert not second.due
    time.sleep(0.8)
    second.look()
    assert not second.due, "the active one lives"
    active.tenure._closing.set()  # it is dead, and has not released its role
    active.tenure._thread.join()
    second.look()
    third.look()
    assert not second.due
    wait_until(lambda: second.due and third.due, seconds=2)
    taken = second.take()
    assert taken is not None
    assert third.take() is None
    assert taken.tenure.takeovers == 1
    third.look()
    assert not third.due
    taken.close()
    third.look()
    assert third.due, "it was released"
    last = third.take()
    assert last is not None
    assert last.tenure.takeovers == 1, "nothing was taken from anybody"
    assert not active.tenure.certain
    active.close()
    last.close()
    for one in (first, second):
        one.close()


def test_time_without_a_database_does_not_count_as_silence(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_postgres(url, lease_seconds=30.0)
    standby = Contender(url, "the database", lease_seconds=0.3)
    standby.look()
    store.tenure._closing.set()
    with monkeypatch.context() as patch:
        patch.setattr(standby._rows, "_url", "postgresql:///postgres?host=/nowhere")
        standby._rows.close()
        time.sleep(0.4)
        with pytest.raises(StoreUnreachableError):
            standby.look()
        assert not standby.due
    standby.look()
    assert standby.silence < 0.1
    assert standby.wait_seconds > 29, "the lease of the active one counts, if it is longer"
    standby.close()
    store.close()


# Commits without an answer


class Cut(psycopg.OperationalError):
    """The network broke."""


@contextlib.contextmanager
def cut(statement: str, *, after: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Break the connection around the next execution of `statement`: before the server gets it, or before its answer."""
    execute = PgConnection.execute
    broken: list[PgConnection] = []

    def breaking(self: PgConnection, query: Any, *arguments: Any, **options: Any) -> Any:
        if query == statement and not broken:
            broken.append(self)
            if after:
                execute(self, query, *arguments, **options)
            self.close()
            raise Cut("the connection is lost")
        return execute(self, query, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(PgConnection, "execute", breaking)
        yield
    assert broken


def test_totals_include_a_batch_that_the_server_was_still_committing(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next connection counts before the commit of the broken one has ended."""
    store.write([accepted("a")])
    with store._writer.use() as connection:
        connection.execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END'"
        )
        connection.execute(
            "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON results DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION slow()"
        )
    batch = [finished("a")]
    with cut("COMMIT", after=True, monkeypatch=monkeypatch), pytest.raises(OSError, match="connection is lost"):
        store.write(batch)
    store.write(batch)
    assert (store._totals.finished, store._totals.size) == (1, len(b"result"))


@pytest.mark.parametrize("after", [False, True])
def test_a_batch_whose_commit_got_no_answer_is_written_once(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    store.write([accepted("a")])
    batch = [accepted("b"), placed("b"), finished("a"), Drained("n1", True)]
    with cut("COMMIT", after=after, monkeypatch=monkeypatch), pytest.raises(OSError, match="connection is lost"):
        store.write(batch)
    store.write(batch)
    assert names(store) == ["b", "a"]
    assert (store._totals.finished, store._totals.size) == (1, len(b"result"))
    store.write([accepted("c"), finished("b")])
    assert store.find(key("c")).number == 3  # type: ignore[union-attr]
    assert (store._totals.finished, store._totals.size) == (2, 2 * len(b"result"))
    assert store.recover().drained_nodes == ["n1"]


def test_another_batch_after_one_without_an_answer_is_not_taken_for_it(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut("COMMIT", after=False, monkeypatch=monkeypatch), pytest.raises(OSError, match="connection is lost"):
        store.write([accepted("a")])
    store.write([accepted("b")])
    assert names(store) == ["b"]


def test_a_commit_that_did_not_wait_for_the_standby_is_not_durable_yet(
    postgres: PostgresServer, store: PostgresStore, url: str
) -> None:
    batch = [accepted("a")]

    def notice() -> None:
        # What the server says with a COMMIT whose wait for the synchronous standby was cancelled, in any language.
        function = (
            "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE WARNING 'x'; RETURN NULL; END$$"
        )
        postgres.execute(function, url)
        postgres.execute(
            "CREATE CONSTRAINT TRIGGER warns AFTER INSERT ON evaluations DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION warn()",
            url,
        )

    notice()
    with pytest.raises(OSError, match="did not wait"):
        store.write(batch)
    assert postgres.execute("SELECT count(*) FROM evaluations", url) == [(1,)], "it is there, but perhaps only here"
    store.write(batch)  # commits again, later in the log
    assert names(store) == ["a"]


# A server that is away


def test_a_server_that_does_not_answer_blocks_no_read_for_long(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write([accepted("a"), finished("a")])
    with store._reader.use() as connection:
        connection.limit_seconds = 0.5
        pid = connection.info.backend_pid
    os.kill(pid, signal.SIGSTOP)
    pause = store_module.PAUSE_SECONDS
    monkeypatch.setattr(store_module, "PAUSE_SECONDS", 3600.0)  # on a busy machine it could be over too soon
    try:
        began = time.monotonic()
        with pytest.raises(StoreUnreachableError, match=r"did not answer within 0\.5 s"):
            store.find(key("a"))
        assert 0.4 < time.monotonic() - began < 3
        began = time.monotonic()
        with pytest.raises(StoreUnreachableError):
            store.cached(job_of("a"), {b"gpu A"})
        assert time.monotonic() - began < 0.4, "it fails at once for a moment"
        assert store.find(key("unknown")) is None, "no connection is needed for that"
    finally:
        os.kill(pid, signal.SIGCONT)
        monkeypatch.setattr(store_module, "PAUSE_SECONDS", pause)
    time.sleep(0.5)
    assert store.find(key("a")).verdict == correct()  # type: ignore[union-attr]


async def test_a_restart_of_the_server_stalls_the_journal_and_nothing_more() -> None:
    server = PostgresServer()
    try:
        store = open_postgres(server.schema(), lease_seconds=2.0)
        journal = GroupCommitJournal(store, asyncio.get_running_loop())
        told: list[int] = []

        def write(first: int) -> None:
            for i in range(first, first + 20):
                journal.append(accepted(i))
                journal.after_commit(lambda i=i: told.append(i))

        write(0)
        await journal.committed()
        server.stop(signal.SIGQUIT)  # a crash: it recovers from its log
        write(20)
        await eventually(lambda: journal.stalled)
        assert "the store cannot be written" in str(journal.stalled)
        assert told == list(range(20))
        with pytest.raises(StoreUnreachableError):
            store.find(key("0"))
        await eventually(lambda: not store.tenure.certain, 5)
        await asyncio.to_thread(server.start)
        await journal.committed()
        await eventually(lambda: store.tenure.certain, 5)
        assert told == list(range(40))
        assert (store.tenure.epoch, len(names(store))) == (1, 40)
        assert await journal.close()
        store.close()
    finally:
        server.close()


async def test_a_journal_that_lost_its_role_ends_and_tells_nobody(url: str, caplog: pytest.LogCaptureFixture) -> None:
    former = open_postgres(url)
    journal = GroupCommitJournal(former, asyncio.get_running_loop())
    told: list[str] = []
    store = open_postgres(url)
    journal.append(accepted("a"))
    journal.after_commit(lambda: told.append("a"))
    await eventually(lambda: journal.stalled)
    assert "took over with epoch 2" in str(journal.stalled)
    began = time.monotonic()
    assert not await journal.close()
    assert time.monotonic() - began < 3, "it does not wait for what never comes"
    assert (told, names(store)) == ([], [])
    assert "event=journal_records_lost records=1" in caplog.text
    former.close()
    store.close()


# Columns


def test_columns_arrive_as_they_were_sent(store: PostgresStore) -> None:
    values: dict[str, list[Any]] = {
        "bool": [True, None, False],
        "bytea": [b"", b"\x00\xff", None],
        "int": [0, -(1 << 31), (1 << 31) - 1],
        "bigint": [0, -(1 << 63), None, (1 << 63) - 1],
        "text": ["", None, "a\x00\x01b", "\U0001f600", "NULL", "{}"],
        "float8": [0.0, -1.5e300, 7, None],
    }
    with store._writer.use() as connection:
        for kind, sent in values.items():
            query = f"SELECT * FROM unnest(%s::{kind}[])"
            assert [row[0] for row in connection.execute(query.encode(), [column(kind, sent)])] == sent
            assert connection.execute(query.encode(), [column(kind, [])]).fetchall() == []


# Settings


def test_what_a_failover_would_lose_is_said(url: str) -> None:
    with connect(url, name="test", limit_seconds=10) as connection:
        found = durability.look(connection)
    assert not found.safe
    assert "fsync" in found.risk, "the tests' server has it off"
    safe = durability.Durability("on", "ANY 1 (a, b)", True, True, 2, 2)
    assert safe.safe
    assert safe.risk.startswith("nothing: ")
    alone = durability.Durability("off", "", True, True, 0, 0)
    assert "no replica" in alone.risk
    assert "writes use on" in alone.note
    assert "had not received" in durability.Durability("on", "", True, True, 1, 0).risk
    assert "no synchronous standby is connected" in durability.Durability("on", "a", True, True, 1, 0).risk


def test_writes_wait_for_the_disk_whatever_the_database_says(postgres: PostgresServer, url: str) -> None:
    postgres.execute("ALTER ROLE test SET synchronous_commit = off")
    try:
        store = open_postgres(url)
        with store._writer.use() as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        store.close()
    finally:
        postgres.execute("ALTER ROLE test RESET synchronous_commit")


def test_no_message_has_the_password() -> None:
    given = "postgresql://me:secret@db-1:5432,db-2/dyno?password=secret&sslmode=verify-full"
    hidden = "postgresql://me@db-1:5432,db-2/dyno?password=***&sslmode=verify-full"
    assert without_password(given) == hidden
    assert Settings(store=given).store_name == hidden
    assert without_password("sqlite:/a/b") == "sqlite:/a/b"
    with pytest.raises(ValueError, match="mysql://me@host") as refused:
        Settings(store="mysql://me:secret@host")
    assert "secret" not in str(refused.value)
    contender = Contender("postgresql://me:secret@127.0.0.1:1/dyno", hidden, lease_seconds=1.0)
    with pytest.raises(StoreError, match="cannot use the store") as unreachable:
        contender.prepare()
    assert "secret" not in str(unreachable.value)

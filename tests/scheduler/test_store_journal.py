"""Tests of the group commit: nobody is told before it is on disk, despite kill -9, a full disk or a locked file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kerneldyno.scheduler.core.ports import Filter, JournalObserver
from kerneldyno.scheduler.store import journal as journal_module
from kerneldyno.scheduler.store.journal import GroupCommitJournal, ImmediateJournal, Retention
from kerneldyno.scheduler.store.memory import MemoryStore
from kerneldyno.scheduler.store.postgres.store import PostgresStore
from kerneldyno.scheduler.store.sqlite import SqliteStore
from tests import ROOT
from tests.scheduler.postgres_store import open_any
from tests.scheduler.store_records import accepted, correct, finished, key
from tests.waiting import eventually

pytestmark = pytest.mark.slow


class Seen(JournalObserver):
    """An observer that keeps what the metrics are told."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.failures: list[str] = []

    def batch_committed(self, records: int, seconds: float) -> None:
        assert seconds >= 0
        self.batches.append(records)

    def batch_failed(self, reason: str) -> None:
        self.failures.append(reason)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "a.db")
    yield opened
    opened.close()


@pytest.fixture
def any_store(durable: str) -> Iterator[SqliteStore | PostgresStore]:
    opened = open_any(durable)
    yield opened
    opened.close()


@pytest.fixture
async def any_journal(any_store: SqliteStore | PostgresStore, seen: Seen) -> AsyncIterator[GroupCommitJournal]:
    opened = GroupCommitJournal(any_store, asyncio.get_running_loop(), observer=seen)
    yield opened
    await opened.close(timeout=20)


@pytest.fixture
async def seen() -> Seen:
    return Seen()


@pytest.fixture
async def journal(store: SqliteStore, seen: Seen) -> AsyncIterator[GroupCommitJournal]:
    opened = GroupCommitJournal(store, asyncio.get_running_loop(), observer=seen)
    yield opened
    await opened.close(timeout=20)


def names(store: SqliteStore | PostgresStore) -> set[str]:
    return {evaluation.key.id for evaluation in store.list(Filter(), None, 100_000)}


async def test_calls_come_in_order_and_only_once_it_is_on_disk(
    any_store: SqliteStore | PostgresStore, any_journal: GroupCommitJournal, seen: Seen
) -> None:
    store, journal = any_store, any_journal
    draw = random.Random(3)
    told: list[int] = []

    def tell(i: int) -> None:
        assert store.find(key(i)) is not None
        told.append(i)

    for i in range(300):
        journal.append(accepted(i))
        journal.after_commit(lambda i=i: tell(i))
        if draw.random() < 0.2:
            await asyncio.sleep(draw.random() * 0.005)
    assert journal.pending
    await journal.committed()
    assert told == list(range(300))
    assert (journal.pending, journal.stalled, sum(seen.batches)) == (0, None, 300)
    assert len(seen.batches) < 300, "nothing was grouped"


async def test_a_call_with_nothing_pending_is_made_at_once_but_after_those_before_it(
    journal: GroupCommitJournal,
) -> None:
    told: list[str] = []
    journal.after_commit(lambda: told.append("now"))
    assert told == ["now"]
    journal.append(accepted("a"))

    def first() -> None:
        told.append("first")
        journal.after_commit(lambda: told.append("asked by first"))

    journal.after_commit(first)
    journal.after_commit(lambda: told.append("second"))
    await journal.committed()
    assert told == ["now", "first", "second", "asked by first"]


async def test_what_a_turn_of_the_loop_appends_is_one_batch(journal: GroupCommitJournal, seen: Seen) -> None:
    for i in range(100):
        journal.append(accepted(i))
    await journal.committed()
    assert seen.batches == [100]


async def test_a_call_that_raises_is_logged_and_stops_nobody(
    journal: GroupCommitJournal, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def fail() -> None:
        raise ValueError("of the test")

    journal.append(accepted("a"))
    journal.after_commit(fail)
    journal.after_commit(lambda: told.append("after"))
    await journal.committed()
    assert told == ["after"]
    assert "of the test" in caplog.text


async def test_records_that_nobody_waits_for_are_written_by_close(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    journal = GroupCommitJournal(store, asyncio.get_running_loop())
    for i in range(5000):
        journal.append(accepted(i))
    assert await journal.close(timeout=60)
    store.close()
    store = SqliteStore(tmp_path / "a.db")
    assert len(names(store)) == 5000
    store.close()


async def test_there_is_no_room_while_the_disk_does_not_keep_up(
    store: SqliteStore, journal: GroupCommitJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MAX_PENDING", 10)
    for i in range(10):
        assert journal.has_room()
        journal.append(accepted(i))
    assert not journal.has_room()
    await journal.committed()
    assert journal.has_room()


async def test_old_results_are_forgotten_in_passing(
    any_store: SqliteStore | PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = any_store
    monkeypatch.setattr(journal_module, "TRIM_SECONDS", 0.05)
    keep = Retention(max_results=7, max_bytes=1 << 40, max_seconds=1e9)
    journal = GroupCommitJournal(store, asyncio.get_running_loop(), retention=keep)
    for i in range(2000):
        journal.append(accepted(i))
        journal.append(finished(i, at=time.time()))
    await eventually(lambda: len(names(store)) == 7)
    assert await journal.close()


# Failures


@contextlib.contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Make writes of this process beyond `size` fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@contextlib.contextmanager
def no_more_pages(store: SqliteStore) -> Iterator[None]:
    """Make SQLite say that the disk is full."""
    (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count = {pages + 20}").fetchall()
    try:
        yield
    finally:
        store._writer.execute("PRAGMA max_page_count = 1073741823").fetchall()


@contextlib.contextmanager
def in_use(path: Path) -> Iterator[None]:
    """Lock the file, as another tool might."""
    tool = sqlite3.connect(path, isolation_level=None)
    tool.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        tool.close()


@pytest.mark.parametrize("trouble", ["file size", "pages", "in use"])
async def test_a_disk_that_cannot_be_written_loses_nothing_and_nobody_is_told(
    store: SqliteStore,
    journal: GroupCommitJournal,
    seen: Seen,
    tmp_path: Path,
    trouble: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[int] = []
    written = 0

    def write(count: int) -> None:
        nonlocal written
        for i in range(written, written + count):
            journal.append(accepted(i, note="x" * 5000))
            journal.after_commit(lambda i=i: told.append(i))
        written += count

    write(10)
    await journal.committed()
    size = (tmp_path / "a.db-wal").stat().st_size
    troubles = {
        "file size": lambda: no_file_larger_than(size + 100_000),
        "pages": lambda: no_more_pages(store),
        "in use": lambda: in_use(tmp_path / "a.db"),
    }
    for _ in range(2):
        before = written
        with troubles[trouble]():
            write(100)
            await eventually(lambda: journal.stalled)
            assert "the store cannot be written" in str(journal.stalled)
            write(100)
            attempts = len(seen.failures)
            await eventually(lambda attempts=attempts: len(seen.failures) > attempts)
            assert told == list(range(before))
            assert len(names(store)) == before, "somebody could read what may yet be lost"
        await journal.committed()
        assert journal.stalled is None
        assert told == list(range(written))
        assert names(store) == {str(i) for i in range(written)}
    assert "event=journal_stalled" in caplog.text


async def test_a_close_that_cannot_write_gives_up_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = SqliteStore(tmp_path / "a.db")
    journal = GroupCommitJournal(store, asyncio.get_running_loop())
    with in_use(tmp_path / "a.db"):
        journal.append(accepted("a"))
        assert not await journal.close(timeout=0.2)
    assert "event=journal_records_lost records=1" in caplog.text
    store.close()


async def test_a_record_that_the_store_refuses_stalls_the_journal(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    journal = GroupCommitJournal(store, asyncio.get_running_loop())
    told: list[str] = []
    journal.append(accepted("a"))
    await journal.committed()
    journal.append(accepted("a"))
    journal.after_commit(lambda: told.append("never"))
    await eventually(lambda: journal.stalled)
    assert "refuses a record" in str(journal.stalled)
    assert not await journal.close(timeout=0.1)
    assert told == []
    store.close()


# Processes that die

#: A writer finishes an evaluation when it has accepted this many more.
BEHIND = 10
WRITER = """
import asyncio, os, sys
from kerneldyno.scheduler.core.ports import Filter
from kerneldyno.scheduler.store.journal import GroupCommitJournal
from tests.scheduler.postgres_store import open_any
from tests.scheduler.store_records import accepted, finished, placed

BEHIND = int(sys.argv[2])

async def main():
    store = open_any(sys.argv[1])
    journal = GroupCommitJournal(store, asyncio.get_running_loop())
    last = store.list(Filter(), None, 1)
    i = int(last[0].key.id) + 1 if last else 0
    turn = 0
    for evaluation in store.recover().evaluations:
        if int(evaluation.key.id) < i - BEHIND:
            journal.append(finished(evaluation.key.id))
    while True:
        for _ in range(turn % 7):
            journal.append(accepted(i, note="x" * 2000))
            journal.append(placed(i))
            if i >= BEHIND:
                journal.append(finished(i - BEHIND))
            journal.after_commit(lambda i=i: os.write(1, b"%d\\n" % i))
            i += 1
        turn += 1
        await (journal.committed() if turn % 5 == 0 else asyncio.sleep(0))

asyncio.run(main())
"""


def writer(where: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, where, str(BEHIND)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, **environment})


def check(where: str, told: list[int]) -> int:
    """Compare what a killed writer told with what is on disk; return the number of evaluations on disk."""
    store = open_any(where)
    evaluations = store.list(Filter(), None, 1_000_000)[::-1]
    recovered = store.recover()
    store.close()
    assert [evaluation.key.id for evaluation in evaluations] == [str(i) for i in range(len(evaluations))]
    assert all(i < len(evaluations) for i in told), "what was acknowledged is lost"
    # The records on disk are the first ones that were appended, without a gap.
    finished_ones = sum(evaluation.verdict is not None for evaluation in evaluations)
    assert finished_ones in (max(0, len(evaluations) - BEHIND), max(0, len(evaluations) - BEHIND - 1))
    assert recovered.evaluations == evaluations[finished_ones:]
    assert [job.job_id for job in recovered.jobs] == [evaluation.job_id for evaluation in recovered.evaluations]
    assert all(job.token for job in recovered.jobs[:-1])
    assert all(evaluation.verdict == correct() for evaluation in evaluations if evaluation.verdict is not None)
    assert all(job.payload == b"request " + job.job_id for job in recovered.jobs)
    return len(evaluations)


def test_kill_at_any_instant_loses_nothing_that_was_acknowledged(durable: str) -> None:
    draw = random.Random(11)
    total = 0
    for _ in range(25 if durable.startswith("sqlite:") else 8):
        with writer(durable) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            time.sleep(draw.random() * 0.08)
            process.kill()
            told = [int(first), *(int(line) for line in process.stdout.read().split(b"\n")[:-1])]
            assert process.wait() == -signal.SIGKILL
        assert told == list(range(total, total + len(told)))
        total = check(durable, told)


@pytest.mark.parametrize("place", ["before_commit", "during_commit", "after_commit"])
def test_kill_around_a_commit_leaves_whole_batches(durable: str, place: str) -> None:
    with writer(durable, KERNELDYNO_FAILPOINTS=f"{place}=kill#4") as process:
        assert process.stdout is not None
        told = [int(line) for line in process.stdout.read().split()]
        assert process.wait() == -signal.SIGKILL
    found = check(durable, told)
    assert found > len(told) if place == "after_commit" else found >= len(told)


async def test_an_immediate_journal_is_never_behind() -> None:
    store = MemoryStore()
    journal = ImmediateJournal(store)
    told: list[object] = []
    journal.append(accepted("a"))
    journal.after_commit(lambda: told.append(store.find(key("a"))))
    assert told[0] is not None
    await journal.committed()
    assert (journal.stalled, journal.pending, journal.has_room(), await journal.close()) == (None, 0, True, True)
    store.close()

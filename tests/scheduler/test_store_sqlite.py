"""Tests of the store in a SQLite file: damaged, foreign or locked files are refused, and older ones are taken over."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kerneldyno.scheduler.core.model import SpeedupKind
from kerneldyno.scheduler.core.ports import StoreError
from kerneldyno.scheduler.core.records import (
    Drained,
)
from kerneldyno.scheduler.store import schema
from kerneldyno.scheduler.store.sqlite import SqliteStore
from tests.scheduler.store_records import (
    accepted,
    correct,
    finished,
    key,
    placed,
)
from tests.scheduler.test_stores import kept, trimmed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


def test_a_file_of_a_version_without_speedup_kinds_is_taken_over(path: Path) -> None:
    first = SqliteStore(path)
    first.write([accepted("a"), finished("a")])
    first.close()
    with contextlib.closing(sqlite3.connect(path)) as older:
        older.executescript("DROP TRIGGER speedup_kind_forgotten; DROP TABLE speedup_kinds;")
    second = SqliteStore(path)
    second.write([replace(accepted("b"), speedup_kind=SpeedupKind.END_TO_END)])
    found = [second.find(key(name)) for name in "ab"]
    assert [one.speedup_kind for one in found if one] == [SpeedupKind.DEVICE, SpeedupKind.END_TO_END]
    second.close()


def test_what_is_freed_is_used_again(path: Path) -> None:
    store = SqliteStore(path)
    sizes = []
    for turn in range(12):
        ids = [f"{turn}-{i}" for i in range(100)]
        store.write([record for i in ids for record in (accepted(i), finished(i, verdict=correct(bytes(20_000))))])
        trimmed(store, max_results=100)
        store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        sizes.append(path.stat().st_size)
    store.close()
    assert sizes[-1] <= sizes[2] * 1.2


# Files


def test_what_was_written_is_there_in_the_next_process(path: Path) -> None:
    first = SqliteStore(path)
    first.write([accepted("a"), accepted("b"), placed("b"), finished("a"), Drained("n1", True)])
    before = first.recover()
    first.close()
    assert {file.name for file in path.parent.iterdir()} == {"a.db", "a.db.lock"}
    assert path.stat().st_mode & 0o077 == 0, "others could read what candidates are in it"
    second = SqliteStore(path)
    assert second.recover() == before
    assert second.find(key("a")).verdict == correct()  # type: ignore[union-attr]
    second.write([accepted("c")])
    assert second.find(key("c")).number == 3  # type: ignore[union-attr]
    second.close()


def test_numbers_are_not_given_twice_even_when_the_last_is_forgotten(path: Path) -> None:
    store = SqliteStore(path)
    store.write([accepted("a"), finished("a")])
    assert trimmed(store, max_results=0) == 1
    store.close()
    store = SqliteStore(path)
    store.write([accepted("b")])
    assert store.find(key("b")).number == 2  # type: ignore[union-attr]
    store.close()


def make_text(path: Path) -> None:
    path.write_text("this is not a database, and long enough to see that " * 40)


def make_foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE accounts (balance)")
    connection.close()


def make_newer(path: Path) -> None:
    SqliteStore(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    connection.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_text, "not a database"),
        (make_foreign, "another program's database; choose another file"),
        (make_newer, "newer KernelDyno"),
        (Path.mkdir, "cannot open"),
    ],
)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(
    path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    for _ in range(2):  # the first refusal leaves nothing locked
        with pytest.raises(StoreError, match=message):
            SqliteStore(path)
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_folders_are_made_and_one_that_cannot_be_is_named(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "new" / "folder" / "a.db").close()
    assert (tmp_path / "new" / "folder").stat().st_mode & 0o077 == 0, "sources and results are in there"
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot open the store .*(Not a directory|File exists)"):
        SqliteStore(tmp_path / "file" / "a.db")


HOLDER = """
import sys
from kerneldyno.scheduler.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_two_schedulers_cannot_share_a_file(path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match="in use by another scheduler"):
            SqliteStore(path)
        holder.kill()
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="in use by another scheduler"):
        SqliteStore(path)  # one process cannot open it twice either
    store.close()


def copy_of_live(path: Path, copy: Path) -> Path:
    """Copy the files of an open store, as a crash would leave them; return the path of the copy."""
    copy.mkdir()
    for suffix in ("", "-wal"):
        source = path.with_name(path.name + suffix)
        (copy / source.name).write_bytes(source.read_bytes())
    return copy / path.name


@pytest.mark.parametrize("garble", [False, True])
def test_a_torn_log_loses_the_last_batch_at_most(path: Path, garble: bool) -> None:
    store = SqliteStore(path)
    wal = path.with_name("a.db-wal")
    ends = []
    for i in range(6):
        store.write([accepted(f"{i} {j}") for j in range(3)])
        ends.append(wal.stat().st_size)
    last = ends[-1] - ends[-2]
    for cut in (1, 24, 4096, last // 2, last - 1, last):
        torn = copy_of_live(path, path.parent / f"{garble}{cut}")
        whole = wal.read_bytes()
        tail = os.urandom(cut) if garble else b""
        torn.with_name("a.db-wal").write_bytes(whole[: ends[-1] - cut] + tail)
        survivor = SqliteStore(torn)
        assert kept(survivor) == sorted(f"{i} {j}" for i in range(5) for j in range(3)), cut
        assert len(survivor.recover().jobs) == 15
        survivor.write([accepted("and on")])
        survivor.close()
    store.close()


def test_a_damaged_file_is_found_out_after_an_unclean_end(path: Path) -> None:
    store = SqliteStore(path)
    store.write([accepted(i) for i in range(300)])
    store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    store.write([accepted("more")])
    damaged = copy_of_live(path, path.parent / "copy")
    store.close()
    content = bytearray(damaged.read_bytes())
    for page in range(8, len(content) // 4096):
        content[page * 4096 : page * 4096 + 200] = os.urandom(200)
    damaged.write_bytes(content)
    with pytest.raises(StoreError, match=r"damaged|malformed"):
        SqliteStore(damaged)

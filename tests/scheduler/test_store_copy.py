"""Tests of `kerneldyno store copy`, and of what `doctor` says of a database."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kerneldyno.doctor import machine
from kerneldyno.doctor.checks import State
from kerneldyno.scheduler import store_tool
from kerneldyno.scheduler.core.model import Priority, SpeedupKind, Verdict
from kerneldyno.scheduler.core.ports import Filter, Store, StoreError
from kerneldyno.scheduler.core.records import Drained, Quarantined
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.store.memory import MemoryStore
from kerneldyno.scheduler.store.sqlite import SqliteStore
from tests import sampling
from tests.postgres import PostgresServer
from tests.scheduler.postgres_store import emptied, open_any, open_postgres
from tests.scheduler.store_records import ENVIRONMENT, accepted, answered, correct, finished, job_of, key, placed

pytestmark = pytest.mark.slow


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.schema()


def copied(source: str, target: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kerneldyno.cli", "store", "copy", source, target, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def filled(store: Store) -> None:
    """Write some of everything."""
    store.write([replace(accepted("a", stage="x", **{"t\n": 'q"uo,te'}), trace="00-1", priority=Priority.HIGH)])
    store.write([accepted("b", job="a"), placed("a"), Drained("n1", True), Quarantined(b"d", "killed n1", 10.0, 1e12)])
    store.write([finished("a", "b", verdict=correct(b"\x00\xff" * 500))])
    gone = Verdict.failed("CANCELLED", "on \x00 request", retryable=False)
    store.write([accepted("c"), finished("c", verdict=gone)])
    kind = SpeedupKind.END_TO_END
    store.write([replace(accepted("d"), speedup_kind=kind, grace_seconds=7.5, deadline_wall=500.0), placed("d")])
    store.write([accepted(f"e{i}") for i in range(450)])
    store.write([answered("f", by="a", number=1, verdict=correct(b"\x00\xff" * 500))])
    store.write([accepted("last"), finished("last", at=1.0)])
    # The newest is forgotten; its numbers must not be given again.
    assert store.trim(max_results=4, max_bytes=1 << 60, older_than_wall=0.0) == 1


def content(store: Store) -> tuple[object, ...]:
    found = store.cached(job_of("a"), {ENVIRONMENT})
    return store.recover(), store.list(Filter(), None, 1000), found


def test_a_copy_goes_on_where_the_original_ended_and_comes_back_the_same(tmp_path: Path, url: str) -> None:
    first, second = f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}"
    store = open_any(first)
    filled(store)
    before = content(store)
    store.close()
    done = copied(first, url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("copied 2 results, 455 evaluations, 451 jobs, 451 payloads, 1 drained")
    middle = open_any(url)
    assert content(middle) == before
    middle.write([accepted("new"), finished("new")])
    assert middle.find(key("new")).number == 457  # type: ignore[union-attr]
    assert [one.key.id for one in middle.list(Filter(labels=(("t\n", 'q"uo,te'),)), None, 9)] == ["a"]
    before = content(middle)
    middle.close()
    done = copied(url, second, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["evaluations"] == 456
    after = open_any(second)
    assert content(after) == before
    after.write([accepted("newer"), finished("newer")])
    assert after.find(key("newer")).number == 458  # type: ignore[union-attr]
    assert isinstance(after, SqliteStore)
    counted = after.database.execute("SELECT count(*) FROM evaluations WHERE result IS NOT NULL").fetchone()
    assert after.database.execute("SELECT finished FROM totals").fetchone() == counted
    after.close()


def make_missing(path: Path, url: str) -> Store:
    return MemoryStore()


def make_used(path: Path, url: str) -> Store:
    SqliteStore(path).close()
    return open_postgres(url, lease_seconds=1.0, address="host-a:50051")  # it lives on


def make_full(path: Path, url: str) -> Store:
    SqliteStore(path).close()
    store = open_postgres(url)
    store.write([accepted("a")])
    store.close()
    return MemoryStore()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_missing, "there is no file"),
        (make_used, r"is in use by a scheduler \(host-a:50051\); stop it first"),
        (make_full, "is not empty: copy into a new store"),
    ],
)
def test_a_copy_that_cannot_be_complete_is_not_made(
    tmp_path: Path, url: str, make: Callable[[Path, str], Store], message: str
) -> None:
    lives_on = make(tmp_path / "a.db", url)
    with pytest.raises(StoreError, match=message):
        store_tool.copy(Settings(store=f"sqlite:{tmp_path / 'a.db'}"), Settings(store=url))
    lives_on.close()


def test_wrong_arguments_are_refused_without_their_password(tmp_path: Path) -> None:
    done = copied(f"sqlite:{tmp_path}/a", "postgresql://me:secret@127.0.0.1:1/x")
    assert done.returncode == 1
    assert f"there is no file {tmp_path}/a" in done.stderr
    assert "secret" not in done.stderr
    done = copied("sqlite:a", "mysql://me:secret@host/x")
    assert (done.returncode, "secret" in done.stderr) == (2, False)
    with pytest.raises(ValueError, match="one of the stores must be sqlite"):
        store_tool.copy(Settings(store=f"sqlite:{tmp_path}/a"), Settings(store=f"sqlite:{tmp_path}/b"))


def test_a_copy_that_breaks_off_leaves_the_target_empty(tmp_path: Path, url: str) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    store.write([accepted(i) for i in range(1000)])
    # PostgreSQL refuses this row, which comes after a thousand others.
    store.database.execute("INSERT INTO quarantines VALUES (x'00', cast(x'ff' AS TEXT), 1, 2)")
    store.close()
    with pytest.raises(StoreError):
        store_tool.copy(Settings(store=f"sqlite:{path}"), Settings(store=url))
    kept = open_postgres(url)
    assert kept.list(Filter(), None, 10) == []
    kept.close()


# What doctor says


def test_doctor_says_what_a_failover_would_lose(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (check,) = machine.journal(url)
    assert check.state is State.FAILED, "fsync is off here"
    assert "no scheduler is active; a failover would lose everything: with fsync" in check.detail
    store = open_postgres(url, address="host-a:50051")
    monkeypatch.setenv("KERNELDYNO_STORE", url)
    (check,) = machine.journal(None)
    assert "active: host-a:50051" in check.detail
    store.close()
    (check,) = machine.journal("postgresql://me:secret@127.0.0.1:1/dyno")
    assert check.state is State.FAILED
    assert "secret" not in check.detail + check.remedy


@settings(max_examples=sampling.examples(12), suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), st.booleans()), max_size=6))
def test_names_of_any_characters_keep_their_share_and_order(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory, clients: list[tuple[str, bool]]
) -> None:
    """The filter by share is a comparison of texts, which both kinds of store must do in the same way."""
    target = _url_of.setdefault("url", postgres.schema())
    stores: list[Store] = [
        SqliteStore(tmp_path_factory.mktemp("s") / "a.db"),
        open_postgres(emptied(target)),
    ]
    names = [f"{name}/x" if below else name for name, below in clients]
    answers = []
    for store in stores:
        store.write([accepted(i, client_id=name) for i, name in enumerate(names)])
        answers.append([store.list(Filter(share=name), None, 100) for name, _ in clients if name])
        store.close()
    assert answers[0] == answers[1]


_url_of: dict[str, str] = {}

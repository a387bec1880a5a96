"""Tests of every store: each record comes back as it went in, in batches, with pages, filters and retention."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldyno.scheduler.core.model import Failure, Key, Priority, SpeedupKind, Verdict
from kerneldyno.scheduler.core.ports import Filter
from kerneldyno.scheduler.core.records import (
    Accepted,
    Answered,
    Drained,
    Finished,
    Placed,
    Quarantined,
    Record,
    Returned,
    StoredEvaluation,
    StoredJob,
)
from kerneldyno.scheduler.store.memory import MemoryStore
from kerneldyno.scheduler.store.postgres.store import PostgresStore
from kerneldyno.scheduler.store.row_reading import TRIM_STEP
from kerneldyno.scheduler.store.sqlite import SqliteStore
from tests import sampling
from tests.scheduler.postgres_store import emptied, open_postgres
from tests.scheduler.store_records import (
    ENVIRONMENT,
    accepted,
    answered,
    correct,
    finished,
    job_of,
    key,
    placed,
    returned,
)

EVERYTHING = {"max_results": 1 << 40, "max_bytes": 1 << 60, "older_than_wall": 0.0}


AnyStore = SqliteStore | PostgresStore


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyStore]:
    opened: AnyStore
    match request.param:
        case "sqlite":
            opened = SqliteStore(tmp_path / "a.db")
        case "memory":
            opened = MemoryStore()
        case _:
            opened = open_postgres(request.getfixturevalue("postgres").schema())
    assert opened.name == request.param
    yield opened
    opened.close()


def count(store: AnyStore, table: str) -> int:
    """Return the number of rows of a table."""
    return read(store, f"SELECT count(*) FROM {table}")[0]


def read(store: AnyStore, query: str) -> tuple[int, ...]:
    """Return the first row that the store's own connection reads."""
    if isinstance(store, PostgresStore):
        with store._writer.use() as connection:
            row = connection.execute(query.encode()).fetchone()
    else:
        row = store._writer.execute(query).fetchone()
    assert row is not None
    return tuple(row)


def totals(store: AnyStore) -> tuple[int, ...]:
    """Return the number of finished evaluations and the bytes of their results, as retention counts them."""
    if isinstance(store, PostgresStore):
        return (store._totals.finished, store._totals.size)
    return read(store, "SELECT finished, bytes FROM totals")


def names(found: list[StoredEvaluation]) -> list[str]:
    return [evaluation.key.id for evaluation in found]


# What a store remembers


def test_an_evaluation_from_acceptance_to_verdict(store: AnyStore) -> None:
    store.write([replace(accepted("a", stage="x"), deadline_wall=500.0, priority=Priority.HIGH)])
    found = store.find(key("a"))
    assert found == StoredEvaluation(
        1, key("a"), b"body", job_of("a"), Priority.HIGH, {"stage": "x"}, 100.0, 500.0, False, job_of("a"), None
    )
    assert store.recover().evaluations == [found]

    store.write([placed("a")])
    job = StoredJob(job_of("a"), "client", b"request job a", 1, 0, (), "token a 1", "n1", "instance", 111.0)
    assert store.recover().jobs == [job]
    store.write([returned("a", crashes=1, unlucky=("n1", "n2"))])
    waiting = replace(job, crashes=1, unlucky_nodes=("n1", "n2"), token="", node_id="", instance_id="")
    assert store.recover().jobs == [waiting]
    store.write([placed("a", attempts=2, node="n3")])
    again = replace(waiting, attempts=2, token="token a 2", node_id="n3", instance_id="instance", placed_wall=112.0)
    assert store.recover().jobs == [again]

    store.write([finished("a")])
    assert store.find(key("a")) == replace(
        found, job_id=None, verdict=correct(), attempts=1, placed_wall=111.0, finished_wall=120.0
    )
    recovered = store.recover()
    assert (recovered.jobs, recovered.evaluations) == ([], [])
    assert store.find(key("a", "another client")) is None


def test_which_speedup_counts_is_kept_with_the_evaluation(store: AnyStore) -> None:
    kind = SpeedupKind.END_TO_END
    store.write([replace(accepted("a"), speedup_kind=kind), accepted("b", job="a")])
    assert [one.speedup_kind for one in store.recover().evaluations] == [kind, SpeedupKind.DEVICE]
    store.write([finished("a", "b"), replace(answered("c", by="a", number=1), speedup_kind=kind)])
    found = [store.find(key(name)) for name in "abc"]
    assert [one.speedup_kind for one in found if one] == [kind, SpeedupKind.DEVICE, kind]
    assert store.trim(max_results=0, max_bytes=1 << 60, older_than_wall=0.0) == 3
    if not isinstance(store, PostgresStore):  # there it is a column
        assert count(store, "speedup_kinds") == 0


def test_evaluations_that_share_a_job_share_one_result(store: AnyStore) -> None:
    many = [accepted(i, job="a") for i in range(1000)]
    store.write([accepted("a"), *many])
    assert len(store.recover().jobs) == 1
    store.write([finished("a", *range(1000), verdict=correct(b"x" * 10_000))])
    assert all(store.find(evaluation.key).verdict == correct(b"x" * 10_000) for evaluation in many)  # type: ignore[union-attr]
    assert count(store, "results") == 1


def test_one_of_several_is_cancelled_and_the_job_goes_on(store: AnyStore) -> None:
    store.write([accepted("a"), accepted("b", job="a"), placed("a")])
    gone = Verdict.failed("CANCELLED", "on request", retryable=False)
    store.write([replace(finished("a", verdict=gone, ends=False), job_id=None)])
    recovered = store.recover()
    assert [job.token for job in recovered.jobs] == ["token a 1"]
    assert names(recovered.evaluations) == ["b"]
    assert store.find(key("a")).verdict == gone  # type: ignore[union-attr]
    assert store.cached(job_of("a"), {b"", ENVIRONMENT}) is None


def test_work_that_comes_again_in_the_batch_in_which_it_ended(store: AnyStore) -> None:
    again = replace(accepted("b"), job_id=job_of("a"), digest=job_of("a"), payload=b"request job a")
    store.write([accepted("a"), placed("a"), finished("a"), again, placed("a", attempts=1)])
    recovered = store.recover()
    assert [(job.job_id, job.token) for job in recovered.jobs] == [(job_of("a"), "token a 1")]
    assert names(recovered.evaluations) == ["b"]
    store.write([returned("a"), replace(finished("b"), job_id=job_of("a")), replace(again, key=key("c"))])
    recovered = store.recover()
    assert [(job.attempts, job.token) for job in recovered.jobs] == [(0, "")]
    assert names(recovered.evaluations) == ["c"]


def test_the_newest_cacheable_result_of_an_environment_answers(store: AnyStore) -> None:
    digest = job_of("a")
    store.write([accepted("a"), finished("a", verdict=correct(b"old"))])
    other = replace(accepted("b"), job_id=b"fresh b", digest=digest)
    store.write(
        [other, replace(finished("b", verdict=correct(b"elsewhere", b"gpu B")), job_id=b"fresh b", digest=digest)]
    )
    assert store.cached(digest, {b"gpu C"}) is None
    assert store.cached(b"other work", {ENVIRONMENT}) is None
    found = store.cached(digest, [ENVIRONMENT])
    assert found is not None
    assert found.verdict == correct(b"old")
    newest = store.cached(digest, {ENVIRONMENT, b"gpu B"})
    assert newest is not None
    assert newest.verdict.payload == b"elsewhere"

    store.write([answered("c", by="a", number=found.number, verdict=replace(found.verdict, cached=True))])
    answer = store.find(key("c"))
    assert answer is not None
    assert answer.verdict == replace(correct(b"old"), cached=True)
    assert (answer.job_id, answer.attempts, answer.finished_wall, answer.priority) == (None, 0, 130.0, Priority.LOW)
    assert store.find(key("a")).verdict == correct(b"old")  # type: ignore[union-attr]

    timeout = replace(finished("d", verdict=Verdict("TIMEOUT", b"", None, ENVIRONMENT)), digest=digest, cacheable=False)
    store.write([replace(accepted("d"), digest=digest), timeout])
    assert store.cached(digest, {ENVIRONMENT}) == found


def test_an_answer_stands_when_its_result_was_forgotten_before_it_was_written(store: AnyStore) -> None:
    store.write([accepted("a"), finished("a")])
    found = store.cached(job_of("a"), {ENVIRONMENT})
    assert found is not None
    assert store.trim(**{**EVERYTHING, "max_results": 0}) == 1  # type: ignore[arg-type]
    store.write([answered("b", by="a", number=found.number, verdict=found.verdict)])
    assert store.find(key("b")).verdict == replace(correct(), cached=True)  # type: ignore[union-attr]
    store.write([accepted("c"), finished("c", verdict=correct(b"of c"))])
    assert store.find(key("c")).verdict == correct(b"of c")  # type: ignore[union-attr]


def test_drains_and_quarantines_are_recovered(store: AnyStore) -> None:
    first, second = Quarantined(b"d1", "killed n1, n2", 10.0, 99.0), Quarantined(b"d2", "killed n3", 20.0, 99.0)
    store.write([Drained("n1", True), Drained("n2", True), Drained("n1", False), Drained("n2", True), second, first])
    recovered = store.recover()
    assert (recovered.drained_nodes, recovered.quarantined) == (["n2"], [first, second])
    store.write([Drained("n2", False), Quarantined(b"d1", "released", 30.0, 0.0)])
    recovered = store.recover()
    assert (recovered.drained_nodes, recovered.quarantined) == ([], [second])
    store.write([Quarantined(b"d3", "later", 100.0, 200.0)])
    assert [record.digest for record in store.recover().quarantined] == [b"d3"]  # d2 has expired


def test_a_refused_batch_leaves_nothing_and_costs_no_number(store: AnyStore) -> None:
    store.write([accepted("a")])
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        store.write([accepted("b"), Drained("n1", True), finished("a"), accepted("a")])
    assert store.find(key("b")) is None
    assert store.find(key("a")).verdict is None  # type: ignore[union-attr]
    assert store.recover().drained_nodes == []
    store.write([accepted("b")])
    assert store.find(key("b")).number == 2  # type: ignore[union-attr]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
blobs = st.binary(max_size=40)
times = st.floats(0, 1e11)
verdicts = st.builds(
    Verdict,
    st.sampled_from(["CORRECT", "INCORRECT", "INFRASTRUCTURE_ERROR"]),
    st.binary(max_size=6000),
    st.none() | st.builds(Failure, texts, texts, st.booleans()),
    blobs,
    st.just(False),
)


@pytest.fixture(scope="module", params=["memory", "postgres"])
def new_store(request: pytest.FixtureRequest) -> Callable[[], AnyStore]:
    """Make an empty store for each example."""
    if request.param == "memory":
        return MemoryStore
    url = request.getfixturevalue("postgres").schema()
    return lambda: open_postgres(emptied(url))


@settings(max_examples=sampling.examples(60))
@given(
    own=st.builds(Key, texts, texts),
    fingerprint=blobs,
    digest=blobs,
    priority=st.sampled_from(Priority),
    labels=st.dictionaries(texts, texts, max_size=4),
    wall=times,
    deadline=st.none() | times,
    payload=blobs,
    verdict=verdicts,
    attempts=st.integers(0, 9),
    words=st.tuples(texts, texts, texts),
    unlucky=st.lists(texts, max_size=3).map(tuple),
)
def test_any_value_comes_back_as_it_went_in(
    new_store: Callable[[], AnyStore],
    own: Key,
    fingerprint: bytes,
    digest: bytes,
    priority: Priority,
    labels: dict[str, str],
    wall: float,
    deadline: float | None,
    payload: bytes,
    verdict: Verdict,
    attempts: int,
    words: tuple[str, str, str],
    unlucky: tuple[str, ...],
) -> None:
    store = new_store()
    token, node_id, instance_id = words
    job_id = digest + b"tail"
    store.write([Accepted(own, fingerprint, digest, job_id, priority, labels, wall, deadline, True, payload)])
    store.write([Returned(job_id, attempts, 1, unlucky), Placed(job_id, token, node_id, instance_id, attempts, wall)])
    recovered = store.recover()
    waiting = StoredEvaluation(1, own, fingerprint, digest, priority, labels, wall, deadline, True, job_id, None)
    assert recovered.evaluations == [waiting]
    assert recovered.jobs == [
        StoredJob(job_id, own.share, payload, attempts, 1, unlucky, token, node_id, instance_id, wall)
    ]
    store.write([Finished((own,), job_id, digest, verdict, True, attempts, wall, wall)])
    done = replace(waiting, job_id=None, verdict=verdict, attempts=attempts, placed_wall=wall, finished_wall=wall)
    assert store.find(own) == done
    labelled = Filter(labels=tuple(labels.items()), digest=digest, client_id=own.client_id)
    assert store.list(labelled, None, 10) == [done]
    assert store.list(Filter(labels=(*labels.items(), ("absent", "x" * 20))), None, 10) == []
    store.write([Answered(Key(own.client_id, own.id + "+"), fingerprint, digest, priority, labels, wall, 1, verdict)])
    assert store.list(Filter(), 3, 1)[0].verdict == replace(verdict, cached=True)
    store.close()


# Lists


def test_a_list_is_newest_first_in_pages_and_by_every_filter(store: AnyStore) -> None:
    store.write(
        [accepted(i, at=100.0 + i, client_id=f"team/{i % 3}", stage=str(i % 2), tail='q"uo,te') for i in range(30)]
    )
    store.write([finished(i, at=200.0, client_id=f"team/{i % 3}") for i in range(0, 30, 5)])
    store.write([accepted("x", client_id="team"), accepted("y", client_id="teams/0"), accepted("z", client_id="tea")])
    everything = store.list(Filter(), None, 100)
    assert names(everything) == ["z", "y", "x", *(str(i) for i in reversed(range(30)))]
    pages: list[StoredEvaluation] = []
    while page := store.list(Filter(), pages[-1].number if pages else None, 7):
        pages += page
    assert pages == everything

    def listed(**fields: object) -> list[int]:
        return [int(name) for name in names(store.list(Filter(**fields), None, 100)) if name.isdigit()]  # type: ignore[arg-type]

    assert listed(client_id="team/1") == list(range(28, 0, -3))
    assert listed(share="team") == list(range(29, -1, -1))
    assert names(store.list(Filter(share="team"), None, 1)) == ["x"]
    assert listed(outcomes=frozenset({"CORRECT", "TIMEOUT"})) == [25, 20, 15, 10, 5, 0]
    assert listed(outcomes=frozenset({"TIMEOUT"})) == []
    assert 25 not in listed(unfinished=True)
    assert 24 in listed(unfinished=True)
    assert listed(labels=(("stage", "1"),)) == list(range(29, 0, -2))
    assert listed(labels=(("stage", "1"), ("tail", 'q"uo,te'))) == list(range(29, 0, -2))
    assert listed(labels=(("tail", "q"),)) == listed(labels=(("st", "1"),)) == []
    assert listed(accepted_from_wall=103.0, accepted_before_wall=105.0) == [4, 3]
    assert listed(digest=job_of(7)) == [7]
    assert listed(client_id="team/0", labels=(("stage", "0"),), unfinished=True, accepted_from_wall=110.0) == [
        24,
        18,
        12,
    ]


# Retention


def kept(store: AnyStore) -> list[str]:
    return sorted(names(store.list(Filter(), None, 10_000)))


def trimmed(store: AnyStore, **bounds: float) -> int:
    total = 0
    while step := store.trim(**{**EVERYTHING, **bounds}):  # type: ignore[arg-type]
        assert step <= TRIM_STEP
        total += step
    return total


def test_retention_by_number_age_and_size_spares_what_is_unfinished(store: AnyStore) -> None:
    store.write([accepted("waits", at=1.0)])
    for i in range(8):
        store.write([accepted(i), finished(i, at=200.0 + i, verdict=correct(bytes(1000)))])
    assert trimmed(store) == 0
    assert trimmed(store, older_than_wall=202.0) == 2
    assert kept(store) == ["2", "3", "4", "5", "6", "7", "waits"]
    assert trimmed(store, max_results=4) == 2
    assert kept(store) == ["4", "5", "6", "7", "waits"]
    assert trimmed(store, max_bytes=2500) == 2
    assert kept(store) == ["6", "7", "waits"]
    assert trimmed(store, max_results=0, max_bytes=0, older_than_wall=1e9) == 2
    assert kept(store) == ["waits"]
    assert totals(store) == (0, 0)


def test_a_shared_result_goes_with_the_last_who_refers_to_it(store: AnyStore) -> None:
    store.write([accepted("a"), accepted("b", job="a"), finished("a", "b", verdict=correct(bytes(1000)))])
    found = store.cached(job_of("a"), {ENVIRONMENT})
    assert found is not None
    store.write([answered(i, by="a", number=found.number, verdict=found.verdict, at=300.0 + i) for i in range(3)])
    assert trimmed(store, max_results=3) == 2
    assert store.find(key(2)).verdict == replace(correct(bytes(1000)), cached=True)  # type: ignore[union-attr]
    assert store.cached(job_of("a"), {ENVIRONMENT}) == found
    assert trimmed(store, max_results=1) == 2
    assert store.cached(job_of("a"), {ENVIRONMENT}) == found
    assert trimmed(store, max_bytes=999) == 1
    assert store.cached(job_of("a"), {ENVIRONMENT}) is None
    assert count(store, "results") == 0


# Threads


def test_reads_in_other_threads_see_whole_batches(store: AnyStore) -> None:
    stop = threading.Event()
    problems: list[str] = []

    def read(*, finds: bool) -> None:
        """List, and in one thread find as well. Any thread may list, but only the event loop's thread may find."""
        seen = 0
        while not stop.is_set():
            listed = store.list(Filter(), None, 1000)
            if len(listed) % 10 or len(listed) < seen:
                problems.append(f"saw {len(listed)} evaluations after {seen}")
            seen = len(listed)
            if not finds:
                continue
            if seen and (store.find(listed[-1].key) is None or store.find(listed[0].key) is None):
                problems.append("an evaluation that was listed is not found")
            store.cached(job_of("0-0"), {ENVIRONMENT})

    readers = [threading.Thread(target=read, kwargs={"finds": finds}) for finds in (True, False)]
    for reader in readers:
        reader.start()
    records: list[Record] = []
    for batch in range(60):
        records = [accepted(f"{batch}-{i}") for i in range(10)]
        records += [finished(f"{batch - 1}-{i}") for i in range(10)] if batch else []
        store.write(records)
    stop.set()
    for reader in readers:
        reader.join()
    assert problems == []
    assert len(store.list(Filter(), None, 1000)) == 600

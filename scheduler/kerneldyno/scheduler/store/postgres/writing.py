"""The statements that write a batch to PostgreSQL: a fixed number of them, whatever the number of rows.

Each statement gets its rows as one array for each column, so that it is parsed and planned once. All are sent in a
pipeline, without waiting for the answers in between.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from psycopg import Cursor

from kerneldyno.scheduler.store.postgres.columns import column
from kerneldyno.scheduler.store.postgres.connection import PgConnection
from kerneldyno.scheduler.store.row_batch import Row, RowBatch, to_json

_INSERT_EVALUATIONS = """
INSERT INTO evaluations (number, client_id, id, fingerprint, digest, priority, labels, accepted_wall, deadline_wall, merged,
    job_id, result, outcome, cached, finished_wall, trace, speedup_kind, grace_seconds)
SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bytea[], %s::bytea[], %s::text[], %s::text[], %s::float8[],
    %s::float8[], %s::bool[], %s::bytea[], %s::bigint[], %s::text[], %s::bool[], %s::float8[], %s::text[], %s::text[],
    %s::float8[])
"""
_FINISH_EVALUATIONS = """
UPDATE evaluations AS e SET job_id = NULL, result = v.result, outcome = v.outcome, cached = v.cached,
    attempts = v.attempts, placed_wall = v.placed_wall, finished_wall = v.finished_wall
FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[], %s::bool[], %s::int[], %s::float8[], %s::float8[])
    AS v (client_id, id, result, outcome, cached, attempts, placed_wall, finished_wall)
WHERE e.client_id = v.client_id AND e.id = v.id
"""
_RESULTS = """
INSERT INTO results (number, environment, outcome, cause, detail, retryable, payload, cacheable, uses)
SELECT * FROM unnest(%s::bigint[], %s::bytea[], %s::text[], %s::text[], %s::text[], %s::bool[], %s::bytea[], %s::bool[],
    %s::bigint[])
"""
_RESULTS_AGAIN = f"{_RESULTS} ON CONFLICT (number) DO NOTHING RETURNING octet_length(payload)"
_USE_RESULTS = """
UPDATE results AS r SET uses = r.uses + v.uses FROM unnest(%s::bigint[], %s::bigint[]) AS v (number, uses)
WHERE r.number = v.number
"""
_END_JOBS = """
WITH ended AS (DELETE FROM jobs WHERE id = ANY(%s::bytea[]) RETURNING number)
DELETE FROM payloads WHERE number = ANY(ARRAY(SELECT number FROM ended))
"""
_CHANGE_JOBS = """
UPDATE jobs AS j SET attempts = v.attempts, token = v.token, node_id = v.node_id, instance_id = v.instance_id,
    placed_wall = coalesce(v.placed_wall, j.placed_wall), crashes = coalesce(v.crashes, j.crashes),
    unlucky_nodes = coalesce(v.unlucky_nodes, j.unlucky_nodes)
FROM unnest(%s::bytea[], %s::int[], %s::text[], %s::text[], %s::text[], %s::float8[], %s::int[], %s::text[])
    AS v (id, attempts, token, node_id, instance_id, placed_wall, crashes, unlucky_nodes)
WHERE j.id = v.id
"""
_INSERT_JOBS = """
INSERT INTO jobs (number, id, share, attempts, crashes, unlucky_nodes, token, node_id, instance_id, placed_wall)
SELECT * FROM unnest(%s::bigint[], %s::bytea[], %s::text[], %s::int[], %s::int[], %s::text[], %s::text[], %s::text[],
    %s::text[], %s::float8[])
"""
_INSERT_PAYLOADS = "INSERT INTO payloads (number, payload) SELECT * FROM unnest(%s::bigint[], %s::bytea[])"
_QUARANTINE = """
INSERT INTO quarantines (digest, reason, since_wall, until_wall) VALUES (%s, %s, %s, %s)
ON CONFLICT (digest) DO UPDATE SET reason = excluded.reason, since_wall = excluded.since_wall,
    until_wall = excluded.until_wall
"""


@dataclass(frozen=True, slots=True)
class Growth:
    """What a transaction adds to the totals of the store (finished evaluations, bytes of results)."""

    finished: int = 0
    size: int = 0


def apply(connection: PgConnection, batch: RowBatch) -> Callable[[], Growth]:
    """Send the statements of `batch`. The returned function tells what they added, once they were answered."""
    results: dict[int, list[Any]] = {}
    for row in batch.results:
        results.setdefault(row[0], [*row[:-1], 0])[-1] += row[-1]
    # Results of this batch are new. Older ones are there, unless they were deleted after they had been read.
    first = min((row[2] for row in batch.finished), default=batch.last_result + 1)
    own = [row for number, row in results.items() if number >= first]
    others = [row for number, row in results.items() if number < first]
    added = sum(len(row[6]) for row in own)
    _bulk(connection, _RESULTS, own)
    again = _bulk(connection, _RESULTS_AGAIN, [(*row[:-1], 0) for row in others])
    _bulk(connection, _USE_RESULTS, [(row[0], row[-1]) for row in others])
    _bulk(connection, _INSERT_EVALUATIONS, _evaluations(batch))
    done = _bulk(connection, _FINISH_EVALUATIONS, batch.finished)
    if batch.ended_jobs:
        connection.execute(_END_JOBS, (list(batch.ended_jobs),))
    _bulk(
        connection,
        _CHANGE_JOBS,
        [
            (job_id, c.attempts, c.token, c.node_id, c.instance_id, c.placed_wall, c.crashes, c.unlucky_nodes)
            for job_id, c in batch.changed_jobs.items()
        ],
    )
    _bulk(
        connection,
        _INSERT_JOBS,
        [
            (
                new.number,
                job_id,
                new.share,
                new.change.attempts,
                new.change.crashes or 0,
                new.change.unlucky_nodes or "[]",
                new.change.token,
                new.change.node_id,
                new.change.instance_id,
                new.change.placed_wall or 0.0,
            )
            for job_id, new in batch.new_jobs.items()
        ],
    )
    _bulk(connection, _INSERT_PAYLOADS, [(new.number, new.payload) for new in batch.new_jobs.values()])
    for node_id, drained in batch.drained.items():
        connection.execute(
            "INSERT INTO drained_nodes VALUES (%s) ON CONFLICT DO NOTHING"
            if drained
            else "DELETE FROM drained_nodes WHERE node_id = %s",
            (node_id,),
        )
    for record in batch.quarantined.values():
        row = (record.digest, record.reason, record.since_wall, record.until_wall)
        connection.execute(_QUARANTINE, row)
        connection.execute("DELETE FROM quarantines WHERE until_wall <= %s", (record.since_wall,))
    answered = sum(1 for row in batch.evaluations if row[11] is not None)

    def growth() -> Growth:
        stored_again = sum(size for (size,) in again.fetchall()) if again is not None else 0
        return Growth(answered + (done.rowcount if done is not None else 0), added + stored_again)

    return growth


def delete(connection: PgConnection, deleted: Sequence[Row]) -> Callable[[], Growth]:
    """Send the statements that delete evaluations, given as (number, result, ...), and results that nothing refers to."""
    uses = Counter(result for _, result, *_ in deleted)
    gone = connection.execute(
        "DELETE FROM evaluations WHERE number = ANY(%s::bigint[])", ([row[0] for row in deleted],)
    )
    _bulk(connection, _USE_RESULTS, [(result, -count) for result, count in uses.items()])
    freed = connection.execute(
        "DELETE FROM results WHERE uses <= 0 AND number = ANY(%s::bigint[]) RETURNING octet_length(payload)",
        (list(uses),),
    )
    return lambda: Growth(-gone.rowcount, -sum(size for (size,) in freed.fetchall()))


def label_line(name: str, value: str) -> str:
    """Return the line that the labels of an evaluation have if this pair is among them."""
    return f"\n{to_json({name: value})[1:-1]}\n"


def _evaluations(batch: RowBatch) -> list[Row]:
    traces: dict[int, str] = dict(batch.traces)
    kinds: dict[int, str] = dict(batch.speedup_kinds)
    graces: dict[int, float] = dict(batch.client_graces)
    return [
        (
            *row[:6],
            in_lines(row[6]),
            *row[7:],
            traces.get(row[0], ""),
            kinds.get(row[0], "DEVICE"),
            graces.get(row[0]),
        )
        for row in batch.evaluations
    ]


def in_lines(labels: str) -> str:
    """Return the JSON of labels with each pair on a line of its own. No string in JSON has a line break in it."""
    if labels == "{}":
        return labels
    return "{\n" + json.dumps(json.loads(labels), ensure_ascii=False, separators=("\n,\n", ":"))[1:-1] + "\n}"


def _bulk(connection: PgConnection, statement: str, rows: Iterable[Sequence[Any]]) -> Cursor[Row] | None:
    """Send `statement` with one array for each column of `rows`; nothing if there are no rows."""
    columns = list(zip(*rows, strict=True))
    if not columns:
        return None
    query, kinds = _prepared(statement)
    return connection.execute(query, [column(kind, values) for kind, values in zip(kinds, columns, strict=True)])


@lru_cache
def _prepared(statement: str) -> tuple[bytes, list[str]]:
    """Return a statement as bytes, and the types of its arrays."""
    return statement.encode(), re.findall(r"%s::(\w+)\[\]", statement)

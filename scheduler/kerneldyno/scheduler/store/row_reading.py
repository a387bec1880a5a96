"""What reading has in common in all SQL stores: columns in their order, the values made of a row, filters, retention."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from kerneldyno.scheduler.core.model import Failure, Key, Priority, SpeedupKind, Verdict
from kerneldyno.scheduler.core.ports import Filter
from kerneldyno.scheduler.core.records import StoredEvaluation, StoredJob
from kerneldyno.scheduler.store.row_batch import Row

#: Number of evaluations that one call of `trim` examines, which takes a few milliseconds.
TRIM_STEP = 500
#: Number of evaluations of one digest that `cached` examines, newest first. Usually the first one fits.
CACHE_DEPTH = 64

EVALUATION_COLUMNS = """e.number, e.client_id, e.id, e.fingerprint, e.digest, e.priority, e.labels, e.accepted_wall,
    e.deadline_wall, e.merged, e.job_id, e.attempts, e.placed_wall, e.finished_wall, e.result, e.cached"""
RESULT_COLUMNS = "r.outcome, r.payload, r.cause, r.detail, r.retryable, r.environment"


def job_of(row: Row) -> StoredJob:
    """Return the job of a row with the columns of StoredJob, in its order."""
    job_id, share, payload, attempts, crashes, unlucky_nodes, *rest = row
    return StoredJob(job_id, share, payload, attempts, crashes, tuple(json.loads(unlucky_nodes)), *rest)


def evaluation_of(row: Row) -> StoredEvaluation:
    """Return the evaluation of a row: EVALUATION_COLUMNS, RESULT_COLUMNS, trace, speedup kind, grace in seconds."""
    number, client_id, own_id, fingerprint, digest, priority, labels, accepted_wall, deadline_wall = row[:9]
    merged, job_id, attempts, placed_wall, finished_wall, result, cached = row[9:16]
    return StoredEvaluation(
        number=number,
        key=Key(client_id, own_id),
        fingerprint=fingerprint,
        digest=digest,
        priority=Priority[priority],
        labels=json.loads(labels),
        accepted_wall=accepted_wall,
        deadline_wall=deadline_wall,
        merged=bool(merged),
        job_id=job_id,
        verdict=None if result is None else verdict_of(row[16:22], cached=bool(cached)),
        attempts=attempts,
        placed_wall=placed_wall,
        finished_wall=finished_wall,
        trace=row[22],
        speedup_kind=SpeedupKind[row[23]],
        grace_seconds=row[24],
    )


def verdict_of(row: Row, *, cached: bool) -> Verdict:
    """Return the verdict of a row with RESULT_COLUMNS."""
    outcome, payload, cause, detail, retryable, environment = row
    failure = None if cause is None else Failure(cause, detail, bool(retryable))
    return Verdict(outcome, payload, failure, environment, cached)


def conditions_of(
    which: Filter, before: int | None, label: Callable[[str, str], tuple[str, list[Any]]]
) -> tuple[list[str], list[Any]]:
    """Return the SQL conditions of `which` with "?" for each value, and the values.

    Args:
        which: What to list.
        before: Only evaluations with a lower number; None for all.
        label: Returns the condition that an evaluation has a label (name, value), and its values.
    """
    conditions: list[str] = []
    values: list[Any] = []

    def add(condition: str, *given: Any) -> None:
        conditions.append(condition)
        values.extend(given)

    if before is not None:
        add("e.number < ?", before)
    if which.client_id:
        add("e.client_id = ?", which.client_id)
    if which.share:
        # "/" ends the share in a client id, and "0" is the next character after it.
        add(
            "(e.client_id = ? OR e.client_id >= ? AND e.client_id < ?)",
            which.share,
            f"{which.share}/",
            f"{which.share}0",
        )
    if which.digest:
        add("e.digest = ?", which.digest)
    if which.unfinished:
        add("e.result IS NULL")
    if which.outcomes:
        add(f"e.outcome IN ({', '.join('?' * len(which.outcomes))})", *which.outcomes)
    if which.accepted_from_wall is not None:
        add("e.accepted_wall >= ?", which.accepted_from_wall)
    if which.accepted_before_wall is not None:
        add("e.accepted_wall < ?", which.accepted_before_wall)
    for name, value in which.labels:
        condition, given = label(name, value)
        add(condition, *given)
    return conditions, values


def beyond_retention(oldest: Iterable[Row], number: int, size: int, older_than_wall: float) -> list[Row]:
    """Return number, result, client id, id and digest of the evaluations to delete.

    Args:
        oldest: The oldest finished evaluations: number, result, time of the end, size of the result, client id, id, digest.
        number: How many finished evaluations there are too many.
        size: How many bytes their results have too many.
        older_than_wall: Delete all that ended before this time.
    """
    deleted: list[Row] = []
    for evaluation, result, finished_wall, payload_size, *own in oldest:
        if not (finished_wall < older_than_wall or number > 0 or size > 0):
            break
        deleted.append((evaluation, result, *own))
        number -= 1
        size -= payload_size  # too much if other evaluations share the result; the next call corrects that
    return deleted

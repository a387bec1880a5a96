"""Folds a batch of records into rows, so that a fixed number of SQL statements writes any number of records.

The writing thread shares the interpreter lock with the event loop, and each statement may have to wait for it; the number of
statements must therefore not grow with the load. A job that began and ended within the batch is not written at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kerneldyno.scheduler.core.model import SpeedupKind, Verdict
from kerneldyno.scheduler.core.records import (
    Accepted,
    Answered,
    Drained,
    Finished,
    Placed,
    Quarantined,
    Record,
    Returned,
)

Row = tuple[Any, ...]


@dataclass(slots=True)
class JobChange:
    """The changed columns of a job; None leaves a column as it is."""

    attempts: int = 0
    token: str = ""
    node_id: str = ""
    instance_id: str = ""
    placed_wall: float | None = None
    crashes: int | None = None
    unlucky_nodes: str | None = None

    def place(self, record: Placed) -> None:
        """Apply that the job got an attempt."""
        self.attempts, self.placed_wall = record.attempts, record.placed_wall
        self.token, self.node_id, self.instance_id = record.token, record.node_id, record.instance_id

    def put_back(self, record: Returned) -> None:
        """Apply that the job lost its attempt."""
        self.attempts, self.crashes = record.attempts, record.crashes
        self.unlucky_nodes = to_json(record.unlucky_nodes)
        self.token = self.node_id = self.instance_id = ""


@dataclass(slots=True)
class NewJob:
    """A job to insert."""

    number: int
    share: str
    payload: bytes
    change: JobChange = field(default_factory=JobChange)


class RowBatch:
    """The rows of a batch of records."""

    def __init__(self, records: Iterable[Record], last_evaluation: int, last_result: int) -> None:
        """Fold `records`; new evaluations and results are numbered after the given last numbers."""
        self.last_evaluation, self.last_result = last_evaluation, last_result
        self.evaluations: list[Row] = []
        """Rows of table `evaluations` without attempts and placed_wall."""
        self.traces: list[Row] = []
        """Number and trace of the evaluations that are traced."""
        self.speedup_kinds: list[Row] = []
        """Number and speedup kind of the evaluations whose kind is not DEVICE."""
        self.client_graces: list[Row] = []
        """Number and grace in seconds of the evaluations that have a grace of their own."""
        self.finished: list[Row] = []
        """Client id, id, result, outcome, cached, attempts, placed_wall, finished_wall."""
        self.results: list[Row] = []
        """Rows of table `results` with the number of evaluations that refer to them; an existing row gets one more."""
        self.ended_jobs: dict[bytes, None] = {}
        """Jobs to delete, before all other changes of jobs."""
        self.changed_jobs: dict[bytes, JobChange] = {}
        """Jobs to change, after the deletions."""
        self.new_jobs: dict[bytes, NewJob] = {}
        """Jobs to insert, after the changes."""
        self.drained: dict[str, bool] = {}
        self.quarantined: dict[bytes, Quarantined] = {}
        for record in records:
            self._add(record)

    def _add(self, record: Record) -> None:
        match record:
            case Accepted():
                self._accept(record)
            case Placed():
                self._change(record.job_id).place(record)
            case Returned():
                self._change(record.job_id).put_back(record)
            case Finished():
                self._finish(record)
            case Answered():
                self._answer(record)
            case Drained():
                self.drained[record.node_id] = record.drained
            case Quarantined():
                self.quarantined[record.digest] = record

    def _accept(self, record: Accepted) -> None:
        number = self._evaluation(record, record.deadline_wall, record.merged, record.job_id)
        if record.grace_seconds is not None:
            self.client_graces.append((number, record.grace_seconds))
        if record.payload is not None:
            self.new_jobs[record.job_id] = NewJob(number, record.key.share, record.payload)

    def _answer(self, record: Answered) -> None:
        self._evaluation(record, None, False, None, record.result_number, record.verdict.outcome, record.accepted_wall)
        self.results.append(_result(record.result_number, record.verdict, cacheable=True, uses=1))

    def _evaluation(
        self,
        record: Accepted | Answered,
        deadline_wall: float | None,
        merged: bool,
        job_id: bytes | None,
        result: int | None = None,
        outcome: str | None = None,
        finished_wall: float = 0.0,
    ) -> int:
        self.last_evaluation += 1
        if record.trace:
            self.traces.append((self.last_evaluation, record.trace))
        if record.speedup_kind is not SpeedupKind.DEVICE:
            self.speedup_kinds.append((self.last_evaluation, record.speedup_kind.name))
        self.evaluations.append(
            (
                self.last_evaluation,
                record.key.client_id,
                record.key.id,
                record.fingerprint,
                record.digest,
                record.priority.name,
                to_json(record.labels),
                record.accepted_wall,
                deadline_wall,
                merged,
                job_id,
                result,
                outcome,
                result is not None,
                finished_wall,
            )
        )
        return self.last_evaluation

    def _change(self, job_id: bytes) -> JobChange:
        if (new := self.new_jobs.get(job_id)) is not None:
            return new.change
        return self.changed_jobs.setdefault(job_id, JobChange())

    def _finish(self, record: Finished) -> None:
        if record.job_id is not None:
            self.new_jobs.pop(record.job_id, None)
            self.changed_jobs.pop(record.job_id, None)
            self.ended_jobs[record.job_id] = None
        if not record.keys:
            return
        self.last_result += 1
        verdict = record.verdict
        self.results.append(_result(self.last_result, verdict, cacheable=record.cacheable, uses=len(record.keys)))
        ending = (self.last_result, verdict.outcome, verdict.cached)
        times = (record.attempts, record.placed_wall, record.finished_wall)
        self.finished.extend((key.client_id, key.id, *ending, *times) for key in record.keys)


def to_json(value: object) -> str:
    """Return `value` as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _result(number: int, verdict: Verdict, *, cacheable: bool, uses: int) -> Row:
    failure = verdict.failure
    why = (None, None, None) if failure is None else (failure.cause, failure.detail, failure.retryable)
    return (number, verdict.environment, verdict.outcome, *why, verdict.payload, cacheable, uses)

"""What a store must do, and what is written to it.

The state machine decides in memory and writes down each decision as a record; a store applies batches of records, each batch
wholly or not at all, and durably when `write` returns. At a start it gives back what was unfinished. One process writes;
reads may happen at the same time, from another thread, and see some whole number of batches.

A store that several schedulers share has to provide, beyond this interface: atomic batches with the durability of a
majority, a compare-and-set on job ownership (a fencing epoch per scheduler, checked in the same transaction as each write),
and reads of its own latest writes. docs/scaling.md tells more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kerneldyno.scheduler.model import Evaluation, Key, Priority, SpeedupKind, Verdict


class StoreError(Exception):
    """The store cannot be opened or read: what is wrong, and what to do."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """An evaluation was accepted. `payload` is given when its job is new, and None when it joins one."""

    key: Key
    fingerprint: bytes
    digest: bytes
    job_id: bytes
    priority: Priority
    labels: dict[str, str]
    accepted_wall: float
    deadline_wall: float | None
    merged: bool
    payload: bytes | None
    trace: str = ""
    """Where it is in a distributed trace (kerneldyno.rpc.trace_context); empty when it is in none."""
    speedup_kind: SpeedupKind = SpeedupKind.DEVICE
    grace_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """A job got an attempt."""

    job_id: bytes
    token: str
    node_id: str
    instance_id: str
    attempts: int
    placed_wall: float


@dataclass(frozen=True, slots=True)
class Returned:
    """A job lost its attempt and waits again."""

    job_id: bytes
    attempts: int
    crashes: int
    unlucky_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """Evaluations have their verdict. Their job ends with them when `job_id` is given."""

    keys: tuple[Key, ...]
    job_id: bytes | None
    digest: bytes
    verdict: Verdict
    cacheable: bool
    """Whether the verdict may answer later evaluations of the same digest on the same environment."""
    attempts: int
    placed_wall: float
    finished_wall: float


@dataclass(frozen=True, slots=True)
class Answered:
    """An evaluation was accepted and answered at once by the stored result with this number."""

    key: Key
    fingerprint: bytes
    digest: bytes
    priority: Priority
    labels: dict[str, str]
    accepted_wall: float
    result_number: int
    verdict: Verdict
    """What that result says: the answer stands even when the store forgot the result before this record was written."""
    trace: str = ""
    speedup_kind: SpeedupKind = SpeedupKind.DEVICE


@dataclass(frozen=True, slots=True)
class Drained:
    """An operator drained a node, or took that back."""

    node_id: str
    drained: bool


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Work is kept from running until `until_wall`; released when that is 0."""

    digest: bytes
    reason: str
    since_wall: float
    until_wall: float


Record = Accepted | Placed | Returned | Finished | Answered | Drained | Quarantined


@dataclass(frozen=True, slots=True)
class StoredJob:
    """An unfinished job."""

    job_id: bytes
    share: str
    payload: bytes
    attempts: int
    crashes: int
    unlucky_nodes: tuple[str, ...]
    token: str
    """Of its attempt; empty when it waits."""
    node_id: str
    instance_id: str
    placed_wall: float
    trace: str = ""
    """Of the evaluation that it was made for."""


@dataclass(frozen=True, slots=True)
class StoredEvaluation:
    """An evaluation, finished (it has a verdict) or not (it has a job)."""

    number: int
    """Grows with each evaluation: the order of acceptance."""
    key: Key
    fingerprint: bytes
    digest: bytes
    priority: Priority
    labels: dict[str, str]
    accepted_wall: float
    deadline_wall: float | None
    merged: bool
    job_id: bytes | None
    verdict: Verdict | None
    attempts: int = 0
    placed_wall: float = 0.0
    finished_wall: float = 0.0
    trace: str = ""
    speedup_kind: SpeedupKind = SpeedupKind.DEVICE
    grace_seconds: float | None = None


def restored(stored: StoredEvaluation, accepted_at: float) -> Evaluation:
    """Return the evaluation that was stored; `accepted_at` is its acceptance on this process's monotonic clock."""
    return Evaluation(
        key=stored.key,
        fingerprint=stored.fingerprint,
        digest=stored.digest,
        priority=stored.priority,
        labels=stored.labels,
        accepted_at=accepted_at,
        accepted_wall=stored.accepted_wall,
        merged=stored.merged,
        attempts=stored.attempts,
        placed_wall=stored.placed_wall,
        verdict=stored.verdict,
        finished_wall=stored.finished_wall,
        speedup_kind=stored.speedup_kind,
        grace_seconds=stored.grace_seconds,
        trace=stored.trace,
    )


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was unfinished when the last process ended, in order of acceptance."""

    jobs: list[StoredJob] = field(default_factory=list)
    evaluations: list[StoredEvaluation] = field(default_factory=list)
    drained_nodes: list[str] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)


class CachedResult(NamedTuple):
    """A stored result that may answer again."""

    number: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Filter:
    """Which evaluations to list; None and empty mean all."""

    client_id: str = ""
    share: str = ""
    """Only clients of this share (Key.share)."""
    outcomes: frozenset[str] = frozenset()
    unfinished: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    accepted_from_wall: float | None = None
    accepted_before_wall: float | None = None
    digest: bytes = b""


class Store(Protocol):
    """Durable memory of one scheduler."""

    name: str
    """What GetCapabilities says, for example "sqlite"."""

    def recover(self) -> Recovered:
        """Return what was unfinished. Called once, before anything else. Raises StoreError."""

    def write(self, records: Sequence[Record]) -> None:
        """Apply `records` in order, all or none; they are durable when this returns. Called from one thread.

        Raises OSError or sqlite3.Error-like exceptions when it could not; nothing was applied then, and the same batch
        will be tried again.
        """

    def find(self, key: Key) -> StoredEvaluation | None:
        """Return an evaluation, or None when it is not known or no longer kept."""

    def cached(self, digest: bytes, environments: Collection[bytes]) -> CachedResult | None:
        """Return the newest cacheable result of `digest` on one of `environments`, or None."""

    def list(self, which: Filter, before: int | None, limit: int) -> list[StoredEvaluation]:
        """Return evaluations with a number below `before`, newest first; verdicts come with their payload."""

    def trim(self, *, max_results: int, max_bytes: int, older_than_wall: float) -> int:
        """Forget finished evaluations: those finished before `older_than_wall`, and the oldest beyond the other bounds.

        Return how many were forgotten. Called from the writing thread, now and then. Unfinished ones are never touched.
        """

    def close(self) -> None:
        """Release what it holds."""


class Journal(Protocol):
    """Where the state machine sends its records (kerneldyno.scheduler.store.journal)."""

    def append(self, record: Record) -> None:
        """Have `record` written."""

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call once all that was appended so far is on disk."""

    def has_room(self) -> bool:
        """Say whether it keeps up."""

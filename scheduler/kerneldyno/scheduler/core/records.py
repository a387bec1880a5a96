"""What the state machine writes to its journal, and what a store gives back.

Each decision is one record. A store applies batches of records, and returns unfinished work at the next start. Times named
`..._wall` are seconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kerneldyno.scheduler.core.model import Evaluation, Key, Priority, SpeedupKind, Verdict


@dataclass(frozen=True, slots=True)
class Accepted:
    """An evaluation was accepted and waits for its job."""

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
    """The request, when the job is new; None when the evaluation joins an existing job."""
    trace: str = ""
    """Encoded trace context (kerneldyno.rpc.trace_context); empty when the evaluation is not traced."""
    speedup_kind: SpeedupKind = SpeedupKind.DEVICE
    grace_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """An attempt of a job was placed on a node."""

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
    """Evaluations got their verdict. Their job ends with them if `job_id` is given."""

    keys: tuple[Key, ...]
    job_id: bytes | None
    digest: bytes
    verdict: Verdict
    cacheable: bool
    """True if the verdict may answer later evaluations of the same digest in the same environment."""
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
    """A copy of that result: the answer stays valid even if the store deleted the result before writing this record."""
    trace: str = ""
    speedup_kind: SpeedupKind = SpeedupKind.DEVICE


@dataclass(frozen=True, slots=True)
class Drained:
    """An operator drained a node, or ended its drain."""

    node_id: str
    drained: bool


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Work may not run until `until_wall`; 0 ends its quarantine."""

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
    """Token of its attempt; empty while the job waits."""
    node_id: str
    instance_id: str
    placed_wall: float
    trace: str = ""
    """Trace of the evaluation that created the job."""


@dataclass(frozen=True, slots=True)
class StoredEvaluation:
    """An evaluation. It has a verdict when it is finished, and a job when it is not."""

    number: int
    """Increases with each accepted evaluation."""
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
    """Return the evaluation that was stored.

    Args:
        stored: The evaluation as the store returned it.
        accepted_at: Its time of acceptance in seconds of this process's monotonic clock.
    """
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
    """A stored result that may answer another evaluation."""

    number: int
    verdict: Verdict

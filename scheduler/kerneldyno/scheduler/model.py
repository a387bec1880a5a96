"""What the state machine is made of: evaluations, jobs, attempts, nodes. Plain values; no I/O, no proto, no gRPC.

An evaluation is what a client asked for; a job is the work itself. Evaluations that ask for the same work share a job, and
a job has one attempt at a time, on one node.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

#: Length of the identity of a piece of work, a SHA-256.
DIGEST_BYTES = 32
#: Reference digests that a node is taken to keep hot.
HOT_REFERENCES = 64


class Key(NamedTuple):
    """Identity of a submit."""

    client_id: str
    id: str

    @property
    def share(self) -> str:
        """Whose share of the devices it takes: the client id up to its first "/", so that a team's clients can be one."""
        return self.client_id.partition("/")[0]


class Priority(enum.Enum):
    """Queue priority; the value is the head start in seconds that every other request has to wait off.

    That is the whole ageing rule: a NORMAL request that has waited ten minutes goes before a HIGH one that just came.
    """

    HIGH = 0.0
    NORMAL = 600.0
    LOW = 3600.0


class SpeedupKind(enum.Enum):
    """Which of a result's two speedups counts for an evaluation. The work is the same, whichever it is."""

    DEVICE = "device"
    END_TO_END = "end_to_end"


class ClientKind(enum.Enum):
    """By which call work came; the metrics tell them apart."""

    REWARDS = "rewards"
    """StreamRewards: a trainer's turns."""
    STREAM = "stream"
    """Evaluate."""
    ONCE = "once"
    """EvaluateOnce."""
    RECOVERED = "recovered"
    """Accepted by an earlier process of this scheduler, which did not write it down."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a node must offer to run a job; jobs that differ in nothing here wait in one line."""

    backend: str
    toolkit: str
    device_kind: str = ""
    device_model: str = ""
    min_memory_bytes: int = 0
    profiling: bool = False
    node_labels: frozenset[tuple[str, str]] = frozenset()
    min_devices: int = 0


@dataclass(frozen=True, slots=True)
class Spec:
    """The work of a request as the state machine sees it."""

    requirement: Requirement
    reference: bytes
    """Digest of the reference code, for locality."""
    payload: bytes
    """The request itself, serialised, without what is the evaluation's own (id, labels, priority)."""
    limit_seconds: float
    """Sum of its stage limits."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why KernelDyno gave no verdict."""

    cause: str
    detail: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a problem is too large for the device that tried it."""

    device: str
    """Its name on its node."""
    of_device: bool
    """Whether it is the device's own memory that is too small, and not the host's."""
    needed_bytes: int
    """The least that the problem is known to need; 0 when that is not known."""
    had_bytes: int
    """What it could have had."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a job ended: a node's result (serialised), or a failure of infrastructure."""

    outcome: str
    payload: bytes = b""
    failure: Failure | None = None
    environment: bytes = b""
    """Fingerprint of what it ran on (kerneldyno.scheduler.translate), so that no other environment is answered by it."""
    cached: bool = False
    """Whether a stored result is the answer, and nothing was run."""
    shortage: Shortage | None = field(default=None, compare=False)
    """Of a problem that is too large. Only the state machine looks at it; the payload has it for everybody else."""

    @classmethod
    def failed(cls, cause: str, detail: str, *, retryable: bool) -> Verdict:
        """Return the verdict of a job that infrastructure failed."""
        return cls("INFRASTRUCTURE_ERROR", failure=Failure(cause, detail, retryable))


class Submission(enum.Enum):
    """What became of a submit."""

    NEW = enum.auto()
    """Accepted."""
    SAME = enum.auto()
    """Accepted before, with the same body."""
    REUSED = enum.auto()
    """Refused: the id belongs to another body."""
    FULL = enum.auto()
    """Refused: too much waits already, in all or of this share."""


class Watcher(Protocol):
    """Someone who waits for evaluations and has to be told of each end once."""

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Take note that `evaluation` is done. Must not call back into the state machine."""


@dataclass(slots=True, eq=False)
class Evaluation:
    """One accepted request of one client. It has a job until it has a verdict."""

    key: Key
    fingerprint: bytes
    """Tells whether two submits under one id have the same body."""
    digest: bytes
    """Identity of the work."""
    priority: Priority
    labels: dict[str, str]
    accepted_at: float
    """Monotonic, as every `..._at`; `..._wall` is for people."""
    accepted_wall: float
    deadline_at: float | None = None
    grace_seconds: float | None = None
    """How long it goes on without an open call of its client; None for the scheduler's own limit."""
    job: Job | None = None
    merged: bool = False
    """Whether its job was another's when it came."""
    attempts: int = 0
    """Those its job had when it ended."""
    placed_wall: float = 0.0
    verdict: Verdict | None = None
    finished_wall: float = 0.0
    settled: bool = False
    """Whether the verdict is on disk. Nobody is told of it before."""
    speedup_kind: SpeedupKind = SpeedupKind.DEVICE
    """Which speedup counts, as its own request says: not that of the run that answers it."""
    trace: str = ""
    """Where it is in a distributed trace (kerneldyno.rpc.trace_context); empty when it is in none. Nothing depends on it."""
    joined_trace: str = ""
    """Of the job that it was merged into."""
    watchers: set[Watcher] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Job:
    """One piece of work. It waits while it has no attempt."""

    id: bytes
    """The digest; with a random tail when the run has to be a fresh one."""
    spec: Spec
    share: str
    """Whose share of the devices it takes: that of the first who asked."""
    priority: Priority
    """That of the most urgent who wait for it."""
    queued_at: float
    """Since when it waits, retries included: when the first asked."""
    kind: ClientKind = ClientKind.RECOVERED
    """By which call the first asked."""
    evaluations: dict[Key, Evaluation] = field(default_factory=dict)
    attempts: int = 0
    attempt: Attempt | None = None
    placed_at: float | None = None
    placed_wall: float = 0.0
    crashes: int = 0
    """Attempts that ended with their node, or with its judge."""
    passed_on: int = 0
    """Attempts that found it too large for their device; infrastructure did not fail them."""
    too_large: Verdict | None = None
    """What a smaller device said, while the job waits for a larger one or runs there."""
    trace: str = ""
    """Of the evaluation that it was made for."""
    unlucky_nodes: set[str] = field(default_factory=set)

    @property
    def digest(self) -> bytes:
        """Identity of the work."""
        return self.id[:DIGEST_BYTES]


@dataclass(slots=True, eq=False)
class Attempt:
    """One try of one job on one node."""

    token: str
    job: Job
    node: Node
    started_at: float
    stage: int = 0
    device: str = ""


class NodeState(enum.Enum):
    """What a node is doing as a whole."""

    SERVING = "serving"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a node."""

    name: str
    kind: str
    model: str
    memory_bytes: int
    lanes: int
    ready: bool

    def matches(self, need: Requirement) -> bool:
        """Say whether the device is one that `need` asks for."""
        return (
            need.device_kind in ("", self.kind)
            and need.device_model.lower() in self.model.lower()
            and self.memory_bytes >= need.min_memory_bytes
        )


class SandboxLayer(NamedTuple):
    """One wall around the candidates of a node."""

    name: str
    active: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a node says of itself."""

    node_id: str
    instance_id: str
    address: str = ""
    """Where it can be dialled; empty when it cannot."""
    draining: bool = False
    devices: tuple[Device, ...] = ()
    backends: frozenset[str] = frozenset()
    toolkits: frozenset[str] = frozenset()
    profiling: bool = False
    labels: frozenset[tuple[str, str]] = frozenset()
    attempt_tokens: tuple[str, ...] = ()
    environment: bytes = b""
    sandbox: tuple[SandboxLayer, ...] = ()
    """For people alone: nothing is decided by it."""

    def offers(self, need: Requirement) -> bool:
        """Say whether the node can run such work at all, ready or not."""
        return (
            need.backend in self.backends
            and need.toolkit in self.toolkits
            and (self.profiling or not need.profiling)
            and need.node_labels <= self.labels
            and sum(device.matches(need) for device in self.devices) >= max(1, need.min_devices)
        )


@dataclass(slots=True, eq=False)
class Node:
    """A registered node."""

    report: Report
    heard_at: float
    heard_wall: float
    connected: bool = False
    """Whether its Work stream is open: nothing is placed on it otherwise."""
    lost: bool = False
    drained: bool = False
    """By an operator."""
    attempts: dict[str, Attempt] = field(default_factory=dict)
    alike: dict[Requirement, int] = field(default_factory=dict)
    """How many of the attempts have this requirement."""
    suspects: int = 0
    """How many of the attempts are of jobs that a crash away from the last took their node with them."""
    hot: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    held_until: float = 0.0
    """No new attempts before this time: it refused or failed one."""
    failures: int = 0
    """Failures in a row."""
    quarantined_wall: float = 0.0
    """Since when it is in quarantine; 0 when it is not."""
    lanes: int = 0
    """Lanes of the devices that are ready. Fleet works out this and the two below."""
    room: int = 0
    """Attempts that it takes at once: the lanes, and one more for each ready device."""
    load: tuple[float, str] = (0.0, "")
    """Attempts per lane, and its id: which of two nodes is less busy."""

    @property
    def id(self) -> str:
        """Its id."""
        return self.report.node_id

    @property
    def state(self) -> NodeState:
        """What it is doing as a whole."""
        if self.lost:
            return NodeState.LOST
        if self.report.draining or self.drained:
            return NodeState.DRAINING
        return NodeState.QUARANTINED if self.quarantined_wall else NodeState.SERVING

    def offers(self, need: Requirement) -> bool:
        """Say whether the node can run such work at all, ready or not."""
        return not self.lost and self.report.offers(need)

    def remember(self, reference: bytes) -> None:
        """Note that the node works on `reference` now."""
        self.hot[reference] = None
        self.hot.move_to_end(reference)
        while len(self.hot) > HOT_REFERENCES:
            self.hot.popitem(last=False)

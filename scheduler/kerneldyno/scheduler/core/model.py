"""The values of the state machine: evaluations, jobs, attempts and nodes. No I/O, no protobuf, no gRPC.

An evaluation is one request of one client. A job is the work itself: evaluations that ask for the same work share one job.
A job has at most one attempt at a time, on one node.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

#: Length in bytes of the digest that identifies a piece of work (SHA-256).
DIGEST_BYTES = 32
#: Number of references that the scheduler assumes a node keeps hot, that is, built and cached.
HOT_REFERENCES = 64
#: The stages without a lane, numbered as in kerneldyno.v1.Stage: not reported yet, waiting for a lane, and building.
STAGE_UNKNOWN, STAGE_QUEUED, STAGE_BUILDING = 0, 1, 11


class Key(NamedTuple):
    """The identity of an evaluation."""

    client_id: str
    id: str

    @property
    def share(self) -> str:
        """The share of the devices that the evaluation is charged to.

        It is the client id up to the first "/", so that all clients of one team can have one share.
        """
        return self.client_id.partition("/")[0]


class Priority(enum.Enum):
    """Queue priority. The value is its handicap in seconds: jobs are served by arrival time plus handicap.

    A NORMAL request that has waited ten minutes is therefore served before a HIGH one that has just arrived.
    """

    HIGH = 0.0
    NORMAL = 600.0
    LOW = 3600.0


class SpeedupKind(enum.Enum):
    """The speedup of a result that counts for an evaluation. The work is the same for both kinds."""

    DEVICE = "device"
    END_TO_END = "end_to_end"


class ClientKind(enum.Enum):
    """The call by which work arrived. Metrics have it as a label."""

    REWARDS = "rewards"
    """StreamRewards: turns of a trainer."""
    STREAM = "stream"
    """Evaluate."""
    ONCE = "once"
    """EvaluateOnce."""
    RECOVERED = "recovered"
    """Unknown: an earlier process of this scheduler accepted the work, and the store does not keep the kind."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a node must offer to run a job. Jobs with equal requirements and priority wait in the same queue."""

    backend: str
    toolkit: str
    device_kind: str = ""
    device_model: str = ""
    min_memory_bytes: int = 0
    profiling: bool = False
    node_labels: frozenset[tuple[str, str]] = frozenset()
    min_devices: int = 0
    may_build: bool = False
    """True if the candidate may have native code to build. Every node can build; it decides only which room is used."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The work of a request, as far as the state machine needs to know it."""

    requirement: Requirement
    reference: bytes
    """Digest of the reference code. Placement prefers nodes where this reference is hot."""
    payload: bytes
    """The serialised request without the fields that belong to the evaluation (id, labels, priority)."""
    limit_seconds: float
    """Sum of the limits of all stages."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why KernelDyno could not give a verdict."""

    cause: str
    detail: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class MemoryShortage:
    """The reason why a problem is too large for the device that tried it."""

    device: str
    """Name of the device on its node."""
    of_device: bool
    """True when the device's memory is too small, False when the host's is."""
    needed_bytes: int
    """Lower bound of what the problem needs; 0 when unknown."""
    had_bytes: int
    """What was available."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a job: a node's serialised result, or an infrastructure failure."""

    outcome: str
    payload: bytes = b""
    failure: Failure | None = None
    environment: bytes = b""
    """Fingerprint of the environment that produced the result; the result answers requests for this environment only."""
    cached: bool = False
    """True when a stored result answered the evaluation and nothing ran."""
    shortage: MemoryShortage | None = field(default=None, compare=False)
    """Set for a problem that is too large. For the state machine only; clients read it from the payload."""

    @classmethod
    def failed(cls, cause: str, detail: str, *, retryable: bool) -> Verdict:
        """Return the verdict of a job that ended by an infrastructure failure."""
        return cls("INFRASTRUCTURE_ERROR", failure=Failure(cause, detail, retryable))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest:
    """A valid request, split into the work (`spec`, `digest`) and what belongs to the evaluation alone."""

    key: Key
    kind: ClientKind
    spec: Spec
    digest: bytes
    """Identity of the work: requests with the same digest may share a job or a stored result."""
    fingerprint: bytes
    """Digest of the whole request body except labels and grace. Two submits under one key must agree on it."""
    priority: Priority = Priority.NORMAL
    labels: dict[str, str] = field(default_factory=dict)
    timeout_seconds: float | None = None
    """Time limit from acceptance to the verdict; None for no limit."""
    grace_seconds: float | None = None
    """How long the evaluation goes on without an open call of its client; None for the scheduler's own limit."""
    fresh: bool = False
    """True to run the work again even when a stored result or a running job could answer."""
    speedup_kind: SpeedupKind = SpeedupKind.DEVICE
    trace: str = ""
    """Encoded trace context (kerneldyno.rpc.trace_context); empty when the request is not traced."""


class SubmitStatus(enum.Enum):
    """What became of a submitted request."""

    NEW = enum.auto()
    """Accepted."""
    SAME = enum.auto()
    """Accepted earlier, with the same body."""
    REUSED = enum.auto()
    """Refused: the id was used for a different body."""
    FULL = enum.auto()
    """Refused: too many evaluations are unfinished, in all or in this share."""


class Watcher(Protocol):
    """Receives the end of each evaluation that it watches, once."""

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Take note that `evaluation` is done. Must not call back into the state machine."""


@dataclass(slots=True, eq=False)
class Evaluation:
    """One accepted request of one client. It has a job until it has a verdict.

    Times named `..._at` are monotonic seconds; `..._wall` are seconds since the epoch and only shown to people.
    """

    key: Key
    fingerprint: bytes
    """See `SubmitRequest.fingerprint`."""
    digest: bytes
    """Identity of the work."""
    priority: Priority
    labels: dict[str, str]
    accepted_at: float
    accepted_wall: float
    deadline_at: float | None = None
    grace_seconds: float | None = None
    """See `SubmitRequest.grace_seconds`."""
    job: Job | None = None
    merged: bool = False
    """True when it joined a job that existed already."""
    attempts: int = 0
    """Attempts of its job at its end."""
    placed_wall: float = 0.0
    verdict: Verdict | None = None
    finished_wall: float = 0.0
    settled: bool = False
    """True once the verdict is on disk. Clients are told the verdict only then."""
    speedup_kind: SpeedupKind = SpeedupKind.DEVICE
    """The kind that this request asked for, which may differ from that of the run that answers it."""
    trace: str = ""
    """See `SubmitRequest.trace`. No decision depends on it."""
    joined_trace: str = ""
    """Trace of the job that the evaluation joined."""
    watchers: set[Watcher] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Job:
    """One piece of work. It waits in the queue while it has no attempt."""

    id: bytes
    """The digest of the work; a fresh run has a random suffix."""
    spec: Spec
    share: str
    """The share that is charged: that of the first evaluation."""
    priority: Priority
    """The highest priority of its evaluations."""
    queued_at: float
    """When the first of its evaluations was accepted (monotonic); retries do not change it."""
    kind: ClientKind = ClientKind.RECOVERED
    """The call by which the first evaluation came."""
    evaluations: dict[Key, Evaluation] = field(default_factory=dict)
    attempts: int = 0
    attempt: Attempt | None = None
    placed_at: float | None = None
    placed_wall: float = 0.0
    crashes: int = 0
    """Attempts that ended because their node or their judge died."""
    too_large_attempts: int = 0
    """Attempts that found the problem too large for their device. They do not count as infrastructure failures."""
    too_large_verdict: Verdict | None = None
    """The verdict of a smaller device, while the job waits for a larger one or runs there."""
    trace: str = ""
    """Trace of the evaluation that created the job."""
    unlucky_nodes: set[str] = field(default_factory=set)
    """Ids of nodes where infrastructure failed an attempt of this job."""

    @property
    def digest(self) -> bytes:
        """The identity of the work."""
        return self.id[:DIGEST_BYTES]


@dataclass(slots=True, eq=False)
class Attempt:
    """One try of one job on one node. Its token is the fencing token of the job."""

    token: str
    job: Job
    node: Node
    started_at: float
    stage: int = STAGE_UNKNOWN
    """As its node reported it last. It is not in the journal: after a restart of the scheduler, nodes report it again."""
    device: str = ""

    @property
    def may_build(self) -> bool:
        """True if its candidate may have native code to build."""
        return self.job.spec.requirement.may_build

    @property
    def building(self) -> bool:
        """True while native code is built, or may be built next."""
        return self.may_build and self.stage in (STAGE_UNKNOWN, STAGE_BUILDING)

    @property
    def ahead(self) -> bool:
        """True while it has no lane, if it is on its node ahead of its turn because of its build."""
        return self.may_build and self.stage in (STAGE_UNKNOWN, STAGE_BUILDING, STAGE_QUEUED)


class NodeState(enum.Enum):
    """The state of a node as operators see it."""

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
        """Return True if the device's kind, model and memory satisfy `need`."""
        return (
            need.device_kind in ("", self.kind)
            and need.device_model.lower() in self.model.lower()
            and self.memory_bytes >= need.min_memory_bytes
        )


class SandboxLayer(NamedTuple):
    """One layer of a node's sandbox."""

    name: str
    active: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a node reports about itself when it synchronizes."""

    node_id: str
    instance_id: str
    address: str = ""
    """host:port where the node accepts calls; empty when it accepts none."""
    draining: bool = False
    devices: tuple[Device, ...] = ()
    backends: frozenset[str] = frozenset()
    toolkits: frozenset[str] = frozenset()
    profiling: bool = False
    labels: frozenset[tuple[str, str]] = frozenset()
    attempt_tokens: tuple[str, ...] = ()
    builders: int = 0
    """Number of candidates that the node builds at once, without a lane; 0 if it builds in lanes."""
    environment: bytes = b""
    sandbox: tuple[SandboxLayer, ...] = ()
    """Shown to operators; no decision depends on it."""

    def offers(self, need: Requirement) -> bool:
        """Return True if the node has what `need` asks for, whether or not its devices are ready."""
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
    """True while its Work stream is open. A node without one gets no attempts."""
    lost: bool = False
    drained: bool = False
    """True when an operator drained it."""
    attempts: dict[str, Attempt] = field(default_factory=dict)
    attempts_by_requirement: dict[Requirement, int] = field(default_factory=dict)
    last_try_attempts: int = 0
    """Number of its attempts whose job ends for good with one more crash."""
    hot: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    """Digests of the references that are hot on the node, the least recently used first."""
    held_until: float = 0.0
    """The node gets no new attempts before this monotonic time, because it refused or failed one."""
    failures: int = 0
    """Consecutive infrastructure failures."""
    quarantined_wall: float = 0.0
    """When its quarantine began; 0 when it is not in quarantine."""
    lanes: int = 0
    """Lanes of the devices that are ready. Computed by Fleet, as are the three below."""
    room: int = 0
    """Number of attempts that the node takes for its lanes: one for each lane, plus one for each ready device."""
    builders: int = 0
    """Number of attempts that the node takes beyond `room`, to build their native code; 0 while no device is ready."""
    load: tuple[float, int, str] = (0.0, 0, "")
    """Attempts per lane without those that build, the number of those, and the node id to break ties. The node with the
    lowest value is the least busy."""

    @property
    def id(self) -> str:
        """The node's id."""
        return self.report.node_id

    @property
    def state(self) -> NodeState:
        """The node's state."""
        if self.lost:
            return NodeState.LOST
        if self.report.draining or self.drained:
            return NodeState.DRAINING
        return NodeState.QUARANTINED if self.quarantined_wall else NodeState.SERVING

    @property
    def building(self) -> int:
        """The number of attempts that build native code, or may be about to, and take no lane."""
        return sum(attempt.building for attempt in self.attempts.values()) if self.builders else 0

    def takes(self, *, may_build: bool) -> bool:
        """Return True if the node's state and attempts leave room for one more attempt.

        The node has at most `room` + `builders` attempts. An attempt that may need a build counts towards `room` only once
        it has a lane. So builds do not delay other attempts, and other attempts do not take the places of builds.

        Args:
            may_build: True for an attempt that may need a build. The node builds at most `builders` of these at once.
        """
        running = len(self.attempts)
        if self.state is NodeState.QUARANTINED:
            return self.room > 0 and not running
        if self.state is not NodeState.SERVING or running >= self.room + self.builders:
            return False
        if self.builders and may_build:
            return self.building < self.builders
        ahead = sum(attempt.ahead for attempt in self.attempts.values()) if self.builders else 0
        return running - ahead < self.room

    def offers(self, need: Requirement) -> bool:
        """Return True if the node is not lost and has what `need` asks for, whether or not its devices are ready."""
        return not self.lost and self.report.offers(need)

    def remember(self, reference: bytes) -> None:
        """Record that `reference` is hot on the node from now on."""
        self.hot[reference] = None
        self.hot.move_to_end(reference)
        while len(self.hot) > HOT_REFERENCES:
            self.hot.popitem(last=False)

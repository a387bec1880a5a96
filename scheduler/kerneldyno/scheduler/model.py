"""What the state machine is made of: evaluations, attempts, nodes. Plain values; no I/O, no proto, no gRPC."""

from __future__ import annotations

import enum
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

#: Reference digests that a node is taken to keep hot.
HOT_REFERENCES = 64


class Key(NamedTuple):
    """Identity of a submit."""

    client_id: str
    id: str


class Priority(enum.Enum):
    """Queue priority; the value is the head start in seconds that every other request has to wait off.

    That is the whole ageing rule: a NORMAL request that has waited ten minutes goes before a HIGH one that just came.
    """

    HIGH = 0.0
    NORMAL = 600.0
    LOW = 3600.0


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a node must offer to run an evaluation; requests that differ in nothing here wait in one line."""

    backend: str
    toolkit: str
    device_kind: str = ""
    device_model: str = ""
    min_memory_bytes: int = 0
    profiling: bool = False


@dataclass(frozen=True, slots=True)
class Spec:
    """A request as the state machine sees it."""

    requirement: Requirement
    priority: Priority
    reference: bytes
    """Digest of the reference code, for locality."""
    payload: bytes
    """The request itself, serialised."""
    limit_seconds: float
    """Sum of its stage limits."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why KernelDyno gave no verdict."""

    cause: str
    detail: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an evaluation ended: a node's result (serialised), or a failure of infrastructure."""

    outcome: str
    payload: bytes = b""
    failure: Failure | None = None

    @classmethod
    def failed(cls, cause: str, detail: str, *, retryable: bool) -> Verdict:
        """Return the verdict of an evaluation that infrastructure failed."""
        return cls("INFRASTRUCTURE_ERROR", failure=Failure(cause, detail, retryable))


class Watcher(Protocol):
    """Someone who waits for evaluations and has to be told of each end once."""

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Take note that `evaluation` is done. Must not call back into the state machine."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One try of one evaluation on one node."""

    token: str
    evaluation: Evaluation
    node: Node
    started_at: float
    stage: int = 0
    device: str = ""


@dataclass(slots=True, eq=False)
class Evaluation:
    """One accepted request. It waits (no attempt, no verdict), runs (an attempt), or is done (a verdict)."""

    key: Key
    fingerprint: bytes
    spec: Spec | None
    """None once done: only the result is kept."""
    labels: dict[str, str]
    accepted_at: float
    accepted_wall: float
    attempts: int = 0
    attempt: Attempt | None = None
    placed_at: float | None = None
    placed_wall: float = 0.0
    unlucky_nodes: set[str] = field(default_factory=set)
    verdict: Verdict | None = None
    finished_wall: float = 0.0
    watchers: set[Watcher] = field(default_factory=set)


class NodeState(enum.Enum):
    """What a node is doing as a whole."""

    SERVING = "serving"
    DRAINING = "draining"
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


@dataclass(frozen=True, slots=True)
class Report:
    """What a node says of itself."""

    node_id: str
    instance_id: str
    address: str
    draining: bool
    devices: tuple[Device, ...]
    backends: frozenset[str]
    toolkits: frozenset[str]
    profiling: bool = False
    attempt_tokens: tuple[str, ...] = ()
    environment: bytes = b""


@dataclass(slots=True, eq=False)
class Node:
    """A registered node."""

    report: Report
    state: NodeState
    heard_at: float
    heard_wall: float
    attempts: dict[str, Attempt] = field(default_factory=dict)
    hot: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    held_until: float = 0.0
    """No new attempts before this time: it refused or failed one."""
    failures: int = 0
    """Failures in a row."""

    @property
    def id(self) -> str:
        """Its id."""
        return self.report.node_id

    @property
    def lanes(self) -> int:
        """Lanes of the devices that are ready."""
        return sum(device.lanes for device in self.report.devices if device.ready)

    def offers(self, need: Requirement) -> bool:
        """Say whether the node can run such work at all, ready or not."""
        report = self.report
        return (
            self.state is not NodeState.LOST
            and need.backend in report.backends
            and need.toolkit in report.toolkits
            and (report.profiling or not need.profiling)
            and any(device.matches(need) for device in report.devices)
        )

    def has_place(self, need: Requirement) -> bool:
        """Say whether one more attempt may be sent now.

        Each ready device takes its lanes' worth and one more, so that the next one is there when a lane falls free.
        """
        room = alike_room = 0
        for device in self.report.devices:
            if device.ready and device.lanes > 0:
                room += device.lanes + 1
                alike_room += device.lanes + 1 if device.matches(need) else 0
        if len(self.attempts) >= room:
            return False
        alike = sum(1 for a in self.attempts.values() if a.evaluation.spec and a.evaluation.spec.requirement == need)
        return alike < alike_room

    def remember(self, reference: bytes) -> None:
        """Note that the node works on `reference` now."""
        self.hot[reference] = None
        self.hot.move_to_end(reference)
        while len(self.hot) > HOT_REFERENCES:
            self.hot.popitem(last=False)

"""The scheduler's state machine: what is accepted, what runs where, what is done.

Every method is synchronous and takes effect at once; time and tokens are injected. The services and the dispatcher call
it, and observe it. It does no I/O, and it trusts no attempt but the one that holds the evaluation's current token.

The work it accepts lives in memory: a crash of this process loses it, and clients that come back are told so (their ids
are unknown) and submit again.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable

from kerneldyno.scheduler.clock import Clock
from kerneldyno.scheduler.fleet import Fleet, union
from kerneldyno.scheduler.model import (
    Attempt,
    Evaluation,
    Key,
    Node,
    NodeState,
    Report,
    Requirement,
    Spec,
    Verdict,
    Watcher,
)
from kerneldyno.scheduler.queue import WaitingLine
from kerneldyno.scheduler.settings import Settings


class Submission(enum.Enum):
    """What became of a submit."""

    NEW = enum.auto()
    """Accepted; it waits."""
    SAME = enum.auto()
    """Accepted before, with the same body."""
    REUSED = enum.auto()
    """Refused: the id belongs to another body."""
    FULL = enum.auto()
    """Refused: too much waits already."""


class Observer:
    """What others may want to know; override what matters. None of these may call back into the state machine."""

    def work_changed(self) -> None:
        """Something may now be placed that could not be before."""

    def room_made(self) -> None:
        """The waiting line became shorter."""

    def attempt_started(self, attempt: Attempt, waited_seconds: float) -> None:
        """An attempt was placed after its evaluation had waited."""

    def attempt_dropped(self, attempt: Attempt, *, node_lost: bool) -> None:
        """An attempt lost its token before it ended; its node should kill it."""

    def finished(self, evaluation: Evaluation, seconds: float | None) -> None:
        """An evaluation is done, `seconds` after its last attempt was placed (None: it never was)."""

    def retried(self, evaluation: Evaluation, cause: str) -> None:
        """An evaluation goes back to the line."""

    def node_joined(self, node: Node) -> None:
        """A node registered, or came back after it was lost."""

    def lease_expired(self, node: Node) -> None:
        """A node is lost."""

    def stale_completion(self, token: str) -> None:
        """An attempt ended that no longer holds the token."""


class Core:
    """The state machine."""

    def __init__(self, settings: Settings, clock: Clock, new_token: Callable[[], str]) -> None:
        self.observers: list[Observer] = []
        self.fleet = Fleet(settings.heartbeat_seconds, settings.lease_seconds)
        self.waiting = WaitingLine()
        self.placing = True
        self._settings = settings
        self._clock = clock
        self._new_token = new_token
        self._evaluations: dict[Key, Evaluation] = {}
        self._attempts: dict[str, Attempt] = {}
        self._kept: OrderedDict[Key, Evaluation] = OrderedDict()  # done and owed to nobody: the first to be dropped
        self._done_count = 0
        self._done_bytes = 0
        self._unmatched_since: dict[Requirement, float] = {}
        self._last_tick = clock.monotonic()

    # Requests

    def submit(self, key: Key, fingerprint: bytes, spec: Spec, labels: dict[str, str]) -> Submission:
        """Accept an evaluation, unless the line is full or the id belongs to another body."""
        known = self._evaluations.get(key)
        if known is not None:
            return Submission.SAME if known.fingerprint == fingerprint else Submission.REUSED
        if not self.has_room():
            return Submission.FULL
        evaluation = Evaluation(key, fingerprint, spec, labels, self._clock.monotonic(), self._clock.wall())
        self._evaluations[key] = evaluation
        self.waiting.add(evaluation)
        self._work_changed()
        return Submission.NEW

    def has_room(self) -> bool:
        """Say whether one more evaluation may wait."""
        full = len(self.waiting) >= self._settings.max_queued or self.waiting.bytes >= self._settings.max_queued_bytes
        return not full

    def get(self, key: Key) -> Evaluation | None:
        """Return an evaluation, or None when it is not known or no longer kept."""
        return self._evaluations.get(key)

    def cancel(self, evaluation: Evaluation, cause: str = "CANCELLED", detail: str = "cancelled on request") -> None:
        """End `evaluation` now, wherever it is; a finished one stays as it is."""
        if evaluation.verdict is None:
            if evaluation.attempt is not None:
                self._drop(evaluation.attempt, node_lost=False)
            self._finish(evaluation, Verdict.failed(cause, detail, retryable=False))
            self._work_changed()

    def watch(self, evaluation: Evaluation, watcher: Watcher) -> None:
        """Tell `watcher` when `evaluation` is done, at once if it is; it is kept until `unwatch`."""
        evaluation.watchers.add(watcher)
        if evaluation.verdict is not None:
            self._kept.pop(evaluation.key, None)
            watcher.evaluation_done(evaluation)

    def unwatch(self, evaluation: Evaluation, watcher: Watcher) -> None:
        """Forget `watcher`; a result that is owed to nobody any more may be dropped when others need the room."""
        evaluation.watchers.discard(watcher)
        if evaluation.verdict is not None and not evaluation.watchers:
            self._kept[evaluation.key] = evaluation
            self._shed()

    # Attempts

    def place(self) -> list[Attempt]:
        """Place what can be placed and return the new attempts, for the dispatcher to start."""
        placed: list[Attempt] = []
        while self.placing and (choice := self._next()) is not None:
            evaluation, node = choice
            assert evaluation.spec is not None, "a waiting evaluation has its request"
            self.waiting.remove(evaluation)
            now = self._clock.monotonic()
            attempt = Attempt(self._new_token(), evaluation, node, now)
            evaluation.attempt = self._attempts[attempt.token] = node.attempts[attempt.token] = attempt
            evaluation.attempts += 1
            evaluation.placed_at, evaluation.placed_wall = now, self._clock.wall()
            node.remember(evaluation.spec.reference)
            placed.append(attempt)
            for observer in self.observers:
                observer.attempt_started(attempt, now - evaluation.accepted_at)
        if placed:
            self._room_made()
        return placed

    def is_current(self, token: str) -> bool:
        """Say whether the attempt may still decide its evaluation."""
        return token in self._attempts

    def progress(self, token: str, stage: int, device: str) -> None:
        """Note how far an attempt is."""
        if (attempt := self._attempts.get(token)) is not None:
            attempt.stage, attempt.device = stage, device

    def complete(self, token: str, verdict: Verdict) -> bool:
        """Take the end of an attempt; False when it is stale, and then nothing changes."""
        attempt = self._attempts.get(token)
        if attempt is None:
            for observer in self.observers:
                observer.stale_completion(token)
            return False
        if verdict.failure is not None and verdict.failure.retryable:
            self._retry(attempt, verdict)
        else:
            attempt.node.failures = 0
            self._detach(attempt)
            self._finish(attempt.evaluation, verdict)
        self._work_changed()
        return True

    def refuse(self, token: str, hold_seconds: float) -> None:
        """Put an evaluation back that its node would not take now; nothing was started, so it does not count."""
        if (attempt := self._attempts.get(token)) is not None:
            self._detach(attempt)
            self.fleet.hold(attempt.node, self._clock.monotonic(), hold_seconds)
            attempt.evaluation.attempts -= 1
            self.waiting.add(attempt.evaluation, first=True)
            self._work_changed()

    # Nodes

    def synchronize(self, report: Report) -> list[str] | None:
        """Register a node or renew its lease; return the tokens it must drop, or None when its name is taken."""
        now = self._clock.monotonic()
        if self.fleet.is_twin(report, now):
            return None
        before = self.fleet.nodes.get(report.node_id)
        if before is not None and before.report.instance_id != report.instance_id:
            self._lose_attempts(before, f"node {before.id} was restarted")
        known = before if before is not None and before.state is not NodeState.LOST else None
        node = self.fleet.update(report, now, self._clock.wall())
        if node is not known:
            for observer in self.observers:
                observer.node_joined(node)
        self._work_changed()
        return [token for token in report.attempt_tokens if token not in node.attempts]

    def tick(self) -> None:
        """End leases and waits that are over. Called a few times a second."""
        now = self._clock.monotonic()
        if now - self._last_tick > 2 * self._settings.heartbeat_seconds:
            self.fleet.renew_all(now)  # this process was stopped: the silence was its own
        self._last_tick = now
        for node in self.fleet.expired(now):
            quiet_end = node.state is NodeState.DRAINING and not node.attempts
            node.state = NodeState.LOST
            if not quiet_end:
                for observer in self.observers:
                    observer.lease_expired(node)
            self._lose_attempts(node, f"node {node.id} was not heard of for {self._settings.lease_seconds:g} s")
        self._fail_unmatched(now)
        self._work_changed()  # a hold may have ended

    # What others ask

    def running(self) -> int:
        """Return how many attempts run."""
        return len(self._attempts)

    def known_backends(self) -> list[str] | None:
        """Return the backends of all nodes, those lately lost included; None while none is registered."""
        return union(node.report.backends for node in self.fleet.nodes.values()) if self.fleet.live() else None

    def known_toolkits(self) -> list[str] | None:
        """Return the toolkits of all nodes, those lately lost included; None while none is registered."""
        return union(node.report.toolkits for node in self.fleet.nodes.values()) if self.fleet.live() else None

    def can_profile(self) -> bool:
        """Say whether some node can profile."""
        return any(node.report.profiling for node in self.fleet.nodes.values())

    # Inside

    def _next(self) -> tuple[Evaluation, Node] | None:
        now = self._clock.monotonic()
        for evaluation in self.waiting.heads():
            if (node := self.fleet.choose(evaluation, now)) is not None:
                return evaluation, node
        return None

    def _detach(self, attempt: Attempt) -> None:
        """Take the token back."""
        del self._attempts[attempt.token]
        del attempt.node.attempts[attempt.token]
        attempt.evaluation.attempt = None

    def _drop(self, attempt: Attempt, *, node_lost: bool) -> None:
        self._detach(attempt)
        for observer in self.observers:
            observer.attempt_dropped(attempt, node_lost=node_lost)

    def _retry(self, attempt: Attempt, verdict: Verdict) -> None:
        """Put the evaluation of a lost attempt back at the head of its line, or give up."""
        evaluation, failure = attempt.evaluation, verdict.failure
        assert failure is not None, "only failures of infrastructure are retried"
        if attempt.token in self._attempts:
            self._detach(attempt)
            self.fleet.hold(attempt.node, self._clock.monotonic())
        evaluation.unlucky_nodes.add(attempt.node.id)
        if evaluation.attempts >= self._settings.max_attempts:
            self._finish(evaluation, verdict)
            return
        for observer in self.observers:
            observer.retried(evaluation, failure.cause)
        self.waiting.add(evaluation, first=True)

    def _lose_attempts(self, node: Node, detail: str) -> None:
        for attempt in list(node.attempts.values()):
            self._drop(attempt, node_lost=True)
            self._retry(attempt, Verdict.failed("NODE_LOST", detail, retryable=True))

    def _fail_unmatched(self, now: float) -> None:
        needs = self.waiting.requirements()
        self._unmatched_since = {
            need: self._unmatched_since.get(need, now) for need in needs if not self.fleet.any_offers(need)
        }
        for need, since in self._unmatched_since.items():
            for evaluation in list(self.waiting.waiting_for(need)):
                if now - max(since, evaluation.accepted_at) >= self._settings.unmatched_seconds:
                    detail = f"no registered device could run this for {self._settings.unmatched_seconds:g} s"
                    self._finish(evaluation, Verdict.failed("NO_MATCHING_DEVICE", detail, retryable=True))

    def _finish(self, evaluation: Evaluation, verdict: Verdict) -> None:
        if evaluation in self.waiting:
            self.waiting.remove(evaluation)
            self._room_made()
        evaluation.verdict = verdict
        evaluation.finished_wall = self._clock.wall()
        evaluation.spec = None
        self._done_count += 1
        self._done_bytes += len(verdict.payload)
        seconds = None if evaluation.placed_at is None else self._clock.monotonic() - evaluation.placed_at
        for observer in self.observers:
            observer.finished(evaluation, seconds)
        for watcher in list(evaluation.watchers):
            watcher.evaluation_done(evaluation)
        if not evaluation.watchers:
            self._kept[evaluation.key] = evaluation
        self._shed()

    def _shed(self) -> None:
        """Drop the oldest results that are owed to nobody, until the rest fits."""
        settings = self._settings
        while self._kept and (self._done_count > settings.retain_results or self._done_bytes > settings.retain_bytes):
            key, evaluation = self._kept.popitem(last=False)
            assert evaluation.verdict is not None, "only finished evaluations are kept"
            del self._evaluations[key]
            self._done_count -= 1
            self._done_bytes -= len(evaluation.verdict.payload)

    def _work_changed(self) -> None:
        for observer in self.observers:
            observer.work_changed()

    def _room_made(self) -> None:
        for observer in self.observers:
            observer.room_made()

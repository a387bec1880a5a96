"""The events of the state machine: the interface that observers implement, and the list that Core notifies."""

from __future__ import annotations

from collections.abc import Callable

from kerneldyno.scheduler.core.model import Attempt, Evaluation, Job, Node, Verdict


class Observer:
    """Receives events of the state machine. Override what matters; no method may call back into the state machine."""

    def work_changed(self) -> None:
        """Called when a job may have become placeable."""

    def room_made(self) -> None:
        """Called when more evaluations may be accepted than before."""

    def deduplicated(self, how: str) -> None:
        """Called when an evaluation needed no run of its own; `how` is "merged" or "cached"."""

    def evaluation_accepted(self, evaluation: Evaluation) -> None:
        """Called when an evaluation was accepted; it may have its verdict already."""

    def attempt_started(self, attempt: Attempt, waited_seconds: float) -> None:
        """Called when an attempt was placed; its job had waited for `waited_seconds` since its first acceptance."""

    def attempt_ended(self, attempt: Attempt, verdict: Verdict) -> None:
        """Called when an attempt ended, with or without a result, before its job is ended or put back."""

    def attempt_dropped(self, attempt: Attempt, *, node_lost: bool) -> None:
        """Called when an attempt lost its token before it ended; its node should kill it."""

    def job_done(self, job: Job, verdict: Verdict, seconds: float | None) -> None:
        """Called when a job ended, `seconds` after its last attempt was placed; None if none ever was."""

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Called when an evaluation got its verdict, before the verdict is on disk."""

    def retried(self, job: Job, cause: str) -> None:
        """Called when a job goes back to the queue."""

    def node_joined(self, node: Node) -> None:
        """Called when a node registered, or came back after it was lost."""

    def node_lost(self, node: Node, *, expired: bool) -> None:
        """Called when a node is lost; `expired` is True when its lease ended, False when it was found dead."""

    def quarantined(self, kind: str, subject: str, reason: str) -> None:
        """Called when a node or work was put into quarantine; `kind` is "node" or "work"."""

    def stale_completion(self, token: str) -> None:
        """Called when a result arrived under a token that is not current."""


class Observers(list[Observer]):
    """The observers of one state machine, notified in order."""

    def tell(self, call: Callable[[Observer], None]) -> None:
        """Make `call` with each observer."""
        for observer in self:
            call(observer)

    def work_changed(self) -> None:
        """Notify all that a job may have become placeable."""
        for observer in self:
            observer.work_changed()

    def room_made(self) -> None:
        """Notify all that more evaluations may be accepted."""
        for observer in self:
            observer.room_made()

"""What the state machine tells others while it works; override what matters."""

from __future__ import annotations

from kerneldyno.scheduler.model import Attempt, Evaluation, Job, Node, Verdict


class Observer:
    """Someone who wants to know. None of these may call back into the state machine."""

    def work_changed(self) -> None:
        """Something may now be placed that could not be before."""

    def room_made(self) -> None:
        """More may be accepted than before."""

    def deduplicated(self, how: str) -> None:
        """An evaluation needed no run of its own: it was "merged" or "cached"."""

    def evaluation_accepted(self, evaluation: Evaluation) -> None:
        """An evaluation was accepted; it may have its verdict already."""

    def attempt_started(self, attempt: Attempt, waited_seconds: float) -> None:
        """An attempt was placed after its job had waited."""

    def attempt_ended(self, attempt: Attempt, verdict: Verdict) -> None:
        """An attempt is over, by a result or without one; what becomes of its job comes next."""

    def attempt_dropped(self, attempt: Attempt, *, node_lost: bool) -> None:
        """An attempt lost its token before it ended; its node should kill it."""

    def job_done(self, job: Job, verdict: Verdict, seconds: float | None) -> None:
        """A job is done, `seconds` after its last attempt was placed (None: it never was)."""

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """An evaluation has its verdict."""

    def retried(self, job: Job, cause: str) -> None:
        """A job goes back to the line."""

    def node_joined(self, node: Node) -> None:
        """A node registered, or came back after it was lost."""

    def node_lost(self, node: Node, *, expired: bool) -> None:
        """A node is lost: its lease expired, or it was found dead before."""

    def quarantined(self, kind: str, subject: str, reason: str) -> None:
        """A node or some work ("node", "work") was put into quarantine."""

    def stale_completion(self, token: str) -> None:
        """An attempt ended that no longer holds the token."""
